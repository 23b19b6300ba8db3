"""A run: cells spread over workers, each subject prepared once, every cell given its verdict."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from edgeproof.errors import EdgeproofError, SubjectError
from edgeproof.host import adopted, cache
from edgeproof.host.journal import Journal
from edgeproof.host.process import Interrupted, Limits, WorkerDied, WorkerProcess
from edgeproof.host.slot import Slot, Task
from edgeproof.host.uv import cannot_write, end_running_uv
from edgeproof.plan.cell import Cell, Result
from edgeproof.plan.ledger import Ledger
from edgeproof.plan.stack import Stack
from edgeproof.plan.stage import Stage, Verdict
from edgeproof.plan.subject import Subject

_RUNS_KEPT = 20
_STARTS = 2
_RUN_ENDED_SECONDS = 24 * 3600.0  # a folder younger than this may be in use


class Watcher(Protocol):
    """Who is told what happens while it happens. Called from the workers' threads, one at a time."""

    def said(self, line: str) -> None: ...  # noqa: D102
    def started(self, cell: Cell) -> None: ...  # noqa: D102
    def reached(self, cell: Cell, stage: Stage) -> None: ...  # noqa: D102
    def ended(self, result: Result) -> None: ...  # noqa: D102


@dataclass(frozen=True, kw_only=True)
class SubjectPlan:
    """A subject that will be needed: its id is known before it is prepared."""

    stack: Stack
    id: str
    prepare: Callable[[Callable[[str], None]], Subject]


Group = tuple[Task, ...]
"""Tasks that share work, which one worker does one after the other."""


@dataclass(kw_only=True)
class _Bench:
    """A subject with the cells that still have to run in it."""

    plan: SubjectPlan
    waiting: list[Group]
    subject: Subject | None = None
    failure: EdgeproofError | None = None
    workers: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(kw_only=True)
class Outcome:
    """What a run came to. ``subjects`` are those that were prepared, ``broken`` why others were not.

    ``fault`` is an exception of edgeproof itself, which ended the run; results from before it hold.
    """

    ledger: Ledger
    subjects: list[Subject]
    broken: dict[str, EdgeproofError]
    interrupted: bool
    fault: BaseException | None
    began: datetime
    seconds: float
    folder: Path


def run_cells(
    groups: Sequence[Group],
    plans: Sequence[SubjectPlan],
    *,
    workers: int,
    watcher: Watcher,
    limits: Limits,
    declared: dict[str, str],
    folder: Path | None = None,
    journal: Journal | None = None,
    done: Sequence[Result] = (),
) -> Outcome:
    """Run every cell and return the ledger. ``declared`` maps flows to why they may be ``not_run``.

    The cells of a group are of one subject. Those that are ``done`` are not run. Logs go into the run's
    ``folder``, a new one unless given; results into the ``journal`` as they come, by default one in there.

    Ctrl-C ends the workers, keeps what was done and leaves the rest ``not_run``.
    """
    folder = folder or new_folder()
    run = _Run(
        groups,
        plans,
        watcher=watcher,
        limits=limits,
        declared=declared,
        folder=folder,
        journal=journal or Journal(folder / "journal.jsonl"),
        done=done,
    )
    return run.go(workers)


