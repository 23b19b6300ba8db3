"""Cells: case x flow x subject, what was found out about each, and how it ended."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edgeproof.plan.case import Case
from edgeproof.plan.flow import Flow
from edgeproof.plan.stage import Stage, Verdict


@dataclass(frozen=True, kw_only=True)
class Keep:
    """Where a worker is to keep a cell's program once it was found right, with inputs for how many turns."""

    folder: str
    turns: int


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One thing to be proved. ``subject`` is the id of the subject it runs in, ``mode`` how its program is
    stressed, if it is."""

    case: Case
    flow: Flow
    subject: str
    seed: int
    mode: str = ""
    keep: Keep | None = None

    @property
    def id(self) -> str:
        """``case flow subject``, unique in a run; with the mode where there is one."""
        return f"{self.case.id} {self.flow.name} {self.subject}" + (
            f" {self.mode}" if self.mode else ""
        )


def case_seed(case_id: str, run_seed: int) -> int:
    """The seed a case is built with: its own, whatever else runs, and another in another run."""
    digest = hashlib.sha256(f"{run_seed}:{case_id}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


@dataclass(frozen=True, kw_only=True)
class StageTime:
    """How long a stage took, in seconds. ``shared`` work was done by an earlier cell of the case."""

    stage: Stage
    seconds: float
    shared: bool = False
    skipped: bool = False


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a cell ended. ``cause`` is one word of docs/guide.md, ``reason`` a sentence for people.

    ``evidence`` is what the worker measured; ``stages`` those that ended. ``declared`` tells a
    ``not_run`` or ``skipped`` that was said beforehand, by the flow or by the user, from a fault.
    ``crash`` holds signal and stacks of a worker that died, ``log`` the last lines that were printed.
    ``cached`` tells what an earlier run found from what this one did.
    """

    cell: Cell
    verdict: Verdict
    stage: Stage | None = None
    cause: str = ""
    reason: str = ""
    mend: str = ""
    declared: bool = False
    stages: tuple[StageTime, ...] = ()
    evidence: Mapping[str, Any] = field(default_factory=dict)
    crash: Mapping[str, Any] | None = None
    log: str = ""
    cached: bool = False

    def to_json(self) -> dict[str, Any]:
        """All but the cell as plain JSON values."""
        return {
            "verdict": self.verdict.value,
            "declared": self.declared,
            "stage": self.stage.value if self.stage else None,
            "cause": self.cause,
            "reason": self.reason,
            "mend": self.mend,
            "stages": [
                {
                    "stage": timed.stage.value,
                    "seconds": timed.seconds,
                    "shared": timed.shared,
                    "skipped": timed.skipped,
                }
                for timed in self.stages
            ],
            "evidence": dict(self.evidence),
            "crash": dict(self.crash) if self.crash else None,
            "log": self.log,
            "cached": self.cached,
        }

    @classmethod
    def from_json(cls, cell: Cell, data: Mapping[str, Any]) -> Result:
        """The inverse of ``to_json``. Raises ``KeyError``, ``TypeError`` or ``ValueError``."""
        return cls(
            cell=cell,
            verdict=Verdict(data["verdict"]),
            declared=data["declared"] is True,
            stage=Stage(data["stage"]) if data["stage"] else None,
            cause=str(data["cause"]),
            reason=str(data["reason"]),
            mend=str(data["mend"]),
            stages=tuple(
                StageTime(**{**timed, "stage": Stage(timed["stage"])}) for timed in data["stages"]
            ),
            evidence=dict(data["evidence"]),
            crash=data["crash"],
            log=str(data["log"]),
            cached=data["cached"] is True,
        )

    def seconds(self, stage: Stage) -> float | None:
        """How long a stage took in this cell, ``None`` when it did not end or the flow has no such stage."""
        for timed in self.stages:
            if timed.stage is stage:
                return None if timed.skipped else timed.seconds
        return None
