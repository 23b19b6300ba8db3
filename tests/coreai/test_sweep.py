"""Every variant of every operator that the converter has a lowering for comes out as in eager PyTorch."""

from __future__ import annotations

import os

import pytest

from tests.coreai.conftest import Sweep

pytestmark = pytest.mark.subject

SHARDS = 12
TOGETHER = 12
SAMPLE = int(os.environ.get("EDGEPROOF_SWEEP_SAMPLE", "6"))
SAMPLE_SHARDS = 4

ELSEWHERE = {
    "index/bool mask sum": "its size depends on data; ExecuTorch plans no memory for it",
}
"""Variants that no lowering to ExecuTorch gets right, and why that is not Core AI's doing."""

NOT_VARYING = (
    *(
        "adaptive_avg_pool3d/",
        "adaptive_max_pool",
        "avg_pool3d/",
        "max_pool3d/",
        "median/",
        "sort/",
    ),
    *("bicubic/", "bilinear/recompute", "conv_transpose3d/", "nearest/recompute", "nearest-exact/"),
)
"""What ExecuTorch has no kernel for, or does not lower, when sizes vary, and Core AI does not take either."""


@pytest.mark.parametrize("shard", range(SHARDS))
def test_variants_come_out_right(sweep: Sweep, shard: int) -> None:
    names = [name for name in sweep.names()[shard::SHARDS] if name not in ELSEWHERE]
    wrong = {}
    for start in range(0, len(names), TOGETHER):
        for name, result in sweep.check(names[start : start + TOGETHER]).items():
            if result["outcome"] != "right":
                wrong[name] = f"{result['outcome']}: {result['why']}"
    assert not wrong, "\n".join(f"{name}: {why}" for name, why in wrong.items())


@pytest.mark.parametrize("shard", range(SAMPLE_SHARDS))
def test_variants_whose_sizes_vary_come_out_right_or_say_why_not(sweep: Sweep, shard: int) -> None:
    """Every sixth; see CONTRIBUTING.md for all of them."""
    names = [name for name in sweep.names()[::SAMPLE] if name not in ELSEWHERE]
    names = names[shard::SAMPLE_SHARDS]
    wrong = {}
    for start in range(0, len(names), TOGETHER):
        for name, result in sweep.check(names[start : start + TOGETHER], dynamic=True).items():
            excused = result["outcome"] == "failed" and name.startswith(NOT_VARYING)
            if result["outcome"] != "right" and not excused:
                wrong[name] = f"{result['outcome']}: {result['why']}"
    assert not wrong, "\n".join(f"{name}: {why}" for name, why in wrong.items())


def test_the_comparison_can_fail(sweep: Sweep) -> None:
    found = sweep.check(["add/alpha"], forced=True)["add/alpha"]
    assert found["outcome"] == "wrong"