class _Run:
    def __init__(
        self,
        groups: Sequence[Group],
        plans: Sequence[SubjectPlan],
        *,
        watcher: Watcher,
        limits: Limits,
        declared: dict[str, str],
        folder: Path,
        journal: Journal,
        done: Sequence[Result],
    ) -> None:
        self._ledger = Ledger(cell for group in groups for task in group for cell in task)
        self._done = done
        left = _left(groups, done)
        self._benches = [
            _Bench(plan=plan, waiting=[g for g in left if g[0][0].subject == plan.id])
            for plan in plans
        ]
        self._journal = journal
        self._unwritten = False
        self._watcher = watcher
        self._limits = limits
        self._declared = declared
        self._stop = threading.Event()
        self._lock = threading.RLock()
        self._started = 0
        self._fault: BaseException | None = None
        self._folder = folder

    def go(self, workers: int) -> Outcome:
        began, start = datetime.now(UTC), time.monotonic()
        slots = [threading.Event() for _ in range(workers)]
        interrupted = False
        for result in self._done:
            self._ledger.record(result)
            self._tell("ended", result)
        started: list[threading.Event] = []
        try:
            for left in slots:
                threading.Thread(target=self._drive, args=(left,), daemon=True).start()
                started.append(left)
            _wait(slots)
        except KeyboardInterrupt:
            interrupted = True
            self._stop.set()
            end_running_uv()
            _wait(started)
        why = "the run was interrupted before it ended"
        if self._fault is not None:
            why = "edgeproof itself failed before it ended"
        for cell in self._ledger.open():
            self._record(
                Result(cell=cell, verdict=Verdict.NOT_RUN, cause="interrupted", reason=why)
            )
        return Outcome(
            ledger=self._ledger,
            subjects=[bench.subject for bench in self._benches if bench.subject],
            broken={b.plan.id: b.failure for b in self._benches if b.failure},
            interrupted=interrupted,
            fault=self._fault,
            began=began,
            seconds=time.monotonic() - start,
            folder=self._folder,
        )

    def _drive(self, left: threading.Event) -> None:
        """One worker slot: take the subject with most left to do, until none has anything."""
        try:
            while not self._stop.is_set():
                bench = self._choose()
                if bench is None:
                    return
                try:
                    self._work(bench)
                finally:
                    with self._lock:
                        bench.workers -= 1
        except Interrupted:
            pass
        except BaseException as fault:
            self._fault = fault
            self._stop.set()
        finally:
            left.set()

    def _choose(self) -> _Bench | None:
        """An untouched subject first; a second worker where a start costs less than what is left."""
        with self._lock:
            fresh = [b for b in self._benches if b.waiting and not b.workers]
            shared = [b for b in self._benches if len(b.waiting) > 1 and b.workers]
            chosen = max(fresh or shared, key=lambda b: len(b.waiting), default=None)
            if chosen is not None:
                chosen.workers += 1
            return chosen

    def _work(self, bench: _Bench) -> None:
        """Run the subject's groups of tasks in one slot, until none waits."""
        subject = self._prepared(bench)
        if subject is None:
            assert bench.failure is not None
            while (group := self._take(bench)) is not None:
                for cell in (cell for task in group for cell in task):
                    self._record(_without_subject(cell, bench.failure))
            return
        slot = Slot(_SlotHost(self, bench, subject))
        try:
            while (group := self._take(bench)) is not None:
                slot.run(group)
            slot.close()
        finally:
            slot.abandon()

    @staticmethod
    def _with_mend(result: Result, subject: Subject) -> Result:
        """A flow that cannot work for want of packages gets the command that installs them."""
        if result.cause != "unavailable":
            return result
        return replace(result, mend=adopted.mend(subject, result.cell.flow, result.reason))

    def _start(self, bench: _Bench, cell: Cell) -> tuple[WorkerProcess | None, Result | None]:
        """A worker, or the result of the cell that it was wanted for. A subject in which none starts, twice
        in a row, is broken: the cells that are left do not try again."""
        assert bench.subject is not None
        if bench.failure is not None:
            return None, _without_subject(cell, bench.failure)
        for _ in range(_STARTS):
            with self._lock:
                self._started += 1
                name = f"worker-{self._started}"
            try:
                worker = WorkerProcess(
                    bench.subject, self._folder, name=name, limits=self._limits, stop=self._stop
                )
            except WorkerDied as fault:
                died = fault
            else:
                return worker, None
        why = f"the worker died before it could take a cell: {died.crash['how']}"
        bench.failure = SubjectError(
            f"no worker starts in {bench.plan.id}: {died.crash['how']}",
            mend="the log says why; `edgeproof subjects remove` has it made anew",
        )
        return None, Result(
            cell=cell,
            verdict=Verdict.CRASHED,
            cause=died.cause,
            reason=why,
            crash=died.crash,
            log=str(died.crash["log"]),
        )

    def _prepared(self, bench: _Bench) -> Subject | None:
        with bench.lock:
            if bench.subject is None and bench.failure is None:
                try:
                    bench.subject = subject = bench.plan.prepare(
                        lambda line: self._tell("said", line)
                    )
                    self._write(lambda journal: journal.subject(subject))
                except EdgeproofError as failure:
                    if self._stop.is_set():
                        raise Interrupted from failure
                    bench.failure = failure
                    self._tell("said", f"{bench.plan.id}: {failure.message}")
            return bench.subject

    def _take(self, bench: _Bench) -> Group | None:
        with self._lock:
            return bench.waiting.pop(0) if bench.waiting and not self._stop.is_set() else None

    def _record(self, result: Result) -> None:
        reason = self._declared.get(result.cell.flow.name)
        if (
            result.verdict in (Verdict.NOT_RUN, Verdict.SKIPPED)
            and reason is not None
            and result.cause != "interrupted"
        ):
            result = replace(result, declared=True, reason=f"{reason} ({result.reason})")
        with self._lock:
            self._ledger.record(result)
            if result.cause not in (
                "interrupted",
                "no_subject",
            ):  # to be tried again by a run that goes on
                self._write(lambda journal: journal.result(result))
            self._tell("ended", result)

    def _write(self, line: Callable[[Journal], None]) -> None:
        with self._lock:
            try:
                line(self._journal)
            except OSError as error:
                # The ledger has it; a full disk must not take the run with it.
                if not self._unwritten:
                    self._tell("said", f"the journal cannot be written: {error.strerror}")
                self._unwritten = True

    def _tell(self, what: str, *args: Any) -> None:
        # A terminal that was closed must not take the run with it.
        with self._lock, suppress(OSError):
            getattr(self._watcher, what)(*args)


