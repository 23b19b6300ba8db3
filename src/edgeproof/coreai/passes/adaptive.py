"""Adaptive pools in one, two and three dimensions, of static shapes.

Window ``i`` of ``n`` over a dim of size ``s`` is ``[i*s // n, ceil((i+1)*s / n))``, dim by dim (PyTorch's
``AdaptivePooling.h``), so an average is a product with a matrix per dim, and a maximum a maximum per dim.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch.fx import Node

from edgeproof.coreai.graph import fake, overload_name
from edgeproof.coreai.passes.rewrite import Replacement, Rewrite, RewritePass


def windows(size: int, count: int) -> list[tuple[int, int]]:
    """Begin and end of each of ``count`` adaptive windows over ``size`` values."""
    return [(i * size // count, -((i + 1) * size // -count)) for i in range(count)]


def adaptive_avg_pool(node: Node) -> Replacement | None:
    """The replacement of an adaptive average pool that the converter does not have or refuses."""
    rank = 3 if overload_name(node).startswith("_adaptive_avg_pool3d") else 2
    x, out = fake(node.args[0]), list(node.meta["val"].shape[-rank:])
    sizes = list(x.shape[-rank:])
    if not all(isinstance(size, int) for size in (*sizes, *out)):
        return None
    served = rank == 2 and x.dim() == 4 and all(n <= s for n, s in zip(out, sizes, strict=True))
    if served:
        return None
    shares = [_shares(size, n).to(x.dtype) for size, n in zip(sizes, out, strict=True)]

    def replacement(x: torch.Tensor) -> torch.Tensor:
        for d, share in enumerate(shares):
            dim = x.dim() - rank + d
            if share.shape[0] == share.shape[1]:
                continue
            if share.shape[1] == 1:
                x = torch.mean(x, [dim], True)
            else:
                x = torch.matmul(x.transpose(dim, -1), share).transpose(dim, -1)
        return x

    return replacement


def _shares(size: int, count: int) -> torch.Tensor:
    """The matrix (size, count) that averages over the adaptive windows."""
    share = torch.zeros(size, count, dtype=torch.float64)
    for i, (begin, end) in enumerate(windows(size, count)):
        share[begin:end, i] = 1 / (end - begin)
    return share


def adaptive_max(x: torch.Tensor, out: Sequence[int]) -> torch.Tensor:
    """The adaptive maximum pool of the last dims of ``x``."""
    rank = len(out)
    for d, count in enumerate(out):
        dim = x.dim() - rank + d
        size = x.shape[dim]
        if count == size:
            continue
        parts = [
            torch.amax(x.narrow(dim, begin, end - begin), [dim], True)
            for begin, end in windows(size, count)
        ]
        x = torch.cat(parts, dim) if count > 1 else parts[0]
    return x


def adaptive_max_indices(x: torch.Tensor, values: torch.Tensor, rank: int) -> torch.Tensor:
    """Where each of the adaptive maxima first stands in the flattened spatial dims of ``x``, int64."""
    sizes, out = list(x.shape[-rank:]), list(values.shape[-rank:])
    flat = torch.arange(math.prod(sizes), dtype=torch.int32).view(sizes)
    beyond = torch.full((), math.prod(sizes), dtype=torch.int32)
    cells = []
    for cell in itertools.product(*(range(n) for n in out)):
        window, numbers, value = x, flat, values
        for d, i in enumerate(cell):
            begin, end = windows(sizes[d], out[d])[i]
            window = window.narrow(x.dim() - rank + d, begin, end - begin)
            numbers = numbers.narrow(d, begin, end - begin)
            value = value.narrow(x.dim() - rank + d, i, 1)
        dims = list(range(x.dim() - rank, x.dim()))
        cells.append(torch.amin(torch.where(torch.eq(window, value), numbers, beyond), dims, True))
    last = x.dim() - 1
    listed = torch.cat([torch.flatten(c, x.dim() - rank) for c in cells], last - rank + 1)
    shape = [*x.shape[:-rank], *out]
    shape[0] = -1 if x.dim() > rank else shape[0]
    return torch.ops.aten.view.default(listed, shape).to(torch.int64)


class RewriteAdaptivePoolsPass(RewritePass):
    """Adaptive average pools in three dimensions, unbatched, or to a larger size."""

    rewrites = (
        Rewrite(
            ("_adaptive_avg_pool2d.default", "_adaptive_avg_pool3d.default"), adaptive_avg_pool
        ),
    )
