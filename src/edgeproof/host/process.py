"""One worker process: started in a subject, given cells, watched until each ends or the process dies."""

from __future__ import annotations

import hashlib
import json
import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgeproof.errors import SubjectError
from edgeproof.gate.judge import Ended, judge
from edgeproof.host.protocol import BundleTalk, Conversation, ProtocolBroken, parse
from edgeproof.plan.case import Case
from edgeproof.plan.cell import Cell, Result
from edgeproof.plan.flow import Flow
from edgeproof.plan.stage import Stage, Verdict
from edgeproof.plan.subject import Subject

_MAIN = Path(__file__).resolve().parent.parent / "worker" / "__main__.py"
_GRACE_SECONDS = 8.0
_POLL_SECONDS = 0.1
_LOG_LINES = 40

# OpenMP's threads wait for work by spinning, which takes the processor from the other workers: on two cores
# two workers were slower than one (152 s against 130 s; asleep they take 72 s). No result depends on it.
_PATIENT = {"OMP_WAIT_POLICY": "PASSIVE"}

_FATAL = {
    "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Floating-point exception": "SIGFPE",
    "Floating point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
}
"""What faulthandler writes for each signal."""

START_SECONDS = 600.0
"""How long importing torch, and then a flow's modules, may take: minutes on a cold, slow disk."""

STAGE_SECONDS: Mapping[Stage, float] = {
    Stage.BUILD: 300,
    Stage.EAGER: 600,
    Stage.QUANTIZE: 900,
    Stage.EXPORT: 600,
    Stage.LOWER: 1800,
    Stage.SERIALIZE: 600,
    Stage.LOAD: 600,
    Stage.RUN: 1200,
    Stage.COMPARE: 600,
    Stage.STRESS: 600,
}


class Interrupted(Exception):
    """The run was told to stop; the worker is gone."""


class WorkerDied(Exception):
    """The worker cannot be used any more. ``crash`` says how it died.

    ``cause`` is ``crashed``, or ``protocol`` for one that was ended because of what it said.
    """

    def __init__(self, crash: Mapping[str, Any], *, cause: str = "crashed") -> None:
        super().__init__(crash["how"])
        self.crash = crash
        self.cause = cause
        self.what = "died" if cause == "crashed" else "was ended"


class _TooLong(Exception):
    """Nothing was heard for the time allowed."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long a worker may take. ``stage`` replaces the limit of every stage."""

    stage: float | None = None

    def of(self, stage: Stage) -> float:
        """Seconds that a stage may take."""
        return self.stage or STAGE_SECONDS[stage]


