"""What a worker may say, read with distrust: the code under test runs in the same process.

One JSON object a line. Whatever is no such object, of an unknown kind, about another cell or out of turn
raises ``ProtocolBroken``, which the host takes for the death of that worker.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from typing import Any, TypeGuard

from edgeproof.plan.cell import StageTime
from edgeproof.plan.stage import Stage

_SHOWN = 200
_NUMBERS = ("nodes", "delegated_nodes", "quantized_nodes", "pte_bytes", "run_seconds")
"""Evidence that tables and the gate calculate with."""


class ProtocolBroken(Exception):
    """The worker said what no worker says. The message tells what, for people."""


def parse(line: str, *kinds: str) -> dict[str, Any]:
    """The event in a line. Raises ``ProtocolBroken`` unless it is of one of ``kinds``."""
    try:
        event = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise ProtocolBroken(f"it said {_shown(line)}, which is no JSON") from None
    if not isinstance(event, dict) or event.get("event") not in kinds:
        raise ProtocolBroken(f"it said {_shown(line)} where {' or '.join(kinds)} was due")
    return event


def _refuse(constant: str) -> None:
    """JSON has no NaN, though Python reads it: a report that holds one could not be read by others."""
    raise ValueError(constant)


class Conversation:
    """What is said about one cell, held to its order.

    First the worker takes the cell. Stages start in the order of ``Stage``, each once, and end before the
    next one starts; then the cell ends, once. That also bounds how long a worker can talk.
    """

    def __init__(self, cell: str) -> None:
        self._cell = cell
        self._open: Stage | None = None
        self._imported = False
        self.taken = False
        """Whether the worker took the cell: a death before that is none of this cell's."""
        self.stage: Stage | None = None
        """The latest stage that started."""
        self.stages: list[StageTime] = []
        """The stages that ended."""
        self.ended: dict[str, Any] | None = None
        """What was said at the cell's end."""

    def hear(self, line: str) -> str:
        """Take the next line and return its kind; ``idle`` is the last."""
        if not self.taken:
            event = parse(line, "taken")
        elif self.ended is not None:
            event = parse(line, "idle")
        else:
            event = parse(line, "imported", "stage_started", "stage_ended", "ended")
        if event.get("cell") != self._cell:
            raise ProtocolBroken(f"it answered for {_shown(event.get('cell'))}, not for its cell")
        kind = str(event["event"])
        if kind == "taken":
            self.taken = True
        elif kind == "imported":
            if self._imported or self.stage is not None:
                raise ProtocolBroken("it said twice that imports were done")
            self._imported = True
        elif kind == "stage_started":
            self._start(_stage(event))
        elif kind == "stage_ended":
            self._end(_stage(event), event)
        elif kind == "ended":
            self.ended = _checked_end(event)
        return kind

    def _start(self, stage: Stage) -> None:
        order = list(Stage)
        late = self.stage is not None and order.index(stage) <= order.index(self.stage)
        if self._open is not None or late:
            raise ProtocolBroken(f"it started {stage} after {self.stage}")
        self.stage = self._open = stage

    def _end(self, stage: Stage, event: Mapping[str, Any]) -> None:
        if stage is not self._open:
            raise ProtocolBroken(f"it ended {stage}, which was not under way")
        timed = _timed(event)
        self._open = None
        self.stages.append(timed)


class BundleTalk:
    """What is said about a bundle: it is taken, reaches stages, and ends with every cell in one place."""

    def __init__(self, name: str, cells: Collection[str]) -> None:
        self._name = name
        self._cells = set(cells)
        self.taken = False
        self.stage: Stage | None = None
        self.proved: dict[str, tuple[Mapping[str, Any], tuple[StageTime, ...]]] = {}
        """By cell, the evidence and the stages."""
        self.alone: dict[str, str] = {}
        """By cell, why the bundle proves nothing about it."""
        self._ended = False

    def hear(self, line: str) -> str:
        """Take the next line and return its kind; ``idle`` is the last."""
        if not self.taken:
            event = parse(line, "taken")
        elif self._ended:
            event = parse(line, "idle")
        else:
            event = parse(line, "bundle_reached", "bundle_ended")
        if event.get("cell") != self._name:
            raise ProtocolBroken(f"it answered for {_shown(event.get('cell'))}, not for its bundle")
        kind = str(event["event"])
        if kind == "taken":
            self.taken = True
        elif kind == "bundle_reached":
            self.stage = _stage(event)
        elif kind == "bundle_ended":
            self._end(event)
        return kind

    def _end(self, event: Mapping[str, Any]) -> None:
        proved, alone = event.get("proved"), event.get("alone")
        if not isinstance(proved, dict) or not isinstance(alone, dict):
            raise ProtocolBroken(f"it ended its bundle with {_shown(event)}")
        if sorted([*proved, *alone]) != sorted(self._cells):
            raise ProtocolBroken("it did not end its bundle with every cell once")
        for cell, said in proved.items():
            if not isinstance(said, dict) or not isinstance(said.get("stages"), list):
                raise ProtocolBroken(f"it proved a cell with {_shown(said)}")
            ended = _checked_end({"outcome": "done", "evidence": said.get("evidence")})
            self.proved[cell] = ended["evidence"], tuple(_timed(t) for t in said["stages"])
        self.alone = {cell: str(why) for cell, why in alone.items()}
        self._ended = True


def _timed(event: Any) -> StageTime:
    """A stage that ended, as it is told. Raises ``ProtocolBroken``."""
    if not isinstance(event, Mapping):
        raise ProtocolBroken(f"it told of a stage as {_shown(event)}")
    stage, seconds = _stage(event), event.get("seconds")
    if not _is_number(seconds) or seconds < 0:
        raise ProtocolBroken(f"it said that {stage} took {_shown(seconds)} seconds")
    return StageTime(
        stage=stage,
        seconds=float(seconds),
        shared=event.get("shared") is True,
        skipped=event.get("skipped") is True,
    )


def _checked_end(event: dict[str, Any]) -> dict[str, Any]:
    evidence = event.get("evidence")
    if not isinstance(event.get("outcome"), str) or not isinstance(evidence, dict):
        raise ProtocolBroken(f"it ended its cell with {_shown(event)}")
    for name in _NUMBERS:
        if name in evidence and not _is_number(evidence[name]):
            raise ProtocolBroken(f"its evidence has {_shown(evidence[name])} as {name}")
    if event.get("stage") is not None:
        event["stage"] = _stage(event)
    return event


def _stage(event: Mapping[str, Any]) -> Stage:
    try:
        return Stage(event["stage"])
    except (KeyError, ValueError, TypeError):
        raise ProtocolBroken(f"it spoke of the stage {_shown(event.get('stage'))}") from None


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _shown(value: Any) -> str:
    text = repr(value.strip() if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
