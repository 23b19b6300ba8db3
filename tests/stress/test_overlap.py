"""Whether calls went on at once, told from their times alone."""

from __future__ import annotations

import pytest

from edgeproof.stress.overlap import measure

MS = 1_000_000
Spans = list[list[tuple[int, int]]]


def behind_a_lock(threads: int, calls: int) -> Spans:
    """All wait inside for one lock, which is given round."""
    spans: Spans = [[] for _ in range(threads)]
    free, begin = 0, [0] * threads
    for call in range(threads * calls):
        thread = call % threads
        free += MS
        spans[thread].append((begin[thread], free))
        begin[thread] = free
    return spans


def side_by_side(threads: int, calls: int) -> Spans:
    return [
        [(call * MS + thread, (call + 1) * MS + thread) for call in range(calls)]
        for thread in range(threads)
    ]


def test_calls_side_by_side_overlap() -> None:
    found = measure(side_by_side(4, 10), [0.001] * 4)
    assert found.calls == 40
    assert found.most_at_once == 4
    assert found.overlapped == pytest.approx(found.busy, rel=0.01)
    assert found.together is not None
    assert found.together > 0.7


def test_waiting_for_a_lock_is_no_overlap_though_all_are_inside() -> None:
    found = measure(behind_a_lock(4, 10), [0.001] * 4)
    assert found.most_at_once == 4
    assert found.overlapped > 0.9 * found.busy
    assert found.together == 0


def test_one_after_the_other_is_none_at_all() -> None:
    spans = [[(2 * t * MS, (2 * t + 1) * MS)] for t in range(3)]
    found = measure(spans, [0.001] * 3)
    assert (found.most_at_once, found.overlapped, found.together) == (1, 0.0, 0.0)
    assert found.busy == pytest.approx(0.003)


def test_a_call_that_begins_as_another_ends_is_not_inside_with_it() -> None:
    assert measure([[(0, MS)], [(MS, 2 * MS)]], [None, None]).most_at_once == 1


def test_without_a_time_alone_nothing_is_claimed() -> None:
    assert measure(side_by_side(2, 3), [None, None]).together is None


def test_without_calls_nothing_is_claimed() -> None:
    found = measure([[], []], [0.001, 0.001])
    assert (found.calls, found.busy, found.most_at_once, found.together) == (0, 0.0, 0, None)
