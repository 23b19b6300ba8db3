"""Pools that the converter gets wrong, written as pools that it gets right.

Its average pool pads with zeros, sums and divides by the size of the kernel, whatever ``ceil_mode`` and
``count_include_pad`` say. Its maximum pool answers zeros for the indices. Three-dimensional maximum pools
it does not have, and unbatched inputs it does not expect.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from edgeproof.coreai.graph import argument, fake, overload_name
from edgeproof.coreai.passes.normalize import pool_parameters
from edgeproof.coreai.passes.rewrite import Replacement, Rewrite, RewritePass

_AVERAGE = {
    2: torch.ops.aten.avg_pool2d.default,
    3: torch.ops.aten.avg_pool3d.default,
}


def avg_pool(node: Node) -> Replacement | None:
    """An average pool over padded values, scaled where windows hold fewer than the whole kernel."""
    rank = 3 if overload_name(node).startswith("avg_pool3d") else 2
    kernel, stride, padding, _, ceil_mode = pool_parameters(node, rank)
    include = bool(argument(node, "count_include_pad")) or not any(padding)
    override = argument(node, "divisor_override")
    x = fake(node.args[0])
    batched = x.dim() == rank + 2
    if batched and not ceil_mode and include:
        return None
    sizes, out = list(x.shape[-rank:]), list(node.meta["val"].shape[-rank:])
    if not all(isinstance(size, int) for size in (*sizes, *out)):
        return None
    pads = _pads(sizes, out, kernel, stride, padding, [1] * rank)
    divisor = math.prod(kernel)
    if override is None:
        counts = [
            _window_counts(*dim, include=include)
            for dim in zip(sizes, out, kernel, stride, padding, strict=True)
        ]
        share = divisor / _outer(counts)
    else:
        share = torch.tensor(divisor / override)
    uniform = bool((share == share.flatten()[0]).all())
    scale = (share.flatten()[0].clone() if uniform else share).to(x.dtype)
    scaled = not uniform or float(scale) != 1

    def replacement(x: torch.Tensor) -> torch.Tensor:
        y = x if batched else torch.unsqueeze(x, 0)
        if any(pads):
            y = torch.constant_pad_nd(y, pads, 0.0)
        y = _AVERAGE[rank](y, kernel, stride, [0] * rank)
        if scaled:
            y = torch.mul(y, scale)
        return y if batched else torch.squeeze(y, 0)

    return replacement


def max_pool(node: Node) -> Replacement | None:
    """A maximum pool with explicit padding, dims one after the other, indices computed if used."""
    rank = 3 if overload_name(node).startswith("max_pool3d") else 2
    kernel, stride, padding, dilation, ceil_mode = pool_parameters(node, rank)
    x = fake(node.args[0])
    batched = x.dim() == rank + 2
    indices = any(user.args[1] == 1 and user.users for user in node.users)
    if rank == 2 and batched and not ceil_mode and not indices and x.dtype.is_floating_point:
        return None
    out = list(node.meta["val"][0].shape[-rank:])
    if not all(isinstance(size, int) for size in (*x.shape[-rank - 1 :], *out)):
        return None
    if not x.dtype.is_floating_point or any(
        user.target is not operator.getitem for user in node.users
    ):
        return None
    sizes = list(x.shape[-rank:])
    beyond = torch.tensor(math.prod(sizes), dtype=torch.int32)
    candidates = _candidates(sizes, out, kernel, stride, padding, dilation) if indices else []

    def replacement(x: torch.Tensor) -> tuple[torch.Tensor, Any]:
        y = x if batched else torch.unsqueeze(x, 0)
        values = _padded_max(y, kernel, stride, padding, dilation, out)
        where: torch.Tensor | None = None
        if indices:
            pads = _pads(sizes, out, kernel, stride, padding, dilation)
            padded = torch.constant_pad_nd(y, pads, float("-inf")) if any(pads) else y
            where = _first_holder(padded, values, candidates, beyond)
        if not batched:
            values = torch.squeeze(values, 0)
            where = torch.squeeze(where, 0) if where is not None else None
        return values, where

    return replacement


def _padded_max(
    x: torch.Tensor,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    out: list[int],
) -> torch.Tensor:
    """The maxima of ``x`` (N, C, and two or three spatial dims); a maximum pool is one pool after another."""
    pads = _pads(list(x.shape[2:]), out, kernel, stride, padding, dilation)
    if any(pads):
        x = torch.constant_pad_nd(x, pads, float("-inf"))
    pool = torch.ops.aten.max_pool2d_with_indices.default
    if len(kernel) == 2:
        return pool(x, kernel, stride, [0, 0], dilation)[0]
    channels, depth, height, width = x.shape[1:]
    planes = torch.ops.aten.view.default(x, [-1, channels * depth, height, width])
    planes = pool(planes, kernel[1:], stride[1:], [0, 0], dilation[1:])[0]
    lines = torch.ops.aten.view.default(planes, [-1, channels, depth, out[1] * out[2]])
    lines = pool(lines, [kernel[0], 1], [stride[0], 1], [0, 0], [dilation[0], 1])[0]
    return torch.ops.aten.view.default(lines, [-1, channels, *out])


@dataclass(frozen=True)
class _Candidate:
    """One position of the window: how to slice it out of the padded input, and where each value stands."""

    begins: tuple[int, ...]
    lengths: tuple[int, ...]
    stride: tuple[int, ...]
    flat: torch.Tensor


def _candidates(
    sizes: list[int],
    out: list[int],
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
) -> list[_Candidate]:
    """The positions of the window; those in the padding stand behind all others, so that they never win."""
    found = []
    for position in itertools.product(*(range(k) for k in kernel)):
        inside, flat = torch.ones(out, dtype=torch.bool), torch.zeros(out, dtype=torch.int32)
        for d, k in enumerate(position):
            at = torch.arange(out[d], dtype=torch.int32) * stride[d] - padding[d] + k * dilation[d]
            along = [-1 if e == d else 1 for e in range(len(out))]
            inside = inside & ((at >= 0) & (at < sizes[d])).view(along)
            flat = flat + (at * math.prod(sizes[d + 1 :])).view(along)
        found.append(
            _Candidate(
                tuple(k * d for k, d in zip(position, dilation, strict=True)),
                tuple((n - 1) * s + 1 for n, s in zip(out, stride, strict=True)),
                tuple(stride),
                torch.where(inside, flat, math.prod(sizes)).to(torch.int32),
            )
        )
    return found


def _first_holder(
    padded: torch.Tensor,
    values: torch.Tensor,
    candidates: Sequence[_Candidate],
    beyond: torch.Tensor,
) -> torch.Tensor:
    """Where in the flattened plane (or volume) each of ``values`` first stands, int64."""
    best: torch.Tensor | None = None
    for candidate in candidates:
        window = padded
        for d, (begin, length, step) in enumerate(
            zip(candidate.begins, candidate.lengths, candidate.stride, strict=True)
        ):
            window = torch.ops.aten.slice.Tensor(window, 2 + d, begin, begin + length, step)
        here = torch.where(torch.eq(window, values), candidate.flat, beyond)
        best = here if best is None else torch.minimum(best, here)
    assert best is not None
    return best.to(torch.int64)


def _pads(
    sizes: list[int],
    out: list[int],
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
) -> list[int]:
    """Padding, last dim first as torch wants it, after which a pool without any has the sizes ``out``."""
    pads: list[int] = []
    for size, n, k, s, p, d in reversed(
        list(zip(sizes, out, kernel, stride, padding, dilation, strict=True))
    ):
        needed = (n - 1) * s + d * (k - 1) + 1 - size - p
        pads += [p, max(needed, 0)]
    return pads


def _window_counts(
    size: int, out: int, kernel: int, stride: int, padding: int, *, include: bool
) -> torch.Tensor:
    """By how much PyTorch divides along one dim, for each output position.

    Windows end at the padded edge (``ceil_mode`` lets them start further out than they end); without
    ``count_include_pad`` only what lies inside the input counts.
    """
    start = torch.arange(out) * stride - padding
    end = torch.clamp(start + kernel, max=size + padding)
    if include:
        return end - start
    return torch.clamp(end, max=size) - torch.clamp(start, min=0)


def _outer(counts: list[torch.Tensor]) -> torch.Tensor:
    product = torch.ones((), dtype=torch.float64)
    for count in counts:
        product = product.unsqueeze(-1) * count
    return product


class RewritePoolsPass(RewritePass):
    """Average pools with ``ceil_mode`` or uncounted padding; maximum pools in 3-d, or with indices."""

    rewrites = (
        Rewrite(("avg_pool2d.default", "avg_pool3d.default"), avg_pool),
        Rewrite(("max_pool2d_with_indices.default", "max_pool3d_with_indices.default"), max_pool),
    )
