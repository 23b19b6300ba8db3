"""Which cells a run takes, and what it refuses before anything is prepared."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from edgeproof.cli.run import BUNDLE, Asked, Selection, _expected, _groups
from edgeproof.errors import UsageError
from edgeproof.flows.registry import all_flows
from edgeproof.plan.case import Case, Source
from tests.cli.test_app import run as edgeproof


def case(name: str, *, whole: bool = False) -> Case:
    return Case(id=name, source=Source.BUILTIN, target="module:function", whole=whole)


CASES = [
    case(f"operators/{op}[{dtype}-{n}]")
    for op in ("add", "sub", "add_relu")
    for dtype in ("float32", "int64")
    for n in range(5)
]


def test_everything_is_selected_unless_said() -> None:
    assert Selection().of(CASES) == CASES
    assert str(Selection()) == ""


def test_brackets_are_no_sets_of_characters() -> None:
    found = Selection(cases=("operators/add[float32-*]",)).of(CASES)
    assert [c.id for c in found] == [f"operators/add[float32-{n}]" for n in range(5)]


def test_dtypes() -> None:
    found = Selection(dtypes=("int64",)).of(CASES)
    assert len(found) == 15
    assert all("int64" in c.id for c in found)


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 30, 40])
def test_all_shards_together_are_the_whole(parts: int) -> None:
    shards = [Selection(shard=(part, parts)).of(CASES) for part in range(1, parts + 1)]
    ids = [c.id for shard in shards for c in shard]
    assert sorted(ids) == sorted(c.id for c in CASES)
    assert shards == [Selection(shard=(part, parts)).of(CASES) for part in range(1, parts + 1)]


@pytest.mark.parametrize(
    "selection", [Selection(cases=("operators/mul*",)), Selection(dtypes=("bool",))]
)
def test_what_matches_nothing_is_refused(selection: Selection) -> None:
    with pytest.raises(UsageError, match="no case"):
        selection.of(CASES)


class Plan:
    def __init__(self, stack: str) -> None:
        self.id = f"{stack}/executorch-1.5.1/py3.11"


def groups_of(flows: list[str], **options: bool) -> list[tuple[tuple[str, ...], ...]]:
    chosen = [all_flows()[name] for name in flows]
    plans = {flow.stack: Plan(flow.stack) for flow in chosen}
    cases = [*CASES, case("models/net", whole=True)]
    given = {"exact": False, **options}
    groups = _groups(cases, chosen, plans, Selection(), seed=0, **given)  # type: ignore[arg-type]
    return [tuple(tuple(c.id for c in task) for task in group) for group in groups]


@pytest.mark.parametrize("exact", [False, True])
def test_every_cell_is_in_one_task(exact: bool) -> None:
    flows = ["portable_fp32", "xnnpack_fp32", "coreai_fp32", "xnnpack_int8_static"]
    cells = [c for group in groups_of(flows, exact=exact) for task in group for c in task]
    assert len(cells) == len(set(cells)) == 4 * 31


def test_small_cases_are_bundled_but_not_in_quantized_flows() -> None:
    tasks = [t for g in groups_of(["xnnpack_fp32", "xnnpack_int8_static"]) for t in g]
    several = [task for task in tasks if len(task) > 1]
    assert max(len(task) for task in several) <= BUNDLE
    assert sum(len(task) for task in several) == 30
    assert all("xnnpack_fp32" in c for task in several for c in task)
    assert not any("models/net" in c for task in several for c in task)


def test_exact_bundles_nothing() -> None:
    assert all(len(task) == 1 for g in groups_of(["xnnpack_fp32"], exact=True) for task in g)


def test_flows_of_one_subject_share_a_group() -> None:
    groups = groups_of(["portable_fp32", "xnnpack_fp32", "coreai_fp32"])
    assert {len(group) for group in groups} == {1, 2}
    for group in groups:
        assert len({c.split()[-1] for task in group for c in task}) == 1


def test_the_longest_come_first_and_the_unknown_before_them() -> None:
    plans = {"base": Plan("base")}
    flow = all_flows()["portable_fp32"]
    slow, quick, new = groups = _groups(
        [case("a/slow", whole=True), case("a/quick", whole=True), case("a/new", whole=True)],
        [flow], plans, Selection(), seed=0, exact=False,  # type: ignore[arg-type]
    )  # fmt: skip
    times = {("a/slow", flow.name): 8.0, ("a/quick", flow.name): 0.1}
    order = sorted(groups, key=lambda group: -_expected(group, times))
    assert order == [new, slow, quick]


def test_what_was_asked_for_comes_back_from_the_journal() -> None:
    asked = Asked(
        suites=("operators",), flows=("xnnpack_fp32", "coreai_*"), cases=("operators/add*",),
        shard="2/3", only=(("operators/add", "xnnpack_fp32"),), seed=7, stage_timeout=3.5,
        declared=("coreml_fp16=no such hardware",), command="edgeproof run",
    )  # fmt: skip
    assert Asked.from_json(json.loads(json.dumps(asdict(asked)))) == asked


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--flow", "portable_fp32"), "run needs --suite and --flow"),
        (("--suite", "operators"), "run needs --suite and --flow"),
        (("--suite", "operator", "--flow", "portable_fp32"), "did you mean operators?"),
        (("--suite", "operators", "--flow", "portable"), "portable_fp32"),
        (("--suite", "operators", "--flow", "portable_fp32", "--shard", "9/8"), "no part of a whole"),
        (("--suite", "operators", "--flow", "portable_fp32", "--shard", "0/8"), "no part of a whole"),
        (("--suite", "operators", "--flow", "portable_fp32", "--shard", "half"), "no part of a whole"),
        (
            ("--suite", "operators", "--flow", "portable_fp32", "--cached", "--subject", "current"),
            "--cached cannot tell",
        ),
        (("--resume", "r.json", "--suite", "operators"), "leave the other options out"),
        (("--resume", "r.json", "--json", "s.json"), "leave the other options out"),
        (("--resume", "r.json", "--seed", "3"), "leave the other options out"),
        (("--resume", "r.json"), "the run ended, or was never begun"),
        (("--suite", "operators", "--flow", "portable_fp32", "--failed-from", "r.json"), "cannot be read"),
    ],
)  # fmt: skip
def test_wrong_use(
    arguments: tuple[str, ...], said: str, tmp_path: Path, own_cache: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    ran = edgeproof("run", *arguments)
    assert ran.returncode == 2, ran.stderr
    assert said in " ".join(ran.stderr.split())
    assert "Traceback" not in ran.stderr


def test_the_report_whose_failures_are_run_again_may_be_written_anew(
    tmp_path: Path, own_cache: Path
) -> None:
    """It is read before it is removed, and not removed where it cannot be used."""
    report = tmp_path / "r.json"
    report.write_text('{"cells": [{"case": "a", "flow": "b", "verdict": "passed"}]}')
    ran = edgeproof(
        "run", "--suite", "operators", "--flow", "portable_fp32",
        "--failed-from", str(report), "--json", str(report),
    )  # fmt: skip
    assert ran.returncode == 2
    assert "nothing to run again" in ran.stderr
    assert report.exists()
