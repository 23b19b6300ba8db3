"""One worker slot: takes cells and bundles through worker processes, whatever these die of."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from edgeproof.host.process import WorkerDied, WorkerProcess
from edgeproof.plan.cell import Cell, Result
from edgeproof.plan.stage import Verdict

Task = tuple[Cell, ...]
"""One cell, or several of one flow to be proved as a bundle."""


class Host(Protocol):
    """What a slot needs of the run."""

    def start(self, cell: Cell) -> tuple[WorkerProcess | None, Result | None]: ...  # noqa: D102
    def record(self, result: Result) -> None: ...  # noqa: D102
    def tell(self, what: str, *args: Any) -> None: ...  # noqa: D102
    def stopped(self) -> bool: ...  # noqa: D102


class Slot:
    """Runs tasks in one worker after the other.

    The last results of a worker are held until it took another task, or left as it should: should it die
    in between, that is the doing of the cell that ended. A bundle's cells are then run alone.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._worker: WorkerProcess | None = None
        self._held: list[Result] = []
        self._tasks: deque[Task] = deque()

    def run(self, tasks: Sequence[Task]) -> None:
        """Give every cell of the tasks its result."""
        self._tasks.extend(tasks)
        while self._tasks and not self._host.stopped():
            task = self._tasks.popleft()
            if len(task) > 1:
                self._bundle(task)
            else:
                self._cell(task[0])

    def close(self) -> None:
        """Let the worker leave. What it leaves wrong is of the cells that it ran last."""
        while self._worker is not None and not self._host.stopped():
            worker, self._worker = self._worker, None
            try:
                worker.close()
            except WorkerDied as died:
                self._settle(died)
            self.run(())  # a bundle that it died of
        self._settle()

    def abandon(self) -> None:
        """End the worker now, and keep the results that came of it."""
        self._settle()
        if self._worker is not None:
            self._worker.kill()

    def _settle(self, died: WorkerDied | None = None) -> None:
        held, self._held = self._held, []
        for result in reversed(held):
            if died is None:
                self._host.record(result)
            elif "bundle" in result.evidence:
                self._tasks.appendleft((result.cell,))
            else:
                self._host.record(_died_after(result, died))

    def _cell(self, cell: Cell) -> None:
        self._host.tell("started", cell)
        result: Result | None = None
        while result is None:
            if self._worker is None:
                self._worker, result = self._host.start(cell)
                continue
            reached = partial(self._host.tell, "reached", cell)
            try:
                result = self._worker.run(cell, on_taken=self._settle, on_stage=reached)
            except WorkerDied as died:
                self._worker = None
                self._settle(died)
        self._held.append(result)
        if result.verdict in (Verdict.CRASHED, Verdict.TIMED_OUT):
            self._settle()
            self._worker = None

    def _bundle(self, task: Task) -> None:
        """What the bundle proves is recorded; the other cells are run alone, or in halves where it died."""
        if self._worker is None:
            self._worker, failed = self._host.start(task[0])
            if failed is not None:
                self._split(task)
                return
        assert self._worker is not None
        for cell in task:
            self._host.tell("started", cell)
        reached = partial(self._host.tell, "reached", task[0])
        taken = False

        def on_taken() -> None:
            nonlocal taken
            taken = True
            self._settle()

        try:
            passed = self._worker.run_bundle(task, on_taken=on_taken, on_stage=reached)
        except WorkerDied as died:
            self._worker = None
            if taken:
                self._split(task)
            else:
                self._tasks.appendleft(task)
                self._settle(died)
            return
        self._held.extend(passed)
        proved = {result.cell.id for result in passed}
        self._tasks.extendleft((cell,) for cell in reversed(task) if cell.id not in proved)

    def _split(self, task: Task) -> None:
        half = len(task) // 2
        self._tasks.extendleft((task[half:], task[:half]))


def _died_after(result: Result, died: WorkerDied) -> Result:
    """What becomes of a result whose worker did not live to take another cell."""
    return replace(
        result,
        verdict=Verdict.CRASHED,
        stage=result.stages[-1].stage if result.stages else None,
        cause=died.cause,
        reason=f"the worker {died.what} after its cell, before the next: {died.crash['how']}",
        mend="",
        declared=False,
        crash=died.crash,
        log=str(died.crash["log"]),
    )
