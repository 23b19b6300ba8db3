"""From what a worker measured to the verdict of its cell.

The worker only measures. Here a cell passes when every piece of the proof is there; whatever is missing
makes it fail, so that a worker that leaves something out cannot pass.
"""

from __future__ import annotations

import math
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


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What a worker said when a cell came to its end, and which stages it had told of before."""

    outcome: str
    stage: Stage | None
    problem: str
    evidence: Mapping[str, Any]
    stages: tuple[StageTime, ...]
    log: str


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
    if ended.outcome == "raised":
        return result(Verdict.FAILED, ended.stage, "raised", reason=ended.problem)
    if ended.outcome != "done":
        return result(
            Verdict.FAILED,
            ended.stage,
            "unproved",
            reason=f"the worker ended with {ended.outcome!r}",
        )
    if cell.flow.cannot_run and ended.evidence.get("cannot_run") == cell.flow.cannot_run:
        unproved = _first_unproved_stage(cell, ended.stages, Stage.SERIALIZE)
        if unproved is None and not cell.flow.runs_here():
            if not ended.evidence.get("delegated_nodes"):
                said = "nothing was delegated, so there is no payload that lowering could have got right"
                return result(Verdict.FAILED, Stage.LOWER, "unproved", reason=said)
            return _judge_export(ended.evidence.get("exported"), result) or result(
                Verdict.NOT_RUN,
                Stage.LOAD,
                "cannot_run",
                reason=cell.flow.cannot_run,
                declared=True,
            )
    unproved = _first_unproved_stage(cell, ended.stages, Stage.COMPARE)
    if unproved is not None:
        return result(
            Verdict.FAILED,
            unproved,
            "unproved",
            reason=f"the worker did not say that {unproved} ended, once and in its turn",
        )
    if cell.flow.quantized:
        wrong = _judge_export(ended.evidence.get("exported"), result)
        if wrong is not None:
            return wrong
    return _judge_outputs(ended.evidence.get("outputs"), result)


def _judge_export(exported: Any, result: Callable[..., Result]) -> Result | None:
    """The failure of a cell whose exported float model is not the module; ``None`` when it is.

    Asked where the answer of the program cannot tell: quantized flows are compared with what export
    made, and flows that do not run here with nothing.
    """
    wrong = _first_problem(exported) or _first_unproved(exported)
    if wrong is None:
        return None
    cause, reason = wrong
    said = f"the exported float model is not the module: {reason}"
    return result(Verdict.FAILED, Stage.EXPORT, cause, reason=said)


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


def _judge_outputs(outputs: Any, result: Callable[..., Result]) -> Result:
    def failed(cause: str, reason: str, **more: Any) -> Result:
        return result(Verdict.FAILED, Stage.COMPARE, cause, reason=reason, **more)

    wrong = _first_problem(outputs)
    if wrong is not None:
        return failed(*wrong)
    compared = [row for row in outputs if row.get("constant") is not True]
    if not compared:
        return failed("vacuous", "no output is a tensor: there was nothing to compare")
    # Before the limits: those of a reference of zeros are infinite.
    for row in compared:
        if row.get("witnesses") and isinstance(row["witnesses"], list):
            why = "; ".join(_WITNESSES.get(w, str(w)) for w in row["witnesses"])
            return failed(
                "vacuous",
                f"comparing {_where(row)} proves nothing: {why}",
                mend="use trained weights and inputs that matter, or --condition for an untrained model",
            )
    wrong = _first_unproved(outputs)
    return result(Verdict.PASSED, None, "") if wrong is None else failed(*wrong)


def _where(row: Mapping[str, Any]) -> str:
    return f"output {row.get('output')} at the {row.get('point')} input"


def _first_problem(rows: Any) -> tuple[str, str] | None:
    """Cause and reason of the first output that is wrong by what the worker says itself."""
    if not isinstance(rows, list):
        return "unproved", "the worker named no outputs"
    for row in rows:
        if not isinstance(row, Mapping):
            return "unproved", f"the worker told of an output as {row!r}"
    for row in rows:
        if row.get("problem"):
            return "mismatch", f"{_where(row)} {row['problem']}"
    return None


def _first_unproved(rows: Sequence[Mapping[str, Any]]) -> tuple[str, str] | None:
    """Cause and reason of the first output that was not measured, or not within its limits."""
    for row in rows:
        if not _within_limits(row):
            return "unproved", f"{_where(row)} was not measured, or is not within its limits"
    return None if rows else ("unproved", "the worker named no outputs")


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
