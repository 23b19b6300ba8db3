"""The smallest load that still fails, and how often it does."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from edgeproof.stress.plan import Load

_Z = 1.96
"""Of the normal distribution, for 95 % between the bounds."""
TRIES = 5
"""So often a load must pass before it counts as one that does not fail."""
COUNTED = 10
"""So often the smallest load is tried in the end, to say how often it fails."""


@dataclass(frozen=True, kw_only=True)
class Smallest:
    """The smallest load that was seen to fail, in ``failed`` of ``tries``.

    The true rate of failure is between ``low`` and ``high`` with 95 % confidence. ``complete`` is whether
    there was time to look for less.
    """

    load: Load
    tries: int
    failed: int
    low: float
    high: float
    complete: bool

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        return asdict(self)


def interval(failed: int, tries: int) -> tuple[float, float]:
    """Wilson's bounds of a rate, 95 % two-sided."""
    if not tries:
        return 0.0, 1.0
    rate, square = failed / tries, _Z * _Z
    middle = (rate + square / (2 * tries)) / (1 + square / tries)
    half = (
        _Z / (1 + square / tries)
        * math.sqrt(rate * (1 - rate) / tries + square / (4 * tries * tries))
    )  # fmt: skip
    return max(0.0, middle - half), min(1.0, middle + half)


def smallest(failing: Load, fails: Callable[[Load], bool], *, seconds: float) -> Smallest:
    """Look for less than a load that failed once: fewer threads first, then fewer iterations.

    ``fails`` tries a load once. Each halving is kept when it fails within ``TRIES``. Ends after
    ``seconds``, with what is known by then.
    """
    until = time.monotonic() + seconds
    counts: dict[Load, list[int]] = {failing: [1, 1]}

    def trial(load: Load) -> bool:
        failed = fails(load)
        count = counts.setdefault(load, [0, 0])
        count[0] += failed
        count[1] += 1
        return failed

    def late() -> bool:
        return time.monotonic() > until

    found = failing
    for smaller in (_fewer_threads, _fewer_iterations):
        while not late() and (less := smaller(found)) is not None:
            if not any(trial(less) for _ in range(TRIES) if not late()):
                break
            found = less
    complete = not late()
    while counts[found][1] < COUNTED and not late():
        trial(found)
    failed, tries = counts[found]
    low, high = interval(failed, tries)
    return Smallest(
        load=found,
        tries=tries,
        failed=failed,
        low=round(low, 4),
        high=round(high, 4),
        complete=complete,
    )


def _fewer_threads(load: Load) -> Load | None:
    if load.threads <= 1:
        return None
    return Load(threads=load.threads // 2, iterations=load.iterations)


def _fewer_iterations(load: Load) -> Load | None:
    if load.iterations <= 1:
        return None
    return Load(threads=load.threads, iterations=load.iterations // 2)
