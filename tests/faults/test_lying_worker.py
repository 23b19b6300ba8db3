"""A worker that lies, babbles or breaks off: whatever it says, nothing passes that was not proved.

The host is the real one, with real pipes; the worker is a script that says what a test gives it.
"""

from __future__ import annotations

import json
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from edgeproof.flows.registry import all_flows
from edgeproof.gate.rules import rule
from edgeproof.host import process
from edgeproof.host.process import Limits, WorkerDied, WorkerProcess
from edgeproof.host.run import Outcome, SubjectPlan, run_cells
from edgeproof.plan.case import Case, Source
from edgeproof.plan.cell import Cell, Result
from edgeproof.plan.stack import stacks_for
from edgeproof.plan.stage import Stage, Verdict
from edgeproof.plan.subject import Contents, Subject
from edgeproof.report.document import document
from edgeproof.report.terminal import console, show

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the fake worker is a script")

CASE = Case(id="user/net", source=Source.FILE, target="net.py:build")
OTHER = Case(id="user/other", source=Source.FILE, target="other.py:build")

FAKE = """#!{python} -S
import json, os, sys, time
said = json.loads({said!r})
print(said["ready"], flush=True)
for line in sys.stdin:
    request = json.loads(line)
    if request["do"] == "exit":
        break
    for line in said["lines"].get(request["cell"], []):
        if line == "CLOSE":
            os.close(1)
            time.sleep(60)
        elif line == "LEAVE":
            os._exit(7)
        elif line == "LATER":
            sys.stdin.readline()
            os._exit(7)
        elif line == "DIE SLOWLY":
            with open(sys.argv[-1], "w") as crash:
                crash.write("Fatal Python error: Segmentation fault\\n")
            time.sleep(60)
        elif line == "WAIT":
            time.sleep(60)
        else:
            os.write(1, line.encode("latin-1") + b"\\n")
"""

STAGES = tuple(stage.value for stage in Stage if stage is not Stage.STRESS)

CONTENTS = Contents(
    executorch="1.5.1",
    wheel_sha256=None,
    packages={},
    python="3.11.0",
    implementation="CPython",
    system="Linux",
    machine="x86_64",
    os="",
    libc="",
    cpu="",
    cpu_flags=(),
    cpus=1,
    memory_bytes=0,
    site="",
)

BASE = stacks_for("1.5.1")["base"]


class Silent:
    def said(self, line: str) -> None: ...
    def started(self, cell: Cell) -> None: ...
    def reached(self, cell: Cell, stage: Stage) -> None: ...
    def ended(self, result: Result) -> None: ...


def cell_of(flow: str = "portable_fp32", case: Case = CASE) -> Cell:
    return Cell(case=case, flow=all_flows()[flow], subject="base/executorch-1.5.1/py3.11", seed=1)


def row(**changes: Any) -> dict[str, Any]:
    """An output that is right; a value of ``None`` leaves it out."""
    whole = {
        "output": "[0]",
        "point": "example",
        "problem": "",
        "shape": [2, 3],
        "dtype": "float32",
        "exact": False,
        "max_abs": 1e-7,
        "max_rel": 1e-7,
        "sqnr_db": 140.0,
        "rms_error": 1e-7,
        "required": 1e-7,
        "limit_rms": 1e-5,
        "limit": 1e-5,
        "witnesses": [],
        **changes,
    }
    return {key: value for key, value in whole.items() if value is not None}


def told(
    cell: Cell,
    *,
    stages: Iterable[str] = STAGES,
    skipped: Iterable[str] = ("quantize",),
    outputs: Any = None,
    outcome: str = "done",
    evidence: Mapping[str, Any] | None = None,
    **ending: Any,
) -> list[str]:
    """What an honest worker says of a cell, but for what is given."""
    events: list[dict[str, Any]] = [{"event": "taken"}, {"event": "imported", "seconds": 0.1}]
    for stage in stages:
        events.append({"event": "stage_started", "stage": stage})
        events.append(
            {
                "event": "stage_ended",
                "stage": stage,
                "seconds": 0.1,
                "shared": False,
                "skipped": stage in skipped,
            }
        )
    measured = {
        "outputs": [row()] if outputs is None else outputs,
        "compared": {"points": ["example"], "outputs": 1},
        "nodes": 1,
    }
    events.append(
        {
            "event": "ended",
            "stage": "compare",
            "outcome": outcome,
            "evidence": {**measured, **(evidence or {})},
            **ending,
        }
    )
    events.append({"event": "idle"})
    return [json.dumps({"cell": cell.id, **event}) for event in events]


