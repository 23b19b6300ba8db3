"""The signals that end a run: Ctrl-C, what a CI sends to cancel a job, a terminal that was closed."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

_ENDING = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
_INSISTS_SECONDS = 10.0
_interrupted_at: float | None = None


def _interrupt(*_: object) -> None:
    """What was done is kept.

    CI systems send several signals within moments. While the first one ends the workers and writes the
    report, others change nothing, unless they come much later: then something hangs.
    """
    global _interrupted_at
    now = time.monotonic()
    if _interrupted_at is None or now - _interrupted_at > _INSISTS_SECONDS:
        _interrupted_at = now
        raise KeyboardInterrupt


def interrupt_on_signals() -> None:
    """Let each of the signals raise ``KeyboardInterrupt``, unless it is ignored by who started us."""
    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup and shells in the background
            signal.signal(number, _interrupt)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let no signal end the moment in which results are written: CI systems send more than one."""
    found = [signal.signal(number, signal.SIG_IGN) for number in _ENDING]
    try:
        yield
    finally:
        for number, handler in zip(_ENDING, found, strict=True):
            signal.signal(number, handler)
