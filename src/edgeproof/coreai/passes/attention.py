"""Attention: ranks, masks and value widths that the converter does not expect.

It hides masked scores by subtracting 1e4, which is not enough for large scores, and has no answer for a
row that is masked throughout, where PyTorch's is zero. It stays one operator: Core AI lowers it whole.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

from edgeproof.coreai.graph import argument, fake
from edgeproof.coreai.passes.rewrite import Replacement, Rewrite, RewritePass, by_node

_SDPA = torch.ops.aten.scaled_dot_product_attention.default


def attention(node: Node) -> Replacement | None:
    """Attention in rank 4, with an additive mask of infinities."""
    query, value = fake(node.args[0]), fake(node.args[2])
    mask = argument(node, "attn_mask")
    rank, scale = query.dim(), argument(node, "scale")
    causal, gqa = bool(argument(node, "is_causal")), bool(argument(node, "enable_gqa"))
    narrow_value = query.shape[-1] != value.shape[-1]
    if rank == 4 and mask is None and not narrow_value and not causal:
        return None

    def replacement(*values: torch.Tensor) -> torch.Tensor:
        known = by_node(node, values)
        q, k, v = (_rank_4(known[node.args[i]]) for i in range(3))
        additive = _causal(q, k) if causal else None
        blind: torch.Tensor | None = None
        if isinstance(mask, Node):
            additive, blind = _additive(known[mask], q.dtype)
            if rank == 3 and additive.dim() == 3:
                additive, blind = torch.unsqueeze(additive, 1), torch.unsqueeze(blind, 1)
        if narrow_value:
            result = _by_hand(q, k, v, additive, scale, gqa)
        else:
            result = _SDPA(q, k, v, additive, 0.0, False, scale=scale, enable_gqa=gqa)
        if blind is not None:
            result = torch.where(blind, torch.full((), 0.0, dtype=result.dtype), result)
        for _ in range(4 - rank):
            result = torch.squeeze(result, 1 if result.dim() == 4 else 0)
        return result

    return replacement


def _rank_4(x: torch.Tensor) -> torch.Tensor:
    if x.dim() == 2:
        x = torch.unsqueeze(x, 0)
    return torch.unsqueeze(x, 1) if x.dim() == 3 else x


def _causal(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """(L, S) or (1, 1, L, S): infinities for the keys behind each query, whatever the lengths come to be."""
    lengths = (q.shape[-2], k.shape[-2])
    if all(isinstance(length, int) for length in lengths):
        return torch.full(lengths, -math.inf).triu(1).to(q.dtype)
    rows, columns = (
        torch.cumsum(torch.full_like(x[:1, :1, :, :1], 1.0, dtype=torch.float32), 2) for x in (q, k)
    )
    zero, hidden = (torch.full((), n, dtype=q.dtype) for n in (0.0, -math.inf))
    return torch.where(torch.gt(columns.transpose(2, 3), rows), hidden, zero)


def _additive(mask: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """The mask as what is added to scores, and which rows (last dim one) it masks throughout."""
    if mask.dtype == torch.bool:
        zero, hidden = (torch.full((), n, dtype=dtype) for n in (0.0, -math.inf))
        return torch.where(mask, zero, hidden), torch.logical_not(torch.any(mask, -1, True))
    mask = mask.to(dtype)
    return mask, torch.eq(torch.amax(mask, [-1], True), -math.inf)


def _by_hand(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    additive: torch.Tensor | None,
    scale: Any,
    gqa: bool,
) -> torch.Tensor:
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else float(scale)
    if gqa:
        k = torch.repeat_interleave(k, q.shape[1] // k.shape[1], 1)
        v = torch.repeat_interleave(v, q.shape[1] // v.shape[1], 1)
    scores = torch.matmul(torch.mul(q, factor), k.transpose(-1, -2))
    if additive is not None:
        scores = torch.add(scores, additive)
    return torch.matmul(torch.softmax(scores, -1), v)


class RewriteAttentionPass(RewritePass):
    """Attention with masks, in other ranks than four, or with values of another width than the query's."""

    rewrites = (Rewrite(("scaled_dot_product_attention.default",), attention),)
