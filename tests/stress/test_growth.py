"""A leak told from noise, from what fills and stays, and from steps."""

from __future__ import annotations

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
