"""``CoreAITester``, on upstream's harness."""

from __future__ import annotations

import pytest

from tests.coreai.test_runtime import SETUP
from tests.lab import Lab

pytestmark = pytest.mark.subject


@pytest.mark.parametrize("elsewhere", [False, True])
def test_each_run_has_a_cache_of_its_own_unless_given_one(coreai_lab: Lab, elsewhere: bool) -> None:
    """The folder that was set last may be another test's, and gone."""
    misses, left, before_and_after = coreai_lab.run(
        SETUP
        + f"""
from pathlib import Path
from edgeproof.coreai import runtime
from edgeproof.coreai.tester import CoreAITester
last, given = tempfile.mkdtemp(), tempfile.mkdtemp()
install_runtime(cache_dir=last)
before = cache_stats().misses
for _ in range(2):
    tester = CoreAITester(torch.nn.Linear(4, 3).eval(), (torch.ones(2, 4),),
                          cache_dir=given if {elsewhere} else None)
    torch.nn.init.ones_(tester.original_module.weight); torch.nn.init.ones_(tester.original_module.bias)
    tester.export().to_edge_transform_and_lower().to_executorch().serialize()
    tester.run_method_and_compare_outputs()
misses = cache_stats().misses - before
entries = [sum(not p.name.startswith(".") for p in Path(f).iterdir()) for f in (last, given)]
result = [misses, entries, str(runtime._backend.cache.folder) == last]
"""
    )
    assert misses == (1 if elsewhere else 2)
    assert left == [0, 1 if elsewhere else 0]
    assert before_and_after
