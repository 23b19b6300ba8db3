"""Waits for Core AI's answers, which come as asyncio futures, without an event loop of asyncio's.

Core AI computes on threads of its own and hands its answer to the loop that was running when it was asked.
All it needs of that loop is a way to make the future and to be called back. Such a loop of a few lines
costs microseconds; asyncio's costs a wake-up through a socket, and forbids to be asked from within a
coroutine, where an application may well call ExecuTorch from.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

_T = TypeVar("_T")


class _Loop:
    """The part of ``asyncio.AbstractEventLoop`` that a future and Core AI use."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]]] = (
            queue.SimpleQueue()
        )

    def get_debug(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=cast("asyncio.AbstractEventLoop", self))

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> None:
        self._calls.put((callback, args))

    call_soon_threadsafe = call_soon

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A future whose exception no one asked for: its waiter was interrupted, and is gone."""

    def wait(self) -> None:
        """Make the next call that was asked for. The interpreter's lock is free until there is one."""
        callback, args = self._calls.get()
        callback(*args)


def answer_of(ask: Callable[[], Awaitable[_T]]) -> _T:
    """What the awaitable that ``ask`` returns ends with. Any thread may wait, for itself."""
    outer = asyncio._get_running_loop()
    loop = _Loop()
    asyncio._set_running_loop(cast("asyncio.AbstractEventLoop", loop))
    try:
        steps = ask().__await__()
        while True:
            try:
                future = next(steps)
            except StopIteration as end:
                return cast("_T", end.value)
            while future is not None and not future.done():
                loop.wait()
    finally:
        asyncio._set_running_loop(outer)
