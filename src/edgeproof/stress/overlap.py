"""Whether calls from several threads really went on at the same time.

Two things are measured. From outside: for how long two or more threads were inside a call at once. That
alone proves little, for a thread that waits for a lock is inside as well. So, from what came of it: a call
that ended sooner after the call before it than a call takes alone cannot have waited for that one to end.
Behind a lock there are none of these, on any number of cores and however many of them one call uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

SOONER = 0.5
"""A call overlapped with another when it ended after less than this part of the time it takes alone."""


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Of all calls of one kind. Times are in seconds; ``together`` is the part of the calls, 0 to 1, that
    cannot have waited for the one that ended before them (``None`` where no time alone is known)."""

    calls: int
    busy: float
    overlapped: float
    most_at_once: int
    together: float | None

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        return asdict(self)


def measure(spans: Sequence[Sequence[Sequence[int]]], alone: Sequence[float | None]) -> Overlap:
    """Look at the calls of each thread, (begin, end) in nanoseconds.

    ``alone`` is the shortest time, in seconds, that a call of that thread takes while nothing else goes on.
    """
    edges = sorted(
        edge for calls in spans for begin, end in calls for edge in ((begin, 1), (end, -1))
    )
    inside = most = 0
    busy = overlapped = 0
    before = 0
    for at, step in edges:
        busy += (at - before) * (inside >= 1)
        overlapped += (at - before) * (inside >= 2)
        inside += step
        most = max(most, inside)
        before = at
    ends = sorted((end, thread) for thread, calls in enumerate(spans) for _, end in calls)
    known = sooner = 0
    for (last, _), (end, thread) in pairwise(ends):
        time = alone[thread]
        if time is not None:
            known += 1
            sooner += end - last < SOONER * time * 1e9
    return Overlap(
        calls=len(ends),
        busy=round(busy * 1e-9, 6),
        overlapped=round(overlapped * 1e-9, 6),
        most_at_once=most,
        together=round(sooner / known, 4) if known else None,
    )
