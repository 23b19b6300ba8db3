"""From what a worker measured to the verdict of its cell.

The worker only measures. Here a cell passes when every piece of the proof is there; whatever is missing
makes it fail, so that a worker that leaves something out cannot pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
    done = [timed.stage for timed in ended.stages]
    if cell.flow.cannot_run and ended.evidence.get("cannot_run") == cell.flow.cannot_run:
        missing = _first_missing(done, Stage.SERIALIZE)
        if missing is None and not cell.flow.runs_here():
            return result(
                Verdict.NOT_RUN,
                Stage.LOAD,
                "cannot_run",
                reason=cell.flow.cannot_run,
                declared=True,
            )
    missing = _first_missing(done, Stage.COMPARE)
    if missing is not None:
        return result(
            Verdict.FAILED,
            missing,
            "unproved",
            reason=f"the worker never said that {missing} ended",
        )
    return _judge_outputs(ended.evidence.get("outputs"), result)


def _first_missing(done: Sequence[Stage], last: Stage) -> Stage | None:
    """The first stage up to ``last`` that did not end, or ended out of order or twice."""
    wanted = list(Stage)[: list(Stage).index(last) + 1]
    for index, stage in enumerate(wanted):
        if index >= len(done) or done[index] is not stage:
            return stage
    return None


def _judge_outputs(outputs: Any, result: Callable[..., Result]) -> Result:
    rows = outputs if isinstance(outputs, list) else []
    compared = [row for row in rows if not row.get("constant")]
    if not compared:
        return result(
            Verdict.FAILED,
            Stage.COMPARE,
            "vacuous",
            reason="no output is a tensor: there was nothing to compare",
        )
    for row in rows:
        where = f"output {row.get('output')} at the {row.get('point')} input"
        if row.get("problem"):
            return result(
                Verdict.FAILED, Stage.COMPARE, "mismatch", reason=f"{where} {row['problem']}"
            )
        if not _within_limits(row):
            return result(
                Verdict.FAILED,
                Stage.COMPARE,
                "unproved",
                reason=f"{where} was not measured, or is not within its limits",
            )
    for row in compared:
        if row["witnesses"]:
            why = "; ".join(_WITNESSES.get(w, w) for w in row["witnesses"])
            return result(
                Verdict.FAILED,
                Stage.COMPARE,
                "vacuous",
                reason=f"comparing output {row['output']} at the {row['point']} input proves nothing: {why}",
                mend="use trained weights and inputs that matter, or --condition for an untrained model",
            )
    return result(Verdict.PASSED, None, "")


def _within_limits(row: Mapping[str, Any]) -> bool:
    """Whether the numbers of a row are all there and within their limits, whatever it says itself."""
    if row.get("constant"):
        return True
    try:
        if not isinstance(row["witnesses"], list):
            return False
        if row["exact"]:
            return float(row["max_abs"]) == 0
        return float(row["rms_error"]) <= float(row["limit_rms"]) and float(
            row["required"]
        ) <= float(row["limit"])
    except (KeyError, TypeError, ValueError):
        return False
