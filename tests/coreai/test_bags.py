"""embedding_bag, which neither the converter nor ExecuTorch's kernels have."""

from __future__ import annotations

import pytest

from tests.coreai.test_runtime import SETUP
from tests.lab import Lab

pytestmark = pytest.mark.subject


def test_it_is_pytorchs_in_every_mode(coreai_lab: Lab) -> None:
    """Empty bags, a padding index, weights for each row, a last offset, infinities in another bag."""
    wrong = coreai_lab.run(
        """
import itertools, torch
from edgeproof.coreai.passes.bags import embedding_bag
torch.manual_seed(0)
table, indices = torch.randn(10, 4), torch.tensor([1, 2, 4, 5, 4, 7, 2, 9])
table[7] = float("inf")
result, tried = [], 0
starts = ([0, 4], [0, 0, 3], [0, 2, 4], [0, 3, 8], [0, 8], [0, 2, 2, 5, 8])
for mode, last, padding, weighted in itertools.product((0, 1, 2), (0, 1), (None, 2), (0, 1)):
    if weighted and mode:
        continue  # PyTorch has weights for sums alone
    for offsets in starts:
        given = (table, indices, torch.tensor(offsets), False, mode, False,
                 torch.randn(8) if weighted else None, bool(last), padding)
        right = torch.ops.aten.embedding_bag.padding_idx(*given)[0]
        tried += 1
        if not torch.allclose(embedding_bag(*given)[0], right, equal_nan=True, atol=1e-6):
            result.append([mode, last, padding, weighted, offsets])
assert tried == 96, tried
"""
    )
    assert wrong == []


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_it_runs_inside_the_delegate(coreai_lab: Lab, mode: str) -> None:
    worst, left = coreai_lab.run(
        SETUP
        + f"""
torch.manual_seed(0)
module = torch.nn.EmbeddingBag(10, 4, mode={mode!r}).eval()
given = (torch.tensor([1, 2, 4, 5, 4, 3, 2, 9]), torch.tensor([0, 3, 3]))
edge = lowered(module, given)
left = [str(n.target) for n in edge.exported_program().graph.nodes if n.op == "call_function"]
program = Runtime.get().load_program(edge.to_executorch().buffer)
result = [off(module, given, method=program.load_method("forward")), left]
"""
    )
    assert worst < 1e-6
    assert not any("embedding" in name for name in left)
