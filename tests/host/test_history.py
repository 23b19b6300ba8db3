"""What earlier runs found is taken over only where nothing changed; a damaged file costs only time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgeproof.flows.registry import all_flows
from edgeproof.host import history as histories
from edgeproof.host.history import History
from edgeproof.plan.case import Case, Source
from edgeproof.plan.cell import Cell, Result, StageTime
from edgeproof.plan.stage import Stage, Verdict
from edgeproof.plan.subject import Subject
from tests.faults.test_lying_worker import CONTENTS

SUBJECT = Subject(stack="base", python=Path("python"), env={}, managed=True, contents=CONTENTS)
CASE = Case(id="operators/add[float32]", source=Source.BUILTIN, target="module:add", whole=False)
CELL = Cell(case=CASE, flow=all_flows()["portable_fp32"], subject=SUBJECT.id, seed=1)
PASSED = Result(
    cell=CELL,
    verdict=Verdict.PASSED,
    stages=(
        StageTime(stage=Stage.BUILD, seconds=5.0, shared=True),
        StageTime(stage=Stage.LOWER, seconds=0.5),
        StageTime(stage=Stage.RUN, seconds=0.25),
    ),
    evidence={"nodes": 1, "outputs": [{"output": "[0]"}]},
)


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "history.sqlite")


def test_what_did_not_change_is_taken_over_and_says_so(history: History) -> None:
    history.add([PASSED], [SUBJECT])
    (found,) = history.results([CELL], [SUBJECT])
    assert found == replace(PASSED, cached=True)


@pytest.mark.parametrize(
    "change",
    [
        lambda cell, subject: (replace(cell, seed=2), subject),
        lambda cell, subject: (replace(cell, flow=all_flows()["xnnpack_fp32"]), subject),
        lambda cell, subject: (replace(cell, case=replace(CASE, target="module:sub")), subject),
        lambda cell, subject: (replace(cell, case=replace(CASE, whole=True)), subject),
        lambda cell, subject: (
            cell,
            replace(subject, contents=replace(CONTENTS, packages={"torch": "2.13.0"})),
        ),
        lambda cell, subject: (
            cell,
            replace(subject, contents=replace(CONTENTS, changed_files=("exir/lowered.py",))),
        ),
        lambda cell, subject: (cell, replace(subject, env={"QNN_SDK_ROOT": "elsewhere"})),
    ],
    ids=["seed", "flow", "target", "whole", "package", "file", "environment"],
)
def test_what_changed_is_run_again(
    history: History, change: Callable[[Cell, Subject], tuple[Cell, Subject]]
) -> None:
    history.add([PASSED], [SUBJECT])
    cell, subject = change(CELL, SUBJECT)
    assert history.results([cell], [subject]) == []


def test_another_edgeproof_runs_everything_again(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    history.add([PASSED], [SUBJECT])
    monkeypatch.setattr(histories, "code_hash", lambda: "another")
    assert history.results([CELL], [SUBJECT]) == []


@pytest.mark.parametrize("verdict", [Verdict.TIMED_OUT, Verdict.NOT_RUN])
def test_what_may_end_otherwise_next_time_is_not_kept(history: History, verdict: Verdict) -> None:
    history.add([replace(PASSED, verdict=verdict)], [SUBJECT])
    assert history.results([CELL], [SUBJECT]) == []


@pytest.mark.parametrize("verdict", [Verdict.FAILED, Verdict.CRASHED, Verdict.SKIPPED])
def test_what_was_red_stays_red(history: History, verdict: Verdict) -> None:
    history.add([replace(PASSED, verdict=verdict)], [SUBJECT])
    assert [found.verdict for found in history.results([CELL], [SUBJECT])] == [verdict]


def test_times_are_of_what_the_cell_did_itself(history: History) -> None:
    history.add([PASSED], [SUBJECT])
    assert history.times() == {("operators/add[float32]", "portable_fp32"): 0.75}


def test_times_are_of_the_last_run_not_of_what_was_taken_over(history: History) -> None:
    history.add([PASSED], [SUBJECT])
    taken = replace(PASSED, cached=True, stages=(StageTime(stage=Stage.RUN, seconds=9.0),))
    history.add([taken], [SUBJECT])
    assert list(history.times().values()) == [0.75]


def test_a_listing_is_of_the_same_suites_and_subject(history: History) -> None:
    history.add_listing(["operators"], SUBJECT, [CASE])
    assert history.listing(["operators"], SUBJECT) == [CASE]
    assert history.listing(["operators", "models"], SUBJECT) is None
    assert history.listing(["operators"], replace(SUBJECT, env={"A": "b"})) is None


def test_old_results_are_dropped(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    then = time.time() - 31 * 86400
    with monkeypatch.context() as patched:
        patched.setattr(histories.time, "time", lambda: then)
        history.add([PASSED], [SUBJECT])
    history.add([], [SUBJECT])
    assert history.results([CELL], [SUBJECT]) == []


@pytest.mark.parametrize("content", [b"no database", b"SQLite format 3\0" + b"\xff" * 4096])
def test_a_damaged_file_is_made_anew(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "history.sqlite"
    path.write_bytes(content)
    history = History(path)
    assert history.results([CELL], [SUBJECT]) == []
    assert history.times() == {}
    history.add([PASSED], [SUBJECT])
    history.add([PASSED], [SUBJECT])
    assert len(history.results([CELL], [SUBJECT])) == 1


def test_a_damaged_row_is_no_result(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Result) -> dict[str, Any]:
        return {"verdict": "splendid"}

    with monkeypatch.context() as patched:
        patched.setattr(Result, "to_json", broken)
        history.add([PASSED], [SUBJECT])
    assert history.results([CELL], [SUBJECT]) == []


def test_where_nothing_can_be_written_nothing_is_known(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    history = History(tmp_path / "file" / "history.sqlite")
    history.add([PASSED], [SUBJECT])
    assert history.results([CELL], [SUBJECT]) == []
