"""The smallest load that fails."""

from __future__ import annotations

import pytest

from edgeproof.stress.plan import Load
from edgeproof.stress.reduce import COUNTED, interval, smallest


def test_threads_go_first_and_then_iterations() -> None:
    found = smallest(
        Load(threads=50, iterations=100),
        lambda load: load.threads >= 3 and load.iterations >= 10,
        seconds=60,
    )
    assert found.load == Load(threads=3, iterations=12)
    assert (found.failed, found.tries) == (COUNTED, COUNTED)
    assert found.complete
    assert found.low == pytest.approx(0.722, abs=0.001)


def test_without_time_what_failed_is_told_and_that_there_was_none() -> None:
    load = Load(threads=8, iterations=8)
    found = smallest(load, lambda load: True, seconds=0)
    assert (found.load, found.tries, found.complete) == (load, 1, False)


def test_what_fails_now_and_then_is_counted() -> None:
    turns = iter([False, True, False] * 100)
    found = smallest(Load(threads=2, iterations=1), lambda load: next(turns), seconds=60)
    assert found.load == Load(threads=1, iterations=1)
    assert 0 < found.failed < found.tries == COUNTED
    assert found.low < found.failed / found.tries < found.high


@pytest.mark.parametrize(
    ("failed", "tries", "low", "high"),
    # Wilson's, as in Newcombe, Statistics in Medicine 17 (1998), table I
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)  # fmt: skip
def test_the_bounds_are_wilsons(failed: int, tries: int, low: float, high: float) -> None:
    assert interval(failed, tries) == pytest.approx((low, high), abs=1e-4)


def test_without_tries_nothing_is_known() -> None:
    assert interval(0, 0) == (0.0, 1.0)
