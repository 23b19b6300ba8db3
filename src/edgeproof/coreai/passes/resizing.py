"""Resizing by other than whole factors, which Core AI samples at other places than PyTorch.

PyTorch's ``nearest`` takes the value at ``floor(i * in/out)``; the converter asks for the nearest to the
centre. With corners aligned, an output of one value has no scale, and the converter ends the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from edgeproof.coreai.graph import argument, fake, least, varies
from edgeproof.coreai.passes.rewrite import Replacement, Rewrite, RewritePass, kept_out


def _static_sizes(node: Node) -> tuple[Sequence[int], Sequence[int]] | None:
    sizes, out = fake(node.args[0]).shape[-2:], node.meta["val"].shape[-2:]
    return (sizes, out) if all(isinstance(s, int) for s in (*sizes, *out)) else None


def whole_factors(node: Node) -> bool:
    """Whether each output size is a multiple of the input's, and the scales, if given, say so too."""
    static = _static_sizes(node)
    factors: Any = argument(node, "scale_factors")
    if factors is not None and any(float(f) != int(f) for f in factors):
        return False
    return (
        factors is not None
        if static is None
        else all(o % s == 0 for s, o in zip(*static, strict=True))
    )


def nearest(node: Node) -> Replacement | None:
    """Rows and columns are picked by the positions that PyTorch itself picks, found out ahead."""
    static = _static_sizes(node)
    if static is None or whole_factors(node):
        return None
    (height, width), _ = static
    places = torch.arange(height * width, dtype=torch.float64).view(1, 1, height, width)
    picked = torch.ops.aten.upsample_nearest2d.vec(
        places, argument(node, "output_size"), argument(node, "scale_factors")
    )[0, 0].long()
    rows, columns = (picked[:, 0] // width).int(), (picked[0] % width).int()

    def replacement(x: torch.Tensor) -> torch.Tensor:
        return torch.index_select(torch.index_select(x, 2, rows), 3, columns)

    return replacement


def bilinear(node: Node) -> Replacement | None:
    """With corners aligned, an output of one row (or column) is the first of the input.

    And more rows out of one are that one again; of inputs whose other sizes vary they end the process too.
    """
    if not argument(node, "align_corners"):
        return None
    static = _static_sizes(node)
    if static is None:
        return kept_out if any(least(size) <= 1 for size in fake(node).shape[-2:]) else None
    sizes, out = static
    single = [
        d for d, (size, count) in enumerate(zip(sizes, out, strict=True)) if count == 1 < size
    ]
    only = [d for d, (size, count) in enumerate(zip(sizes, out, strict=True)) if size == 1 < count]
    if not single and not (only and varies(fake(node.args[0]))):
        return None
    resized = [1 if d in only else count for d, count in enumerate(out)]

    def replacement(x: torch.Tensor) -> torch.Tensor:
        for d in single:
            x = x.narrow(2 + d, 0, 1)
        if resized != list(x.shape[-2:]):
            x = torch.ops.aten.upsample_bilinear2d.vec(x, resized, True, None)
        for d in only:
            x = torch.cat([x] * out[d], 2 + d)
        return torch.ops.aten.alias.default(x)

    return replacement


class RewriteResizingPass(RewritePass):
    """Nearest resizing by other than whole factors; bilinear resizing to one row or column."""

    rewrites = (
        Rewrite(("upsample_nearest2d.vec",), nearest),
        Rewrite(("upsample_bilinear2d.vec",), bilinear),
    )
