"""Every variant of every operator that the converter has a lowering for comes out as in eager PyTorch."""

from __future__ import annotations

import pytest

from tests.coreai.conftest import Sweep

pytestmark = pytest.mark.subject

SHARDS = 12
TOGETHER = 12

ELSEWHERE = {
    "index/bool mask sum": "its size depends on data; ExecuTorch plans no memory for it",
}
"""Variants that no lowering to ExecuTorch gets right, and why that is not Core AI's doing."""


@pytest.mark.parametrize("shard", range(SHARDS))
def test_variants_come_out_right(sweep: Sweep, shard: int) -> None:
    names = [name for name in sweep.names()[shard::SHARDS] if name not in ELSEWHERE]
    wrong = {}
    for start in range(0, len(names), TOGETHER):
        for name, result in sweep.check(names[start : start + TOGETHER]).items():
            if result["outcome"] != "right":
                wrong[name] = f"{result['outcome']}: {result['why']}"
    assert not wrong, "\n".join(f"{name}: {why}" for name, why in wrong.items())


def test_the_comparison_can_fail(sweep: Sweep) -> None:
    found = sweep.check(["add/alpha"], forced=True)["add/alpha"]
    assert found["outcome"] == "wrong"