Run = Callable[..., Outcome]


@pytest.fixture
def run(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs cells with a worker that says, for each, the lines that are given for its id."""
    monkeypatch.setattr(process, "_GRACE_SECONDS", 0.3)
    monkeypatch.setattr(process, "START_SECONDS", 20.0)

    def go(
        lines: Mapping[str, list[str]],
        *,
        cells: Iterable[Cell] | None = None,
        ready: str = '{"event": "ready"}',
        stage_timeout: float = 20.0,
    ) -> Outcome:
        script = tmp_path / "python"
        said = json.dumps({"ready": ready, "lines": lines})
        script.write_text(FAKE.format(python=sys.executable, said=said))
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        subject = Subject(stack="base", python=script, env={}, managed=True, contents=CONTENTS)
        asked = list(cells or [cell_of()])
        began = time.monotonic()
        outcome = run_cells(
            [((cell,),) for cell in asked],
            [SubjectPlan(stack=BASE, id=subject.id, prepare=lambda _: subject)],
            workers=1,
            watcher=Silent(),
            limits=Limits(stage=stage_timeout),
            declared={},
        )
        assert time.monotonic() - began < 15
        report_on(outcome)
        return outcome

    return go


def report_on(outcome: Outcome) -> None:
    """What was said must also not break the reports."""
    ruling = rule(outcome.ledger)
    commands = {cell.id: "edgeproof check" for cell in outcome.ledger.asked}
    report = document(outcome, ruling, command="edgeproof", seed=0, reproduce=commands)
    json.dumps(report, allow_nan=False)
    to = console()
    to.file = sys.stdout
    show(to, outcome, ruling, commands)


def only(outcome: Outcome) -> Result:
    (result,) = outcome.ledger
    return result


def test_the_honest_worker_passes(run: Run) -> None:
    """Else the tests below would prove nothing."""
    cell = cell_of()
    assert only(run({cell.id: told(cell)})).verdict is Verdict.PASSED


def test_a_worker_whose_crash_handler_hangs_is_crashed_soon_not_timed_out(run: Run) -> None:
    """As torch's does after a crash inside malloc, whose lock it then waits for."""
    cell = cell_of()
    began = time.monotonic()
    result = only(run({cell.id: [*told(cell)[:2], "DIE SLOWLY"]}, stage_timeout=600.0))
    assert time.monotonic() - began < 10
    assert result.verdict is Verdict.CRASHED
    assert result.crash is not None
    assert result.crash["signal"] == "SIGSEGV"
    assert "its handler hung" in result.reason


def test_a_fault_of_the_host_keeps_what_was_found_before_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = cell_of(), cell_of(case=OTHER)
    real = process.judge

    def judge(cell: Cell, ended: Any) -> Result:
        if cell == bad:
            raise ZeroDivisionError("seeded")
        return real(cell, ended)

    monkeypatch.setattr(process, "judge", judge)
    outcome = run({cell.id: told(cell) for cell in (good, bad)}, cells=[good, bad])
    assert [r.verdict for r in outcome.ledger] == [Verdict.PASSED, Verdict.NOT_RUN]
    ruling = rule(outcome.ledger, fault=outcome.fault)
    assert ruling.exit_code == 5
    assert "edgeproof itself failed: ZeroDivisionError: seeded" in ruling.reasons


UNPROVED: dict[str, tuple[Callable[[Cell], list[str]], Stage, str]] = {
    "no stages": (partial(told, stages=()), Stage.BUILD, "unproved"),
    "a stage is left out": (
        partial(told, stages=[s for s in STAGES if s != "run"]),
        Stage.RUN,
        "unproved",
    ),
    "it stops early": (partial(told, stages=STAGES[:-1]), Stage.COMPARE, "unproved"),
    "it skips the run": (partial(told, skipped=("quantize", "run")), Stage.RUN, "unproved"),
    "it skips the comparison": (partial(told, skipped=STAGES), Stage.BUILD, "unproved"),
    "no outputs": (partial(told, outputs=[]), Stage.COMPARE, "vacuous"),
    "outputs are missing": (
        partial(told, evidence={"outputs": None}),
        Stage.COMPARE,
        "unproved",
    ),
    "outputs are text": (partial(told, outputs="all right"), Stage.COMPARE, "unproved"),
    "an output is text": (partial(told, outputs=["all right"]), Stage.COMPARE, "unproved"),
    "an output is empty": (partial(told, outputs=[{}]), Stage.COMPARE, "unproved"),
    "only constants": (
        partial(told, outputs=[{"output": "[0]", "problem": "", "constant": True}]),
        Stage.COMPARE,
        "vacuous",
    ),
    "a constant in name": (partial(told, outputs=[{"constant": "yes"}]), Stage.COMPARE, "unproved"),
    "a problem": (partial(told, outputs=[row(problem="is off")]), Stage.COMPARE, "mismatch"),
    "a problem in the second output": (
        partial(told, outputs=[row(), row(problem="is off")]),
        Stage.COMPARE,
        "mismatch",
    ),
    "a witness": (partial(told, outputs=[row(witnesses=["zeros"])]), Stage.COMPARE, "vacuous"),
    "an unknown witness": (partial(told, outputs=[row(witnesses=[1])]), Stage.COMPARE, "vacuous"),
    "no witnesses were sought": (
        partial(told, outputs=[row(witnesses=None)]),
        Stage.COMPARE,
        "unproved",
    ),
    "exact but off": (
        partial(told, outputs=[row(exact=True, max_abs=1)]),
        Stage.COMPARE,
        "unproved",
    ),
    "it cannot run here": (
        partial(told, stages=STAGES[:6], evidence={"cannot_run": "no such hardware"}),
        Stage.LOAD,
        "unproved",
    ),
    "it cannot run, in no words": (
        partial(told, stages=STAGES[:6], evidence={"cannot_run": ""}),
        Stage.LOAD,
        "unproved",
    ),
    "an unknown outcome": (partial(told, outcome="wonderful"), Stage.COMPARE, "unproved"),
    "an empty outcome": (partial(told, outcome=""), Stage.COMPARE, "unproved"),
    "it raised": (partial(told, outcome="raised", problem="oh"), Stage.COMPARE, "raised"),
}
for _name in ("rms_error", "required", "limit_rms", "limit", "problem"):
    UNPROVED[f"{_name} is missing"] = (
        partial(told, outputs=[row(**{_name: None})]),
        Stage.COMPARE,
        "unproved",
    )
for _name, _value in (
    ("rms_error", 1e-3),
    ("required", 1e-3),
    ("rms_error", "nan"),
    ("required", "nan"),
    ("rms_error", -1),
    ("rms_error", [1]),
    ("limit_rms", "inf"),
    ("limit", "inf"),
    ("limit", "nan"),
    ("limit", -1),
):
    UNPROVED[f"{_name} is {_value}"] = (
        partial(told, outputs=[row(**{_name: _value})]),
        Stage.COMPARE,
        "unproved",
    )


@pytest.mark.parametrize("lie", UNPROVED)
def test_what_was_not_proved_fails(run: Run, lie: str) -> None:
    says, stage, cause = UNPROVED[lie]
    cell = cell_of()
    result = only(run({cell.id: says(cell)}))
    assert (result.verdict, result.stage, result.cause) == (Verdict.FAILED, stage, cause)
    assert result.reason


COMPARED = {
    "nothing is said": None,
    "as text": "all",
    "no points": {"outputs": 1},
    "no number": {"points": ["example"]},
    "another number": {"points": ["example"], "outputs": 2},
    "none": {"points": ["example"], "outputs": 0},
    "the number as text": {"points": ["example"], "outputs": "1"},
    "a point is missing": {"points": ["example", "largest"], "outputs": 1},
    "another point": {"points": ["largest"], "outputs": 1},
    "no point at all": {"points": [], "outputs": 1},
    "points as a number": {"points": 1, "outputs": 1},
}


@pytest.mark.parametrize("wrong", COMPARED)
def test_every_output_must_be_compared_at_every_point(run: Run, wrong: str) -> None:
    cell = cell_of()
    result = only(run({cell.id: told(cell, evidence={"compared": COMPARED[wrong]})}))
    assert (result.verdict, result.stage) == (Verdict.FAILED, Stage.COMPARE)
    assert "not every output was compared at every point" in result.reason


def test_an_output_that_is_told_of_twice_does_not_stand_for_another(run: Run) -> None:
    cell = cell_of()
    two = {"compared": {"points": ["example"], "outputs": 2}}
    twice = only(run({cell.id: told(cell, outputs=[row(), row()], evidence=two)}))
    assert (twice.verdict, twice.cause) == (Verdict.FAILED, "unproved")
    both = [row(), row(output="[1]")]
    assert only(run({cell.id: told(cell, outputs=both, evidence=two)})).verdict is Verdict.PASSED


def test_a_pass_without_anything_delegated_fails(run: Run) -> None:
    cell = cell_of("xnnpack_fp32")
    for evidence in ({}, {"delegated_nodes": 0}):
        result = only(run({cell.id: told(cell, evidence=evidence)}, cells=[cell]))
        assert (result.verdict, result.cause) == (Verdict.FAILED, "not_delegated")
        assert "no node of the graph was delegated" in result.reason


NEAR = {"output": "[0]", "point": "example", "problem": "", "error": 0.1, "limit": 0.5}
QUANTIZED = {
    "exported": [row()],
    "quantized": [NEAR],
    "quantized_nodes": 4,
    "delegated_nodes": 1,
}


def test_the_honest_quantized_flow_passes(run: Run) -> None:
    cell = cell_of("xnnpack_int8_static")
    lines = told(cell, skipped=(), evidence=QUANTIZED)
    assert only(run({cell.id: lines}, cells=[cell])).verdict is Verdict.PASSED
    skipped = only(run({cell.id: told(cell, evidence=QUANTIZED)}, cells=[cell]))
    assert (skipped.verdict, skipped.stage) == (Verdict.FAILED, Stage.QUANTIZE)


@pytest.mark.parametrize(
    "exported", [None, [], "fine", [{}], [row(rms_error=1.0)], [row(witnesses=["other_input"])]]
)
def test_a_quantized_flow_must_prove_its_export(run: Run, exported: Any) -> None:
    cell = cell_of("xnnpack_int8_static")
    lines = told(cell, skipped=(), evidence={**QUANTIZED, "exported": exported})
    result = only(run({cell.id: lines}, cells=[cell]))
    assert (result.verdict, result.stage) == (Verdict.FAILED, Stage.EXPORT)


@pytest.mark.parametrize(
    "quantized",
    [None, [], "fine", [{}], [NEAR, NEAR]]
    + [
        [{**NEAR, **wrong}]
        for wrong in (
            {"error": 0.6},
            {"error": "nan"},
            {"error": None},
            {"error": -1},
            {"limit": "inf"},
            {"limit": "nan"},
            {"problem": None},
            {"problem": "is off"},
            {"point": "largest"},
            {"constant": True},
        )
    ],
)
def test_a_quantized_flow_must_prove_its_quantized_module(run: Run, quantized: Any) -> None:
    cell = cell_of("xnnpack_int8_static")
    lines = told(cell, skipped=(), evidence={**QUANTIZED, "quantized": quantized})
    result = only(run({cell.id: lines}, cells=[cell]))
    assert (result.verdict, result.stage) == (Verdict.FAILED, Stage.QUANTIZE)
    assert "the quantized module is not the module" in result.reason


@pytest.mark.parametrize("nodes", [None, 0])
def test_a_quantized_flow_must_have_quantized_something(run: Run, nodes: int | None) -> None:
    cell = cell_of("xnnpack_int8_static")
    evidence = {key: value for key, value in QUANTIZED.items() if key != "quantized_nodes"}
    evidence |= {} if nodes is None else {"quantized_nodes": nodes}
    result = only(run({cell.id: told(cell, skipped=(), evidence=evidence)}, cells=[cell]))
    assert (result.verdict, result.stage) == (Verdict.FAILED, Stage.QUANTIZE)
    early = told(cell, skipped=(), stages=STAGES[:3], evidence=evidence)
    result = only(run({cell.id: early}, cells=[cell]))
    if nodes == 0:
        assert (result.verdict, result.declared) == (Verdict.SKIPPED, False)
        assert result.cause == "nothing_to_quantize"
    else:
        assert result.verdict is Verdict.FAILED


def test_only_what_is_declared_in_the_flow_cannot_run(run: Run) -> None:
    cell = cell_of("coreml_fp32")
    if cell.flow.runs_here():
        pytest.skip("Core ML runs here")
    row = json.loads(told(cell)[-2])["evidence"]["outputs"]
    excuse = {"cannot_run": cell.flow.cannot_run, "exported": row, "delegated_nodes": 1}
    honest = only(run({cell.id: told(cell, stages=STAGES[:6], evidence=excuse)}, cells=[cell]))
    assert (honest.verdict, honest.declared) == (Verdict.NOT_RUN, True)
    for stages in (STAGES[:5], STAGES[:7], []):
        result = only(run({cell.id: told(cell, stages=stages, evidence=excuse)}, cells=[cell]))
        assert result.verdict is Verdict.FAILED
    for exported in ([], None, [{**row[0], "problem": "is another model"}],
                     [{**row[0], "witnesses": ["other_input"]}], [*row, *row]):  # fmt: skip
        wrong = {**excuse, "exported": exported}
        result = only(run({cell.id: told(cell, stages=STAGES[:6], evidence=wrong)}, cells=[cell]))
        assert (result.verdict, result.declared) == (Verdict.FAILED, False)
        assert "exported float model is not the module" in result.reason
    result = only(
        run(
            {cell.id: told(cell, stages=STAGES[:6], evidence={**excuse, "delegated_nodes": 0})},
            cells=[cell],
        )
    )
    assert (result.verdict, result.declared) == (Verdict.FAILED, False)
    assert "no node of the graph was delegated" in result.reason
    excuse = {"cannot_run": "I would rather not", "exported": row, "delegated_nodes": 1}
    result = only(run({cell.id: told(cell, stages=STAGES[:6], evidence=excuse)}, cells=[cell]))
    assert result.verdict is Verdict.FAILED


def test_a_quantized_flow_that_only_lowers_here_must_prove_both(run: Run) -> None:
    cell = cell_of("coreml_fp32")
    if cell.flow.runs_here():
        pytest.skip("Core ML runs here")
    cell = replace(cell, flow=replace(cell.flow, quantized=True))
    whole = {**QUANTIZED, "cannot_run": cell.flow.cannot_run}

    def ended(evidence: Mapping[str, Any]) -> Result:
        lines = told(cell, stages=STAGES[:6], skipped=(), evidence=evidence)
        return only(run({cell.id: lines}, cells=[cell]))

    assert (ended(whole).verdict, ended(whole).declared) == (Verdict.NOT_RUN, True)
    for name in ("exported", "quantized", "quantized_nodes", "compared"):
        lacking = {key: value for key, value in whole.items() if key != name}
        if name == "compared":
            lacking["compared"] = None
        assert ended(lacking).verdict is Verdict.FAILED, name


def _twice(cell: Cell, stage: str) -> list[str]:
    return told(cell, stages=[*STAGES[: STAGES.index(stage) + 1], *STAGES[STAGES.index(stage) :]])


def _say(cell: Cell, *events: Mapping[str, Any]) -> list[str]:
    return [json.dumps({"cell": cell.id, **event}) for event in ({"event": "taken"}, *events)]


def _foreign(cell: Cell) -> list[str]:
    return told(cell_of(case=OTHER))


def _without(cell: Cell, key: str) -> list[str]:
    lines = told(cell)
    event = json.loads(lines[-2])
    del event[key]
    return [*lines[:-2], json.dumps(event), lines[-1]]


BROKEN: dict[str, tuple[Callable[[Cell], list[str]], str]] = {
    "no JSON": (lambda cell: ["Segmentation fault"], "it said 'Segmentation fault', which is no"),
    "bytes that are no text": (lambda cell: ["\xff\xfe\x00"], "which is no JSON"),
    "NaN": (lambda cell: _say(cell, {"event": "imported", "seconds": float("nan")}), "no JSON"),
    "JSON that is no object": (lambda cell: ["[1, 2]"], "where taken was due"),
    "a number": (lambda cell: ["3"], "where taken"),
    "deep nesting": (lambda cell: ["[" * 100_000], "which is no JSON"),
    "an event without a kind": (lambda cell: ["{}"], "where taken"),
    "an unknown event": (lambda cell: _say(cell, {"event": "passed"}), "where imported"),
    "a kind that is a list": (lambda cell: _say(cell, {"event": []}), "where imported"),
    "another cell's answer": (_foreign, "it answered for 'user/other portable_fp32"),
    "an answer for no cell": (lambda cell: ['{"event": "taken"}'], "it answered for None"),
    "a stage twice": (partial(_twice, stage="run"), "it started run after run"),
    "the last stage twice": (partial(_twice, stage="compare"), "it started compare after compare"),
    "stages out of order": (
        partial(told, stages=["build", "export", "eager"]),
        "it started eager after export",
    ),
    "an unknown stage": (partial(told, stages=["ponder"]), "it spoke of the stage 'ponder'"),
    "a stage that ends unstarted": (
        lambda cell: _say(cell, {"event": "stage_ended", "stage": "build", "seconds": 1}),
        "it ended build, which was not under way",
    ),
    "a stage inside another": (
        lambda cell: _say(
            cell,
            {"event": "stage_started", "stage": "build"},
            {"event": "stage_started", "stage": "eager"},
        ),
        "it started eager after build",
    ),
    "no time": (
        lambda cell: _say(
            cell,
            {"event": "stage_started", "stage": "build"},
            {"event": "stage_ended", "stage": "build"},
        ),
        "it said that build took None seconds",
    ),
    "imports twice": (
        lambda cell: _say(cell, {"event": "imported"}, {"event": "imported"}),
        "it said twice that imports were done",
    ),
    "an end without evidence": (partial(_without, key="evidence"), "it ended its cell with"),
    "an end without outcome": (partial(_without, key="outcome"), "it ended its cell with"),
    "evidence that is a list": (
        lambda cell: _say(cell, {"event": "ended", "outcome": "done", "evidence": []}),
        "it ended its cell with",
    ),
    "a size that is text": (
        partial(told, evidence={"pte_bytes": "large"}),
        "its evidence has 'large' as pte_bytes",
    ),
    "two ends": (lambda cell: [*told(cell)[:-1], *told(cell)[-2:]], "where idle was due"),
}


@pytest.mark.parametrize("lie", BROKEN)
def test_what_breaks_the_protocol_is_the_end_of_that_cell_alone(run: Run, lie: str) -> None:
    """The next cell gets a worker of its own and passes."""
    says, why = BROKEN[lie]
    cell, after = cell_of(), cell_of("xnnpack_fp32")
    good = told(after, evidence={"delegated_nodes": 1})
    broken, passed = run({cell.id: says(cell), after.id: good}, cells=[cell, after]).ledger
    assert (broken.verdict, broken.cause) == (Verdict.CRASHED, "protocol")
    assert "it broke the protocol: it" in broken.reason
    assert why in broken.reason
    assert passed.verdict is Verdict.PASSED


@pytest.mark.parametrize(
    ("last", "why"),
    [
        ("CLOSE", "its pipe closed while it went on"),
        ("LEAVE", "it left with exit code 7"),
    ],
)
@pytest.mark.parametrize("after", [0, 1, 4, -2, -1])
def test_a_worker_that_breaks_off(run: Run, last: str, why: str, after: int) -> None:
    """Also after it said that all is well: the cell's end is when it is idle again."""
    cell = cell_of()
    result = only(run({cell.id: [*told(cell)[:after], last]}))
    assert (result.verdict, result.cause) == (Verdict.CRASHED, "crashed")
    assert why in result.reason


@pytest.mark.parametrize("after", [3, 5, -1])
def test_a_worker_that_falls_silent(run: Run, after: int) -> None:
    cell = cell_of()
    result = only(run({cell.id: [*told(cell)[:after], "WAIT"]}, stage_timeout=1.0))
    assert (result.verdict, result.cause) == (Verdict.TIMED_OUT, "timed_out")
    assert "took longer than 1 s" in result.reason


@pytest.mark.parametrize("last", [["LEAVE"], ["LATER"], ["Good bye!", "LEAVE"]])
@pytest.mark.parametrize("flow", ["portable_fp32", "coreml_fp32"])
def test_a_death_between_two_cells_is_that_of_the_cell_that_ended(
    run: Run, last: list[str], flow: str
) -> None:
    """It took what the cell left behind; the next cell has a worker of its own."""
    cell, after = cell_of(flow), cell_of("xnnpack_fp32")
    lines = told(cell)
    if cell.flow.cannot_run and not cell.flow.runs_here():
        rows = json.loads(lines[-2])["evidence"]["outputs"]
        excuse = {"cannot_run": cell.flow.cannot_run, "exported": rows, "delegated_nodes": 1}
        lines = told(cell, stages=STAGES[:6], evidence=excuse)
    good = told(after, evidence={"delegated_nodes": 1})
    first, second = run({cell.id: [*lines, *last], after.id: good}, cells=[cell, after]).ledger
    assert (first.verdict, first.declared) == (Verdict.CRASHED, False)
    assert "after its cell, before the next: it " in first.reason
    assert second.verdict is Verdict.PASSED


def test_a_death_after_the_last_cell_is_that_of_the_last_cell(run: Run) -> None:
    cell = cell_of()
    result = only(run({cell.id: [*told(cell), "LATER"]}))
    assert (result.verdict, result.cause) == (Verdict.CRASHED, "crashed")
    assert result.reason.endswith("it left with exit code 7")


@pytest.mark.parametrize("ready", ["Welcome!", "{}", '{"event": "ended"}', "null"])
def test_a_worker_that_never_was_ready(run: Run, ready: str) -> None:
    cell = cell_of()
    result = only(run({cell.id: told(cell)}, ready=ready))
    assert (result.verdict, result.cause) == (Verdict.CRASHED, "protocol")
    assert "the worker died before it could take a cell: it broke the protocol" in result.reason


def test_a_subject_in_which_no_worker_starts_is_broken(run: Run) -> None:
    cells = [cell_of(), cell_of("xnnpack_fp32"), cell_of(case=OTHER)]
    outcome = run({}, cells=cells, ready="{}")
    found = [(result.verdict, result.cause) for result in outcome.ledger]
    assert found == [(Verdict.CRASHED, "protocol"), *[(Verdict.NOT_RUN, "no_subject")] * 2]
    assert "no worker starts in" in str(next(iter(outcome.broken.values())))
    assert rule(outcome.ledger, broken_subjects=1).exit_code == 4


@pytest.mark.parametrize("content", [None, "", "#!/no/such/interpreter\n"])
def test_a_python_that_cannot_be_started(tmp_path: Path, content: str | None) -> None:
    python = tmp_path / "python"
    if content is not None:
        python.write_text(content)
        python.chmod(0o755)
    subject = Subject(stack="base", python=python, env={}, managed=True, contents=CONTENTS)
    with pytest.raises(WorkerDied, match="it could not be started"):
        WorkerProcess(subject, tmp_path, name="w", limits=Limits(), stop=threading.Event())
