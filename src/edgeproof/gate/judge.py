"""From what a worker measured to the verdict of its cell.

The worker only measures. Here a cell passes when every piece of the proof is there; whatever is missing
makes it fail, so that a worker that leaves something out cannot pass.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from edgeproof.plan.cell import Cell, Result, StageTime
from edgeproof.plan.stage import Stage, Verdict

_WITNESSES = {
    "zeros": "zeros would pass",
    "negated": "the wrong sign would pass",
    "other_input": "the answer to another input would pass",
    "faded": "the output is smaller than the rounding step of the input",
    "empty": "the output has no elements",
}


_BEFORE = (Stage.BUILD, Stage.EAGER)
"""What happens there is none of the flow's doing: a suite's case that raises there has no right answer."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What a worker said when a cell came to its end, and which stages it had told of before."""

    outcome: str
    stage: Stage | None
    problem: str
    evidence: Mapping[str, Any]
    stages: tuple[StageTime, ...]
    log: str


@dataclass(frozen=True, kw_only=True)
class _Wrong:
    """Why a cell that came to its end did not pass."""

    stage: Stage
    cause: str
    reason: str
    mend: str = ""


def judge(cell: Cell, ended: Ended) -> Result:
    """The result of a cell whose worker lived to tell its end."""

    def result(verdict: Verdict, stage: Stage | None, cause: str, **more: Any) -> Result:
        return Result(
            cell=cell,
            verdict=verdict,
            stage=stage,
            cause=cause,
            stages=ended.stages,
            evidence=ended.evidence,
            log="" if verdict is Verdict.PASSED or more.get("declared") else ended.log,
            **more,
        )

    if ended.outcome == "unavailable":
        return result(Verdict.NOT_RUN, None, "unavailable", reason=ended.problem)
    if ended.outcome == "raised" and not cell.case.whole and ended.stage in _BEFORE:
        said = f"the case itself cannot be run in eager PyTorch: {ended.problem}"
        return result(Verdict.SKIPPED, ended.stage, "no_reference", reason=said)
    if ended.outcome == "raised":
        return result(Verdict.FAILED, ended.stage, "raised", reason=ended.problem)
    if ended.outcome != "done":
        return result(
            Verdict.FAILED,
            ended.stage,
            "unproved",
            reason=f"the worker ended with {ended.outcome!r}",
        )
    if (
        cell.flow.quantized
        and ended.evidence.get("quantized_nodes") == 0
        and _first_unproved_stage(cell, ended.stages, Stage.QUANTIZE) is None
    ):
        return result(
            Verdict.SKIPPED,
            Stage.QUANTIZE,
            "nothing_to_quantize",
            reason="nothing to quantize: the flow's quantizer left the graph as it was",
            mend=f"leave {cell.flow.name} out for this model, or --declare-not-run "
            f"{cell.flow.name}=REASON",
        )
    lowers_only = (
        bool(cell.flow.cannot_run)
        and ended.evidence.get("cannot_run") == cell.flow.cannot_run
        and not cell.flow.runs_here()
        and _first_unproved_stage(cell, ended.stages, Stage.SERIALIZE) is None
    )
    wrong = _first_wrong(cell, ended, lowers_only=lowers_only)
    if wrong is not None:
        return result(
            Verdict.FAILED, wrong.stage, wrong.cause, reason=wrong.reason, mend=wrong.mend
        )
    if lowers_only:
        reason = cell.flow.cannot_run
        return result(Verdict.NOT_RUN, Stage.LOAD, "cannot_run", reason=reason, declared=True)
    # Told apart: the portable kernels answered, which says nothing about the backend.
    return result(
        Verdict.PASSED, None, "not_delegated" if _undelegated(cell, ended.evidence) else ""
    )


def _undelegated(cell: Cell, evidence: Mapping[str, Any]) -> bool:
    return bool(cell.flow.delegate) and not evidence.get("delegated_nodes")


def _first_wrong(cell: Cell, ended: Ended, *, lowers_only: bool) -> _Wrong | None:
    """What is wrong with the proof of a cell, or missing from it; ``None`` when it is whole.

    The exported float model is held to the module where the answer of the program cannot tell:
    quantized flows are compared with what export made, and flows that do not run here with nothing.
    """
    flow, evidence = cell.flow, ended.evidence
    if not lowers_only:
        last = Stage.STRESS if cell.keep else Stage.COMPARE
        unproved = _first_unproved_stage(cell, ended.stages, last)
        if unproved is not None:
            said = f"the worker did not say that {unproved} ended, once and in its turn"
            return _Wrong(stage=unproved, cause="unproved", reason=said)
    compared = evidence.get("compared")
    if flow.quantized and not evidence.get("quantized_nodes"):
        said = "the worker did not say how much was quantized"
        return _Wrong(stage=Stage.QUANTIZE, cause="unproved", reason=said)
    wrong = None
    if flow.quantized or lowers_only:
        said = "the exported float model is not the module: "
        wrong = _judge_rows(evidence.get("exported"), compared, Stage.EXPORT, said)
    if wrong is None and flow.quantized:
        wrong = _judge_rows(
            evidence.get("quantized"),
            compared,
            Stage.QUANTIZE,
            "the quantized module is not the module: ",
            mend="calibrate with inputs as they are in use, or take a flow of higher precision",
            within=_nearer_to_right,
        )
    if wrong is None and not lowers_only:
        wrong = _judge_rows(evidence.get("outputs"), compared, Stage.COMPARE)
    if wrong is None and _undelegated(cell, evidence) and cell.case.whole:
        said = "no node of the graph was delegated: the backend did nothing"
        wrong = _Wrong(stage=Stage.LOWER, cause="not_delegated", reason=said)
    return wrong


