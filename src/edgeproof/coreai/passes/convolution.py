"""Transposed three-dimensional convolution, which the converter does not have."""

from __future__ import annotations

import torch
from torch.fx import Node

from edgeproof.coreai.graph import argument, fake
from edgeproof.coreai.passes.normalize import expanded
from edgeproof.coreai.passes.rewrite import Replacement, Rewrite, RewritePass, by_node


def conv_transpose3d(node: Node) -> Replacement | None:
    """A convolution of the input with zeros between its values, by the flipped kernel.

    Dumoulin and Visin, "A guide to convolution arithmetic for deep learning" (arXiv:1603.07285), section 4:
    strides become zeros inside, padding ``p`` becomes ``d*(k-1) - p``, output padding goes to the far end.
    """
    x, weight = fake(node.args[0]), fake(node.args[1])
    if not argument(node, "transposed") or x.dim() != 5:
        return None
    if not all(isinstance(size, int) for size in (*x.shape[1:], *weight.shape)):
        return None
    stride, padding, dilation, extra = (
        expanded(argument(node, name), 3)
        for name in ("stride", "padding", "dilation", "output_padding")
    )
    groups = int(argument(node, "groups"))

    def replacement(*values: torch.Tensor) -> torch.Tensor:
        known = by_node(node, values)
        x, weight = known[node.args[0]], known[node.args[1]]
        bias = known[node.args[2]] if isinstance(node.args[2], Node) else None
        y = with_zeros_between(x, stride)
        pads: list[int] = []
        for d in (2, 1, 0):
            edge = dilation[d] * (weight.shape[2 + d] - 1) - padding[d]
            pads += [edge, edge + extra[d]]
        if any(pads):
            y = torch.constant_pad_nd(y, pads, 0.0)
        turned = flipped_weight(weight, groups)
        return torch.ops.aten.convolution.default(
            y, turned, bias, [1, 1, 1], [0, 0, 0], dilation, False, [0, 0, 0], groups
        )

    return replacement


def flipped_weight(weight: torch.Tensor, groups: int) -> torch.Tensor:
    """(in, out/groups, *k) of a transposed convolution as (out, in/groups, *k), the kernel turned round."""
    channels_in, per_group, *kernel = weight.shape
    turned = torch.flip(weight, [2, 3, 4])
    if groups == 1:
        return torch.permute(turned, [1, 0, 2, 3, 4])
    split = torch.ops.aten.view.default(turned, [groups, channels_in // groups, per_group, -1])
    swapped = torch.permute(split, [0, 2, 1, 3])
    return torch.ops.aten.view.default(
        swapped.contiguous(), [groups * per_group, channels_in // groups, *kernel]
    )


def with_zeros_between(x: torch.Tensor, stride: list[int]) -> torch.Tensor:
    """``x`` (N, C, D, H, W) with ``stride - 1`` zeros after every value but the last of each spatial dim."""
    for d, s in enumerate(stride):
        if s == 1:
            continue
        sizes = list(x.shape[2:])
        inner = sizes[d + 1 :]
        spread = torch.ops.aten.view.default(x, [-1, *x.shape[1 : 3 + d], 1, *inner])
        spread = torch.constant_pad_nd(spread, [0, 0] * len(inner) + [0, s - 1], 0.0)
        sizes[d] *= s
        x = torch.ops.aten.view.default(spread, [-1, x.shape[1], *sizes])
        x = x.narrow(2 + d, 0, sizes[d] - s + 1)
    return x


class RewriteTransposedConvolutionPass(RewritePass):
    """Three-dimensional transposed convolutions as plain ones."""

    rewrites = (Rewrite(("convolution.default",), conv_transpose3d),)