def started(
    subject: Subject, arguments: Sequence[str], *, log: Path, env: Mapping[str, str]
) -> subprocess.Popen[str]:
    """The worker's main file in the subject's Python, in a group of its own; ``log`` gets its errors."""
    # -I: neither the user's PYTHON* variables nor their site-packages are part of what is proved.
    isolated = ["-I"] if subject.managed else []
    with log.open("ab") as file:
        return subprocess.Popen(
            [str(subject.python), *isolated, str(_MAIN), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            env=env,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=os.name == "posix",
        )


def lines_of(process: subprocess.Popen[str]) -> queue.Queue[str | None]:
    """What the process says, line by line as a thread reads it, and ``None`` when it says no more."""
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        with suppress(OSError, ValueError):  # closed under us by end_all()
            for line in process.stdout:
                lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    return lines


def end_all(process: subprocess.Popen[str]) -> None:
    """End the process and whatever it started, now."""
    if os.name == "posix":
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


class WorkerProcess:
    """A worker in ``subject``. Files go to ``folder``; ``stop`` being set ends it at once."""

    def __init__(
        self, subject: Subject, folder: Path, *, name: str, limits: Limits, stop: threading.Event
    ) -> None:
        self._folder = folder
        self._limits = limits
        self._stop = stop
        self._log = folder / f"{name}.log"
        self._crash_log = folder / f"{name}.crash"
        self._used = False
        arguments = [str(self._log), str(self._crash_log)]
        env = {**_PATIENT, **os.environ, **subject.env}
        try:
            self._process = started(subject, arguments, log=self._log, env=env)
        except OSError as error:
            raise WorkerDied(_never_started(f"{subject.python}: {error.strerror}")) from error
        self._lines = lines_of(self._process)
        try:
            self._event(self._next(START_SECONDS), self._log, "ready")
        except _TooLong:
            raise WorkerDied(self._end_hung(self._log)) from None
        except WorkerDied:
            raise
        except BaseException:
            self.kill()
            raise

    def probe(self, flow: Flow) -> str:
        """What keeps a flow from working here; empty when nothing does."""
        log = self._folder / f"probe-{flow.name}.log"
        self._ask({"do": "probe", "flow": asdict(flow), "log": str(log)})
        try:
            said = self._event(self._next(START_SECONDS, log), log, "probed").get("problem")
        except _TooLong:
            raise WorkerDied(self._end_hung(log)) from None
        if not isinstance(said, str):
            raise self._broke_protocol(log, f"it said {said!r} where a problem was due")
        return said

    def cases(self, suite: str) -> list[Case]:
        """The cases of a suite as the subject has them. Raises ``SubjectError`` where it has none."""
        log = self._folder / f"list-{suite}.log"
        self._ask({"do": "list", "suite": suite, "log": str(log)})
        try:
            said = self._event(self._next(START_SECONDS, log), log, "listed")
        except _TooLong:
            raise WorkerDied(self._end_hung(log)) from None
        if said.get("problem"):
            raise SubjectError(f"the suite {suite} cannot be listed: {said['problem']}")
        try:
            return [Case.from_json(case) for case in said["cases"]]
        except (KeyError, TypeError, ValueError) as fault:
            raise self._broke_protocol(log, f"it listed {suite} with {fault}") from None

    def run_bundle(
        self,
        cells: Sequence[Cell],
        *,
        on_taken: Callable[[], None],
        on_stage: Callable[[Stage], None],
    ) -> list[Result]:
        """Run cells of one flow together; the results of those that passed. Of the others it says nothing.

        Raises ``WorkerDied`` when the worker dies or hangs, whether it had taken the bundle or not.
        """
        name = f"{cells[0].id} and {len(cells) - 1} more"
        log = self._folder / f"bundle-{_file_name(cells[0])}.log"
        talk = BundleTalk(name, [cell.id for cell in cells])
        allowed = START_SECONDS
        self._ask(
            {
                "do": "bundle",
                "cell": name,
                "cells": [
                    {"cell": cell.id, "case": cell.case.to_json(), "seed": cell.seed}
                    for cell in cells
                ],
                "flow": asdict(cells[0].flow),
                "log": str(log),
            }
        )
        while True:
            try:
                line = self._next(allowed, log if talk.taken else self._log)
            except _TooLong:
                raise WorkerDied(self._end_hung(log)) from None
            try:
                kind = talk.hear(line)
            except ProtocolBroken as broken:
                raise self._broke_protocol(log, str(broken)) from None
            if kind == "taken":
                on_taken()
            if kind == "bundle_reached":
                assert talk.stage is not None
                allowed = self._limits.of(talk.stage)
                on_stage(talk.stage)
            if kind == "idle":
                self._used = True
                return _passed(cells, talk)

    def run(
        self, cell: Cell, *, on_taken: Callable[[], None], on_stage: Callable[[Stage], None]
    ) -> Result:
        """Run one cell to its result. A result ``crashed`` or ``timed_out`` leaves the worker dead.

        Raises ``WorkerDied`` when the worker does not come to take the cell because of what an earlier
        one left behind.
        """
        log = self._folder / f"{_file_name(cell)}.log"
        talk = Conversation(cell.id)
        allowed = START_SECONDS
        mend = ""
        try:
            self._ask(
                {
                    "do": "cell",
                    "cell": cell.id,
                    "case": cell.case.to_json(),
                    "flow": asdict(cell.flow),
                    "seed": cell.seed,
                    "keep": asdict(cell.keep) if cell.keep else None,
                    "log": str(log),
                }
            )
            while True:
                line = self._next(allowed, log if talk.taken else self._log)
                try:
                    kind = talk.hear(line)
                except ProtocolBroken as broken:
                    raise self._broke_protocol(log, str(broken)) from None
                if kind == "taken":
                    on_taken()
                if kind == "stage_started":
                    assert talk.stage is not None
                    allowed = self._limits.of(talk.stage)
                    on_stage(talk.stage)
                if kind == "idle":
                    self._used = True
                    return judge(cell, _ended(talk, log))
        except _TooLong:
            crash = self._end_hung(log)
            verdict, cause = Verdict.TIMED_OUT, "timed_out"
            took = talk.stage if talk.ended is None else "cleaning up"
            reason = f"{took or 'importing'} took longer than {allowed:.0f} s"
            mend = "--stage-timeout SECONDS allows more"
        except WorkerDied as died:
            if self._used and not talk.taken:
                raise
            crash = dict(died.crash)
            verdict, cause = Verdict.CRASHED, died.cause
            reason = f"the worker {died.what} {_when(talk)}: {crash['how']}"
        return Result(
            cell=cell,
            verdict=verdict,
            stage=talk.stage,
            cause=cause,
            reason=reason,
            mend=mend,
            stages=tuple(talk.stages),
            crash=crash,
            log=crash["log"],
        )

    def close(self) -> None:
        """Let the worker end by itself, or make it. Raises ``WorkerDied`` when it dies instead."""
        self._ask({"do": "exit"})
        with suppress(subprocess.TimeoutExpired):
            if self._process.wait(_GRACE_SECONDS) != 0:
                raise WorkerDied(self._bury(self._log))
        self.kill()

    def kill(self) -> None:
        """End the worker and whatever it started, now."""
        end_all(self._process)

    def _ask(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except (OSError, ValueError):
            raise WorkerDied(self._bury(self._log)) from None

    def _next(self, seconds: float, log: Path | None = None) -> str:
        """The next line; raises when none comes, when the worker dies, when told to stop."""
        until = time.monotonic() + seconds
        gone = 0
        while True:
            if self._stop.is_set():
                self.kill()
                raise Interrupted
            try:
                line = self._lines.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                # A child that the worker forked can hold its pipe open: then no end of file tells.
                gone = 0 if self._process.poll() is None else gone + 1
                if gone > 1:
                    raise WorkerDied(self._bury(log or self._log)) from None
                if self._dies_slowly():
                    raise WorkerDied(self._end_dying(log or self._log)) from None
                if time.monotonic() > until:
                    raise _TooLong from None
                continue
            if line is None:
                raise WorkerDied(self._bury(log or self._log))
            return line

    def _event(self, line: str, log: Path, kind: str) -> dict[str, Any]:
        try:
            return parse(line, kind)
        except ProtocolBroken as broken:
            raise self._broke_protocol(log, str(broken)) from None

    def _broke_protocol(self, log: Path, what: str) -> WorkerDied:
        """End a worker that cannot be believed; says so in place of how it died."""
        self.kill()
        crash = {**self._bury(log), "how": f"it broke the protocol: {what}"}
        crash.update(signal="", exit_code=None)  # that was us
        return WorkerDied(crash, cause="protocol")

    def _dies_slowly(self) -> bool:
        """Whether the worker's crash handler began to write its grace ago, and it still lives."""
        try:
            wrote = self._crash_log.stat()
        except OSError:
            return False
        return wrote.st_size > 0 and time.time() - wrote.st_mtime > _GRACE_SECONDS

    def _end_dying(self, log: Path) -> dict[str, Any]:
        """End a worker whose crash handler hangs, as one does that allocates after a crash in malloc."""
        self.kill()
        crash = self._bury(log)
        name = next((s for text, s in _FATAL.items() if text in crash["python_stack"]), "")
        return {
            **crash,
            "signal": name,
            "how": f"killed by {name or 'a signal'} (its handler hung)",
        }

    def _end_hung(self, log: Path) -> dict[str, Any]:
        """Abort a worker that hangs, so that its handlers write down where, and bury it."""
        if os.name == "posix" and self._process.poll() is None:
            self._process.send_signal(signal.SIGABRT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE_SECONDS)
        else:
            self._process.kill()
        return {**self._bury(log), "how": "it hung and was ended"}

    def _bury(self, log: Path) -> dict[str, Any]:
        """What a dead worker left: how it died, its stacks, its last words."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_SECONDS)
        code = self._process.poll()
        self.kill()
        printed, native = _split_native(_text(log))
        return {
            "how": how_it_ended(code),
            "signal": signal_name(code),
            "exit_code": code,
            "python_stack": _text(self._crash_log)[:8000],
            "native_stack": native[:8000],
            "log": "\n".join(printed.splitlines()[-_LOG_LINES:]),
        }


def _passed(cells: Sequence[Cell], talk: BundleTalk) -> list[Result]:
    """The cells that the bundle's evidence proves, judged as any other; a bundle fails none."""
    results = []
    for cell in cells:
        if cell.id in talk.proved:
            evidence, stages = talk.proved[cell.id]
            result = judge(
                cell,
                Ended(
                    outcome="done", stage=None, problem="", evidence=evidence, stages=stages, log=""
                ),
            )
            if result.verdict is Verdict.PASSED:
                results.append(result)
    return results


def _ended(talk: Conversation, log: Path) -> Ended:
    said = talk.ended or {}
    return Ended(
        outcome=said["outcome"],
        stage=said.get("stage"),
        problem=str(said.get("problem") or ""),
        evidence=said["evidence"],
        stages=tuple(talk.stages),
        # The traceback is the end of the log; what was printed before it is of use as well.
        log=_tail(log, _LOG_LINES + str(said.get("traceback") or "").count("\n")),
    )


def _when(talk: Conversation) -> str:
    if talk.ended is not None:
        return "while cleaning up after its cell"
    return f"in {talk.stage}" if talk.stage else "while importing"


def _never_started(why: str) -> dict[str, Any]:
    return {
        "how": f"it could not be started: {why}",
        "signal": "",
        "exit_code": None,
        "python_stack": "",
        "native_stack": "",
        "log": "",
    }


def how_it_ended(code: int | None) -> str:
    """The end of a process in words, from its exit code."""
    name = signal_name(code)
    if name == "SIGKILL":
        return "killed by SIGKILL: by the system when memory runs out, or by someone"
    if name:
        return f"killed by {name}"
    if code is None:
        return "its pipe closed while it went on"
    return f"it left with exit code {code}"


def signal_name(code: int | None) -> str:
    """The signal that ended a process, empty when none did."""
    if code is None or code >= 0:
        return ""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _file_name(cell: Cell) -> str:
    """Readable, and another one for each cell, also where ids are long or differ in a sign only."""
    digest = hashlib.sha256(cell.id.encode()).hexdigest()[:8]
    readable = re.sub(r"[^\w.-]+", "-", cell.id)[:100]
    return f"{readable}-{digest}"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _tail(path: Path, lines: int) -> str:
    return "\n".join(_text(path).splitlines()[-lines:])


def _split_native(text: str) -> tuple[str, str]:
    """What was printed, and the native stacks that torch's signal handler wrote after it."""
    found = re.search(r"^SIG\w+\(\d+\), PID: \d+", text, re.MULTILINE)
    return (text, "") if found is None else (text[: found.start()], text[found.start() :])
