"""Telling a leak from noise in samples of what a process holds.

Samples are taken while all threads wait, so that what they hold for a moment is not in them. The first third
is left out: pools and caches fill. Over the rest a leak goes up steadily (Mann-Kendall test) and as fast in
the second half as in the first; what each of many threads fills once goes up ever more slowly. The slope is
Theil and Sen's median, which a few outliers do not move.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from statistics import median
from types import MappingProxyType
from typing import Any

CHANCE = 0.0001
"""How likely samples without a trend may look like these."""
STEADY = 0.75
"""A leak goes on: the second half's slope is at least this part of the first's."""
LEAST: Mapping[str, float] = MappingProxyType(
    {"heap": 64 * 1024, "resident": 2 * 2**20, "descriptors": 5, "threads": 5, "cache": 1}
)
"""What must have been gained over the samples looked at to be called a leak, in bytes or things: what the
allocator keeps for threads moves by less."""
PART: Mapping[str, float] = MappingProxyType({"heap": 0.005, "resident": 0.01})
"""Or this part of what was held at first, where that is more: a large heap has more to fragment."""
FEWEST = 6


@dataclass(frozen=True, kw_only=True)
class Growth:
    """How much more of one thing a process held with every iteration. ``resolution`` is the smallest leak for
    each iteration that these samples could have shown, ``None`` where there were too few of them: one that
    is no faster than what filled all the same cannot be told from it."""

    what: str
    first: float
    last: float
    per_iteration: float
    chance: float
    resolution: float | None
    leak: bool

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        return asdict(self)


def examine(what: str, iterations: Sequence[float], held: Sequence[float]) -> Growth:
    """Look for a leak in samples of what was ``held`` after so many ``iterations``."""
    skip = len(held) // 3
    x, y = list(iterations[skip:]), list(held[skip:])
    half = len(x) // 2
    slope, chance = _slope(x, y), _chance(y)
    early, late = _slope(x[: half + 1], y[: half + 1]), _slope(x[half:], y[half:])
    span = x[-1] - x[0]
    least = max(LEAST[what], PART.get(what, 0.0) * held[0])
    risen = len(y) >= FEWEST and slope * span >= least and chance < CHANCE
    leak = risen and late >= STEADY * early
    known = len(y) >= FEWEST and span > 0
    return Growth(
        what=what,
        first=held[0],
        last=held[-1],
        per_iteration=round(slope, 3),
        chance=round(chance, 6),
        resolution=round(max(least / span, 0.0 if leak else late), 3) if known else None,
        leak=leak,
    )


def _slope(x: Sequence[float], y: Sequence[float]) -> float:
    pairs = list(combinations(range(len(x)), 2))
    slopes = [(y[j] - y[i]) / (x[j] - x[i]) for i, j in pairs if x[j] != x[i]]
    return median(slopes) if slopes else 0.0


def _chance(y: Sequence[float]) -> float:
    """The one-sided p-value of Mann and Kendall's test for values that go up, corrected for ties."""
    n = len(y)
    rises = sum((y[j] > y[i]) - (y[j] < y[i]) for i, j in combinations(range(n), 2))
    ties = [list(y).count(value) for value in set(y)]
    variance = (n * (n - 1) * (2 * n + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18
    if variance <= 0 or rises <= 0:
        return 1.0
    return 0.5 * math.erfc((rises - 1) / math.sqrt(2 * variance))