class _SlotHost:
    """The run as a slot of one subject sees it."""

    def __init__(self, run: _Run, bench: _Bench, subject: Subject) -> None:
        self._run = run
        self._bench = bench
        self._subject = subject
        self.tell = run._tell

    def start(self, cell: Cell) -> tuple[WorkerProcess | None, Result | None]:
        return self._run._start(self._bench, cell)

    def record(self, result: Result) -> None:
        self._run._record(self._run._with_mend(result, self._subject))

    def stopped(self) -> bool:
        return self._run._stop.is_set()


def _left(groups: Sequence[Group], done: Sequence[Result]) -> list[Group]:
    """What of the groups is not done."""
    ended = {result.cell.id for result in done}
    tasks = [
        [tuple(cell for cell in task if cell.id not in ended) for task in group] for group in groups
    ]
    return [tuple(task for task in group if task) for group in tasks if any(group)]


def _wait(slots: Sequence[threading.Event]) -> None:
    """Wait until every slot has ended its worker.

    Not by Thread.join: interrupted by Ctrl-C, it takes a thread that runs for one that ended
    (CPython before 3.13, where a lock that is held tells that).
    """
    for left in slots:
        while not left.wait(0.2):
            pass


def _without_subject(cell: Cell, failure: EdgeproofError) -> Result:
    return Result(
        cell=cell,
        verdict=Verdict.NOT_RUN,
        cause="no_subject",
        reason=failure.message,
        mend=failure.mend,
    )


def new_folder() -> Path:
    """A folder for this run's logs; those of the latest runs and of the last day stay."""
    runs = cache.root() / "runs"
    try:
        runs.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{datetime.now(UTC):%Y%m%dT%H%M%S}-", dir=runs))
        for old in sorted(p for p in runs.iterdir() if p.is_dir())[:-_RUNS_KEPT]:
            if time.time() - old.stat().st_mtime > _RUN_ENDED_SECONDS:
                shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise cannot_write(error) from error
    return folder