def _first_unproved_stage(cell: Cell, done: Sequence[StageTime], last: Stage) -> Stage | None:
    """The first stage that was not done exactly once and in its turn, up to ``last`` and no further."""
    wanted = list(Stage)[: list(Stage).index(last) + 1]
    for stage, timed in zip_longest(wanted, done):
        if stage is None:
            return timed.stage
        if timed is None or timed.stage is not stage:
            return stage
        if timed.skipped and (stage is not Stage.QUANTIZE or cell.flow.quantized):
            return stage
    return None


def _judge_rows(
    rows: Any,
    compared: Any,
    stage: Stage,
    said: str = "",
    *,
    mend: str = "",
    within: Callable[[Mapping[str, Any]], bool] | None = None,
) -> _Wrong | None:
    """What is wrong with the rows of a comparison, one for each output at each point that was tried.

    ``mend`` is for an output that differs; ``within`` is asked of each row instead of ``_within_limits``.
    """

    def wrong(cause: str, reason: str, mend: str = "") -> _Wrong:
        return _Wrong(stage=stage, cause=cause, reason=said + reason, mend=mend)

    if not isinstance(rows, list):
        return wrong("unproved", "the worker named no outputs")
    for row in rows:
        if not isinstance(row, Mapping):
            return wrong("unproved", f"the worker told of an output as {row!r}")
    for row in rows:
        if row.get("problem"):
            return wrong("mismatch", f"{_where(row)} {row['problem']}", mend)
    if all(row.get("constant") is True for row in rows):
        return wrong("vacuous", "no output is a tensor: there was nothing to compare")
    # Before the limits: those of a reference of zeros are infinite.
    told_apart = {
        str(row.get("output"))
        for row in rows
        if row.get("point") == "wider" and row.get("witnesses") == []
    }
    for row in rows:
        if row.get("point") in ("example", "wider") and str(row.get("output")) in told_apart:
            continue
        if row.get("witnesses") and isinstance(row["witnesses"], list):
            why = "; ".join(_WITNESSES.get(w, str(w)) for w in row["witnesses"])
            return wrong(
                "vacuous",
                f"comparing {_where(row)} proves nothing: {why}",
                "use trained weights and inputs that matter, or --condition for an untrained model",
            )
    for row in rows:
        if not (within or _within_limits)(row):
            return wrong("unproved", f"{_where(row)} was not measured, or is not within its limits")
    if not _complete(rows, compared):
        return wrong("unproved", "not every output was compared at every point that was tried")
    return None


def _where(row: Mapping[str, Any]) -> str:
    return f"output {row.get('output')} at the {row.get('point')} input"


def _complete(rows: Sequence[Mapping[str, Any]], compared: Any) -> bool:
    """Whether there is one row for each of the points and outputs that were to be ``compared``."""
    try:
        points, outputs = [str(point) for point in compared["points"]], compared["outputs"]
    except (KeyError, TypeError):
        return False
    each_once = Counter({(str(row.get("point")), str(row.get("output"))) for row in rows})
    at_each = Counter(point for point, _ in each_once)
    return (
        "example" in points
        and len(rows) == len(each_once)
        and dict(at_each) == dict.fromkeys(points, outputs)
    )


def _within_limits(row: Mapping[str, Any]) -> bool:
    """Whether the numbers of a row are all there and within their limits, whatever it says itself.

    A limit must be finite: within an infinite one lies everything.
    """
    if row.get("problem") != "":
        return False
    if row.get("constant") is True:
        return True
    try:
        if not isinstance(row["witnesses"], list):
            return False
        if row["exact"] is True:
            return float(row["max_abs"]) == 0
        limits = float(row["limit_rms"]), float(row["limit"])
        errors = float(row["rms_error"]), float(row["required"])
    except (KeyError, TypeError, ValueError):
        return False
    return all(0 <= error <= limit < math.inf for error, limit in zip(errors, limits, strict=True))


def _nearer_to_right(row: Mapping[str, Any]) -> bool:
    """Whether an output of the quantized module is nearer to that of the float one than to a wrong one."""
    if row.get("problem") != "":
        return False
    if row.get("constant") is True:
        return True
    try:
        return 0 <= float(row["error"]) <= float(row["limit"]) < math.inf
    except (KeyError, TypeError, ValueError):
        return False
