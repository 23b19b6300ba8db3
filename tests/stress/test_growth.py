"""A leak told from noise, from what fills and stays, and from steps."""

from __future__ import annotations

import math
import random

import pytest

from edgeproof.stress.growth import LEAST, examine

ITERATIONS = [20.0 * n for n in range(21)]


def test_a_leak_is_found_with_its_slope() -> None:
    noise = random.Random(0)
    held = [1e6 + 1024 * x + noise.uniform(-3000, 3000) for x in ITERATIONS]
    found = examine("heap", ITERATIONS, held)
    assert found.leak
    assert found.per_iteration == pytest.approx(1024, rel=0.05)


def test_noise_is_no_leak() -> None:
    noise = random.Random(0)
    runs = [[1e6 + noise.gauss(0, 200_000) for _ in ITERATIONS] for _ in range(2000)]
    assert sum(examine("heap", ITERATIONS, held).leak for held in runs) <= 1


def test_what_fills_and_stays_is_no_leak() -> None:
    held = [1e6 + min(x, 240) * 5000 for x in ITERATIONS]
    assert not examine("heap", ITERATIONS, held).leak


def test_what_many_threads_fill_one_after_the_other_is_no_leak() -> None:
    """Measured: 50 threads x 100 of a Core AI program. Two threads do not gain a byte in 6000 iterations."""
    gains = [
        10310,
        1187,
        582,
        286,
        319,
        262,
        288,
        219,
        159,
        203,
        205,
        216,
        181,
        117,
        162,
        130,
        85,
        155,
        54,
        42,
    ]
    held = [173_182_128 + 250.0 * sum(gains[:n]) for n in range(21)]
    found = examine("heap", [250.0 * n for n in range(21)], held)
    assert not found.leak
    assert found.resolution is not None
    assert found.resolution >= 54  # a leak that small could hide in it


def test_a_leak_on_top_of_what_fills_is_found() -> None:
    held = [1e6 + 1024 * x + 50_000 * math.log1p(x) for x in ITERATIONS]
    assert examine("heap", ITERATIONS, held).leak


def test_what_a_large_process_moves_by_is_no_leak() -> None:
    held = [9e8 + 5000 * x for x in ITERATIONS]
    assert not examine("resident", ITERATIONS, held).leak
    assert examine("resident", ITERATIONS, [9e8 + 50_000 * x for x in ITERATIONS]).leak


def test_one_step_is_no_leak() -> None:
    held = [1e6 + (x > 200) * 1e6 for x in ITERATIONS]
    assert not examine("heap", ITERATIONS, held).leak


def test_less_than_the_least_is_no_leak_however_steady() -> None:
    step = 0.9 * LEAST["heap"] / (ITERATIONS[-1] - ITERATIONS[7])
    assert not examine("heap", ITERATIONS, [step * x for x in ITERATIONS]).leak


def test_a_descriptor_for_each_iteration_is_a_leak() -> None:
    assert examine("descriptors", ITERATIONS, [8 + x for x in ITERATIONS]).leak


def test_too_few_samples_show_no_leak_and_say_so() -> None:
    found = examine("heap", ITERATIONS[:5], [1e6 * x for x in ITERATIONS[:5]])
    assert not found.leak
    assert found.resolution is None
