"""Adaptive pools in one, two and three dimensions, of static shapes.

Window ``i`` of ``n`` over a dim of size ``s`` is ``[i*s // n, ceil((i+1)*s / n))``, dim by dim (PyTorch's
``AdaptivePooling.h``), so an average is a product with a matrix per dim, and a maximum a maximum per dim.
"""

from __future__ import annotations

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


def adaptive_max(x: torch.Tensor, out: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """The adaptive maximum pool of the last dims of ``x``, and where in these, flattened, maxima first stand.

    One dim after the other, the last one first: of equal values the first in memory wins, as in PyTorch.
    """
    rank = len(out)
    sizes = list(x.shape[-rank:])
    places = torch.arange(math.prod(sizes), dtype=torch.int32, device=x.device)
    indices = places.view(sizes).expand(x.shape)
    for d in reversed(range(rank)):
        dim, size, count = x.dim() - rank + d, sizes[d], out[d]
        if count == size:
            continue
        maxima, held = [], []
        for begin, end in windows(size, count):
            values, at = torch.max(x.narrow(dim, begin, end - begin), dim, True)
            maxima.append(values)
            held.append(torch.gather(indices.narrow(dim, begin, end - begin), dim, at))
        x = torch.cat(maxima, dim) if count > 1 else maxima[0]
        indices = torch.cat(held, dim) if count > 1 else held[0]
    return x, indices.to(torch.int64)


class RewriteAdaptivePoolsPass(RewritePass):
    """Adaptive average pools in three dimensions, unbatched, or to a larger size."""

    rewrites = (
        Rewrite(
            ("_adaptive_avg_pool2d.default", "_adaptive_avg_pool3d.default"), adaptive_avg_pool
        ),
    )
