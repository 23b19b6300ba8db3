"""Starts a child, watches it, and brings home what it told, or what it left when it died."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgeproof.host.process import (
    Interrupted,
    end_all,
    how_it_ended,
    lines_of,
    signal_name,
    started,
)
from edgeproof.plan.subject import Subject
from edgeproof.stress.plan import Phase, Spec

START_SECONDS = 600.0
"""How long a child may take until it knows what one thread needs: building the driver is part of it."""
LEAST_SECONDS = 60.0
PATIENCE = 10
"""A phase may take so many times what its iterations take one thread alone."""
_GRACE_SECONDS = 8.0
_POLL_SECONDS = 0.1
_LOG_BYTES = 200_000


@dataclass(kw_only=True)
class Told:
    """What became of a child. ``ended`` is whether it came to its end; ``crash`` how it died else.

    ``hung`` says which limit it exceeded, ``broke`` what it said that no child says.
    """

    alone: list[dict[str, Any]] = field(default_factory=list)
    phases: dict[Phase, dict[str, Any]] = field(default_factory=dict)
    ended: bool = False
    hung: str = ""
    broke: str = ""
    crash: Mapping[str, Any] | None = None
    seconds: float = 0.0


class Child:
    """One try. ``stop`` being set ends it; ``limit`` replaces the time a phase may take, in seconds."""

    def __init__(
        self, subject: Subject, spec: Spec, *, limit: float | None, stop: threading.Event
    ) -> None:
        self._spec = spec
        self._limit = limit
        self._stop = stop
        self._folder = Path(spec.folder)
        self._folder.mkdir(parents=True)
        file = self._folder / "spec.json"
        file.write_text(json.dumps(spec.to_json()), encoding="utf-8")
        self._log = self._folder / "child.log"
        env = {**os.environ, **subject.env, **spec.env}
        self._process = started(subject, ["stress", str(file)], log=self._log, env=env)
        self._lines = lines_of(self._process)

    def go(self) -> Told:
        """Listen until the child ends, dies, or takes too long."""
        told = Told()
        began = time.monotonic()
        allowed, doing = START_SECONDS, "starting and running alone"
        until = began + allowed
        try:
            while not told.ended:
                try:
                    line = self._lines.get(timeout=_POLL_SECONDS)
                except queue.Empty:
                    if self._stop.is_set():
                        raise Interrupted from None
                    if time.monotonic() > until:
                        told.hung = f"{doing} took longer than {allowed:.0f} s"
                        self._write_stacks()
                        break
                    continue
                if line is None:
                    break
                if not self._hear(line, told):
                    break
                allowed = self._limit or max(
                    LEAST_SECONDS, PATIENCE * self._spec.load.threads * self._needs(told)
                )
                doing = f"the {self._next_phase(told)} phase" if told.alone else doing
                until = time.monotonic() + allowed
            told.seconds = time.monotonic() - began
            if not told.ended:
                told.crash = self._bury()
        finally:
            end_all(self._process)
        return told

    def _needs(self, told: Told) -> float:
        """Seconds that one thread's iterations take it alone, the first load being the slowest."""
        loads = [(a.get("first_load") or 0) for a in told.alone]
        runs = [(a.get("load") or 0) + (a.get("run") or 0) for a in told.alone]
        return max(loads, default=0) + self._spec.load.iterations * max(runs, default=0)

    def _next_phase(self, told: Told) -> str:
        left = [phase for phase in self._spec.phases if phase not in told.phases]
        return left[0] if left else "last"

    def _hear(self, line: str, told: Told) -> bool:
        try:
            event = json.loads(line)
            kind = event["event"]
            if kind == "alone":
                told.alone = list(event["programs"])
            elif kind == "phase":
                told.phases[Phase(event["phase"])] = event
            elif kind == "ended":
                told.ended = True
            else:
                raise KeyError(kind)
        except (ValueError, KeyError, TypeError):
            told.broke = f"it said {line.strip()[:200]!r}"
            return False
        return True

    def _write_stacks(self) -> None:
        """Have every thread of the child write its native stack, then Python its own, and end it."""
        pid = self._process.pid
        with contextlib.suppress(OSError, AttributeError):
            tgkill = ctypes.CDLL(None).tgkill
            for thread in sorted(int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()):
                tgkill(pid, thread, signal.SIGUSR2)
                time.sleep(0.02)  # one after the other, so that their lines do not mix
            time.sleep(0.5)
        with contextlib.suppress(OSError):
            self._process.send_signal(signal.SIGABRT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_SECONDS)

    def _bury(self) -> dict[str, Any]:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_SECONDS)
        code = self._process.poll()
        end_all(self._process)
        text = read_log(self._log)
        native = re.findall(r"^\[native stack, .*?(?=^\n|^Fatal Python|\Z)", text, re.M | re.S)
        python = re.search(r"^Fatal Python error.*", text, re.M | re.S)
        return {
            "how": how_it_ended(code),
            "signal": signal_name(code),
            "exit_code": code,
            "native_stack": "\n".join(native)[:40000],
            "python_stack": python.group(0)[:8000] if python else "",
            "log": "\n".join(text.splitlines()[-40:]),
        }


def read_log(path: Path) -> str:
    """The end of what a child printed."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _LOG_BYTES))
            return file.read().decode("utf-8", errors="replace")
    except OSError:
        return ""
