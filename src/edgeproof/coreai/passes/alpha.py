"""``x ± alpha*y`` as a multiplication and a plain addition or subtraction."""

from __future__ import annotations

import torch
from torch.fx import Node

from edgeproof.coreai.graph import argument, overload_name
from edgeproof.coreai.passes.rewrite import Replacement, Rewrite, RewritePass


def add_sub(node: Node) -> Replacement | None:
    """The replacement of an add or sub with an alpha, or with operands of another dtype than its result.

    The converter ignores alpha. Operands are cast first, so that no binary operator sees two dtypes.
    """
    alpha = argument(node, "alpha")
    scaled = alpha != 1
    dtype = node.meta["val"].dtype
    if not scaled and all(source.meta["val"].dtype == dtype for source in node.all_input_nodes):
        return None
    combine = torch.sub if overload_name(node).startswith("sub") else torch.add
    operands = node.args[:2]

    def replacement(*tensors: torch.Tensor) -> torch.Tensor:
        given = iter(dict.fromkeys(a for a in operands if isinstance(a, Node)))
        values = dict(zip(given, tensors, strict=True))
        x, y = (
            values[a].to(dtype) if isinstance(a, Node) else torch.tensor(a, dtype=dtype)
            for a in operands
        )
        if scaled:
            y = torch.mul(y, torch.tensor(alpha, dtype=dtype))
        return combine(x, y)

    return replacement


class DecomposeAddSubAlphaPass(RewritePass):
    """Writes ``x ± alpha*y`` as a multiply and a plain add or sub, alpha a constant in the output's dtype."""

    rewrites = (Rewrite(("add.Tensor", "sub.Tensor", "add.Scalar", "sub.Scalar"), add_sub),)
