"""Calls of one program from several threads take turns, as without a delegate that lets go of the GIL.

ExecuTorch's Method is for one thread at a time, and so is the memory its planner lays out, which methods of
one program share. The wheel's bindings hold the interpreter's lock throughout a call, which kept Python
threads apart. Core AI's delegate lets go of it while it waits: another thread could then enter the same
method, point it at other inputs and write to the same memory, and both would get wrong answers and no error.
A delegate sees its own part of a call alone, which is too late to wait. So it is done where a call begins.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

# What runs a method or touches its memory, by the classes of executorch.extension.pybindings.portable_lib.
_CALLS = {
    "ExecuTorchMethod": ("__call__", "call", "set_inputs", "execute", "get_outputs"),
    "ExecuTorchModule": ("__call__", "forward", "run_method", "plan_execute"),
    "ExecuTorchProgram": ("load_method",),
    "BundledModule": ("verify_result_with_bundled_expected_output",),
}
_guard = threading.Lock()
_turns: weakref.WeakKeyDictionary[Any, _Turn] = weakref.WeakKeyDictionary()


class _Turn:
    """Held by the thread that is inside a program."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self._owner == me:
            # From a signal handler, say. Waiting would be for ever, going on would be wrong.
            raise RuntimeError("this program is in the middle of a call that this thread has made")
        self._lock.acquire()
        self._owner = me

    def __exit__(self, *_: object) -> None:
        self._owner = None
        self._lock.release()


def install(bindings: Any) -> None:
    """Make the calls of ExecuTorch's Python bindings take turns, program by program.

    ``bindings`` is the module with their classes. Programs loaded by themselves, also of one file, have
    nothing in common and still overlap.
    """
    for class_name, names in _CALLS.items():
        cls = getattr(bindings, class_name, None)
        for name in names:
            if hasattr(cls, name):
                setattr(cls, name, _in_turn(getattr(cls, name)))


def _in_turn(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        turn = _turn_of(self)
        with turn:
            result = function(self, *args, **options)
        if function.__name__ == "load_method":
            with _guard:
                _turns[result] = turn
        return result

    return call


def _turn_of(owner: Any) -> _Turn:
    """That of a program, which its methods have too."""
    with _guard:
        return _turns.setdefault(owner, _Turn())
