"""Normalisations without weights, or whose statistics are used."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Node

from edgeproof.coreai.graph import argument, fake
from edgeproof.coreai.passes.rewrite import (
    Replacement,
    Rewrite,
    RewritePass,
    by_node,
    kept_out,
)

_BATCH_NORM: Any = torch.ops.aten._native_batch_norm_legit_no_training.default


def batch_norm(node: Node) -> Replacement | None:
    """Without a weight or a bias the converter fails: ones and zeros are written out."""
    x, mean = fake(node.args[0]), fake(node.args[3])
    if isinstance(node.args[1], Node) and isinstance(node.args[2], Node):
        return None
    if not isinstance(x.shape[1], int):
        return kept_out
    ones, zeros = (
        torch.ones(x.shape[1], dtype=mean.dtype),
        torch.zeros(x.shape[1], dtype=mean.dtype),
    )

    def replacement(*values: torch.Tensor) -> Any:
        known = by_node(node, values)
        weight = known[node.args[1]] if isinstance(node.args[1], Node) else ones
        bias = known[node.args[2]] if isinstance(node.args[2], Node) else zeros
        return _BATCH_NORM(
            known[node.args[0]],
            weight,
            bias,
            known[node.args[3]],
            known[node.args[4]],
            *node.args[5:],
        )

    return replacement


def _statistics(x: torch.Tensor, dims: list[int], eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and reciprocal standard deviation over ``dims``, kept, in at least fp32."""
    wide = x.to(torch.float32)
    mean = torch.mean(wide, dims, True)
    centred = torch.sub(wide, mean)
    variance = torch.mean(torch.mul(centred, centred), dims, True)
    return mean.to(x.dtype), torch.rsqrt(torch.add(variance, eps)).to(x.dtype)


def uses_statistics(node: Node) -> bool:
    """Whether anything uses more than the normalised values of a norm with several results."""
    return any(
        user.target is operator.getitem and user.args[1] != 0 and user.users for user in node.users
    )


def layer_norm(node: Node) -> Replacement | None:
    """The converter has the normalised values alone: mean and standard deviation are computed beside."""
    if not uses_statistics(node):
        return None
    shape, eps = list(node.args[1]), float(argument(node, "eps"))

    def replacement(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        known = by_node(node, values)
        x, weight, bias = (
            known[node.args[i]] if isinstance(node.args[i], Node) else None for i in (0, 2, 3)
        )
        result = torch.ops.aten.native_layer_norm.default(x, shape, weight, bias, eps)
        assert x is not None
        dims = list(range(x.dim() - len(shape), x.dim()))
        return (result[0], *_statistics(x, dims, eps))

    return replacement


def group_norm(node: Node) -> Replacement | None:
    """As ``layer_norm``, with statistics (N, groups)."""
    x = fake(node.args[0])
    if not uses_statistics(node) or not all(isinstance(size, int) for size in x.shape[1:]):
        return None
    groups, eps = int(argument(node, "group")), float(argument(node, "eps"))

    def replacement(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        known = by_node(node, values)
        x, weight, bias = (
            known[node.args[i]] if isinstance(node.args[i], Node) else None for i in (0, 1, 2)
        )
        result = torch.ops.aten.native_group_norm.default(x, weight, bias, *node.args[3:])
        assert x is not None
        grouped = torch.ops.aten.view.default(x, [-1, groups, x[0].numel() // groups])
        mean, deviation = _statistics(grouped, [2], eps)
        return result[0], torch.squeeze(mean, 2), torch.squeeze(deviation, 2)

    return replacement


class RewriteNormalizationPass(RewritePass):
    """Batch norm without weights; layer and group norm whose mean or deviation is used."""

    rewrites = (
        Rewrite(("_native_batch_norm_legit_no_training.default",), batch_norm),
        Rewrite(("native_layer_norm.default",), layer_norm),
        Rewrite(("native_group_norm.default",), group_norm),
    )
