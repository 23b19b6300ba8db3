"""Models that kill their worker, or never come to an end.

Run in the subject, by ``FILE.py:FACTORY``. What they do is noted in ``$EDGEPROOF_TEST_NOTES``.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch


def _note(name: str, text: str = "") -> bool:
    """Leave a note; whether it is the first of this name."""
    path = Path(os.environ["EDGEPROOF_TEST_NOTES"]) / name
    first = not path.exists()
    path.write_text(text)
    return first


def _note_pid(pid: int) -> None:
    _note(f"pid-{pid}", str(pid))


class _Linear(torch.nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 3)


def _inputs() -> tuple[torch.Tensor]:
    return (torch.randn(2, 4),)


def fine() -> Any:
    return _Linear(), _inputs()


class Segfaults(_Linear):
    def forward(self, x: Any) -> Any:
        print("about to read from nowhere")
        ctypes.string_at(0)
        return super().forward(x)


def segfault_in_forward() -> Any:
    return Segfaults(), _inputs()


class SegfaultsOnce(_Linear):
    def forward(self, x: Any) -> Any:
        if not torch.compiler.is_exporting() and _note("segfault"):
            ctypes.string_at(0)
        return super().forward(x)


def segfault_once() -> Any:
    return SegfaultsOnce(), _inputs()


def segfault_in_factory() -> Any:
    ctypes.CDLL(None).puts(b"from C, about to read from nowhere")
    ctypes.string_at(0)


def segfault_at_run() -> Any:
    """Stands for a delegate that crashes when the program is run."""
    from executorch.runtime import Method

    Method.execute = lambda self, inputs: ctypes.string_at(0)
    return _Linear(), _inputs()


def segfault_with_child() -> Any:
    """A forked child holds the worker's pipe open: its end must not go unnoticed for that."""
    child = os.fork()
    if child == 0:
        time.sleep(600)
        os._exit(0)
    _note_pid(child)
    ctypes.string_at(0)


class _SegfaultsWhenFreed:
    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        ctypes.string_at(0)


class LeavesRubbish(_Linear):
    def forward(self, x: Any) -> Any:
        if not torch.compiler.is_exporting():
            _SegfaultsWhenFreed()
        return super().forward(x)


def segfault_when_freed() -> Any:
    """What the cell leaves behind crashes when it is freed, after the last stage."""
    import gc

    gc.disable()
    return LeavesRubbish(), _inputs()


def aborts() -> Any:
    os.abort()


def killed() -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def leaves_quietly() -> Any:
    os._exit(0)


def closes_all_files() -> Any:
    os.closerange(3, 256)
    return _Linear(), _inputs()


def loops() -> Any:
    while True:
        pass


def sleeps() -> Any:
    """Sleeps in C, with a child of its own that must not outlive it."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    _note_pid(child.pid)
    _note_pid(os.getpid())
    _note("sleeping")
    time.sleep(600)


def sleeps_with_lock() -> Any:
    """Native code that never gives the interpreter's lock back: no thread of Python runs."""
    _note_pid(os.getpid())
    _note("sleeping-with-lock")
    ctypes.PyDLL(None).sleep(600)


def sleeps_one_way_or_the_other() -> Any:
    return sleeps() if _note("first") else sleeps_with_lock()


class HangsLater(_Linear):
    def forward(self, x: Any) -> Any:
        # Flows share what was run eagerly, and each exports: the second one hangs.
        if torch.compiler.is_exporting() and not _note("exported"):
            sleeps()
        return super().forward(x)


def second_flow_hangs() -> Any:
    return HangsLater(), _inputs()
