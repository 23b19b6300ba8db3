"""A journal gives back what was written into it, or says why one cannot go on from it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from edgeproof.errors import UsageError
from edgeproof.host import journal as journals
from edgeproof.host.journal import Journal, read
from edgeproof.plan.stage import Verdict
from tests.faults.test_lying_worker import CONTENTS
from tests.host.test_history import CASE, CELL, PASSED, SUBJECT

OTHER = replace(CELL, case=replace(CASE, id="operators/sub[float32]"))


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    journal = Journal(tmp_path / "report.json.partial")
    journal.begin({"suites": ["operators"]})
    journal.subject(SUBJECT)
    journal.result(PASSED)
    return journal


def test_what_was_written_comes_back(journal: Journal) -> None:
    begun = read(journal.path)
    assert begun.asked == {"suites": ["operators"]}
    assert begun.of(CELL) == PASSED
    assert begun.of(OTHER) is None
    begun.check(SUBJECT)


def test_a_line_that_was_cut_off_is_no_result(journal: Journal) -> None:
    journal.result(replace(PASSED, cell=OTHER, verdict=Verdict.FAILED))
    whole = journal.path.read_bytes()
    first = whole.rindex(b"\n", 0, -1) + 1
    for end in range(first, len(whole)):
        journal.path.write_bytes(whole[:end])
        begun = read(journal.path)
        assert begun.of(CELL) == PASSED
        assert begun.of(OTHER) is None


def test_results_written_after_a_line_that_was_cut_off_are_not_lost(journal: Journal) -> None:
    whole = journal.path.read_bytes()
    journal.path.write_bytes(whole + b'{"cell": "operators/mul')
    again = Journal(journal.path)
    again.go_on()
    again.result(replace(PASSED, cell=OTHER))
    begun = read(journal.path)
    assert begun.of(CELL) == PASSED
    assert begun.of(OTHER) is not None


def test_another_edgeproof_does_not_go_on(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "code_hash", lambda: "another")
    with pytest.raises(UsageError, match="edgeproof itself has changed"):
        read(journal.path)


def test_another_subject_does_not_go_on(journal: Journal) -> None:
    changed = replace(SUBJECT, contents=replace(CONTENTS, packages={"torch": "2.14.0"}))
    with pytest.raises(UsageError, match="holds other packages"):
        read(journal.path).check(changed)


def test_a_result_that_is_none_is_refused(journal: Journal) -> None:
    with journal.path.open("a") as file:
        file.write(json.dumps({"cell": OTHER.id, "result": {"verdict": "splendid"}}) + "\n")
    with pytest.raises(UsageError, match="damaged"):
        read(journal.path).of(OTHER)


@pytest.mark.parametrize(
    "content", [b"", b"{}\n", b"[]\n", b"\xff\xfe\n", b'{"asked": {}, "code": "x"'], ids=repr
)
def test_what_is_no_journal_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "report.json.partial"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="cannot be read as the journal"):
        read(path)


def test_no_journal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the run ended, or was never begun"):
        read(tmp_path / "report.json.partial")
