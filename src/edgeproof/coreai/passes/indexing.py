"""Writes and reads at positions, in the forms that the converter refuses or gets wrong."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Node

from edgeproof.coreai.graph import argument, fake, same_size, varies
from edgeproof.coreai.passes.rewrite import (
    Replacement,
    Rewrite,
    RewritePass,
    by_node,
    kept_out,
)

_COMPARED_AT_MOST = 2**22
"""An accumulating write compares every place with every index; beyond this many it stays outside."""


def index_put(node: Node) -> Replacement | None:
    """Masks as a choice, accumulation as a sum over comparisons, values expanded to what is indexed."""
    x, values = fake(node.args[0]), fake(node.args[2])
    indices = list(argument(node, "indices"))
    accumulate = bool(argument(node, "accumulate"))
    given = [(d, i) for d, i in enumerate(indices) if i is not None]
    masks = [i for _, i in given if fake(i).dtype == torch.bool]
    if masks:
        whole = len(given) == 1 and values.numel() == 1 and not accumulate
        return _masked(node, given[0][0], given[0][1]) if whole and not varies(x) else kept_out
    if not given:
        return None
    if varies(x, values, *(fake(i) for _, i in given)):
        return kept_out
    if accumulate:
        return _accumulated(node, given)
    shape = _indexed_shape(x.shape, given)
    return None if tuple(values.shape) == shape else _expanded(node, shape)


def _indexed_shape(sizes: Any, given: list[tuple[int, Any]]) -> tuple[int, ...]:
    """The shape of ``x[indices]``: what is indexed stays in place if it is adjacent, else goes in front."""
    dims = [d for d, _ in given]
    broadcast = torch.broadcast_shapes(*(fake(i).shape for _, i in given))
    rest = [size for d, size in enumerate(sizes) if d not in dims]
    front = dims[0] if dims == list(range(dims[0], dims[0] + len(dims))) else 0
    return (*rest[:front], *broadcast, *rest[front:])


def _masked(node: Node, dim: int, mask: Node) -> Replacement:
    rank, wide = fake(node.args[0]).dim(), fake(mask).dim()
    dtype = fake(node.args[0]).dtype

    def replacement(*tensors: torch.Tensor) -> torch.Tensor:
        known = by_node(node, tensors)
        chosen = known[mask]
        for _ in range(rank - dim - wide):
            chosen = torch.unsqueeze(chosen, -1)
        value = known[node.args[2]].to(dtype)
        for _ in range(value.dim()):
            value = torch.squeeze(value, 0)
        return torch.where(chosen, value, known[node.args[0]])

    return replacement


def _expanded(node: Node, shape: tuple[int, ...]) -> Replacement:
    indices = list(argument(node, "indices"))

    def replacement(*tensors: torch.Tensor) -> torch.Tensor:
        known = by_node(node, tensors)
        values = known[node.args[2]]
        factors = [
            wanted
            // (
                values.shape[d - len(shape) + values.dim()] if d >= len(shape) - values.dim() else 1
            )
            for d, wanted in enumerate(shape)
        ]
        return torch.ops.aten.index_put.default(
            known[node.args[0]],
            [None if i is None else known[i] for i in indices],
            torch.ops.aten.repeat.default(values, factors),
        )

    return replacement


def _accumulated(node: Node, given: list[tuple[int, Any]]) -> Replacement:
    """Adds to every place the values whose index names it, by comparing every place with every index."""
    x = fake(node.args[0])
    dims = [d for d, _ in given]
    rest = [d for d in range(x.dim()) if d not in dims]
    places = math.prod(x.shape[d] for d in dims)
    others = [x.shape[d] for d in rest]
    shape = _indexed_shape(x.shape, given)
    broadcast = torch.broadcast_shapes(*(fake(i).shape for _, i in given))
    count = math.prod(broadcast)
    if places * count * math.prod(others) > _COMPARED_AT_MOST or x.dtype == torch.bool:
        return kept_out
    front = dims[0] if dims == list(range(dims[0], dims[0] + len(dims))) else 0
    strides = [math.prod(x.shape[e] for e in dims[k + 1 :]) for k in range(len(dims))]
    order = [*dims, *rest]
    back = [order.index(d) for d in range(x.dim())]
    compute = torch.float32 if x.dtype == torch.float16 else x.dtype

    def replacement(*tensors: torch.Tensor) -> torch.Tensor:
        known = by_node(node, tensors)
        base, values = known[node.args[0]], known[node.args[2]]
        flat: torch.Tensor | None = None
        for (dim, index), stride in zip(given, strides, strict=True):
            at = known[index].to(torch.int32)
            at = torch.where(torch.lt(at, 0), torch.add(at, x.shape[dim]), at)
            at = torch.mul(at, stride) if stride != 1 else at
            flat = at if flat is None else torch.add(flat, at)
        assert flat is not None
        if tuple(flat.shape) != tuple(broadcast):
            flat = flat.expand(broadcast)
        named = torch.eq(
            torch.arange(places, dtype=torch.int32).view([places, 1]), flat.reshape([1, count])
        )
        spread = values.to(compute).expand(shape)
        middle = list(range(front, front + len(broadcast)))
        around = [d for d in range(len(shape)) if d not in middle]
        spread = spread.permute([*middle, *around]).reshape([1, count, *others])
        chosen = torch.where(
            named.view([places, count, *[1] * len(others)]),
            spread,
            torch.full((), 0, dtype=compute),
        )
        added = torch.sum(chosen, [1], dtype=compute)
        added = added.view([*(x.shape[d] for d in dims), *others]).permute(back)
        return torch.add(base.to(compute), added).to(x.dtype)

    return replacement


def _shorter(index: torch.Tensor, x: torch.Tensor, dim: int | None = None) -> list[int]:
    """The dims other than ``dim`` in which ``index`` is, or may be, shorter than ``x``."""
    sizes = enumerate(zip(index.shape, x.shape, strict=True))
    return [d for d, (mine, other) in sizes if d != dim and not same_size(mine, other)]


def gather(node: Node) -> Replacement | None:
    """An index that is shorter than the input in other dims reads from the start of these."""
    x, index = fake(node.args[0]), fake(node.args[2])
    if x.dim() == 0:
        return None
    dim = node.args[1] % x.dim()
    shorter = _shorter(index, x, dim)
    if not shorter:
        return None
    if varies(x, index):
        return kept_out

    def replacement(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        for d in shorter:
            x = x.narrow(d, 0, index.shape[d])
        return torch.gather(x, dim, index)

    return replacement


def scatter(node: Node) -> Replacement | None:
    """A shorter index writes to the start of the other dims, and reads only the start of the source."""
    x, index = fake(node.args[0]), fake(node.args[2])
    source = node.args[3]
    tensors = [x, index, *([fake(source)] if isinstance(source, Node) else [])]
    if x.dim() == 0:
        return None
    dim = node.args[1] % x.dim()
    shorter = _shorter(index, x, dim)
    longer = isinstance(source, Node) and bool(_shorter(index, fake(source)))
    if not shorter and not longer:
        return None
    if varies(*tensors):
        return kept_out

    def replacement(*given: torch.Tensor) -> torch.Tensor:
        known = by_node(node, given)
        base, at = known[node.args[0]], known[node.args[2]]
        written: Any = known[source] if isinstance(source, Node) else source
        if longer:
            for d, size in enumerate(index.shape):
                written = written.narrow(d, 0, size)
        parts = [base]
        for d in shorter:
            parts.append(parts[-1].narrow(d, 0, index.shape[d]))
        result = torch.scatter(parts[-1], dim, at, written)
        for d, outer in zip(reversed(shorter), reversed(parts[:-1]), strict=True):
            result = torch.slice_scatter(outer, result, d, 0, index.shape[d], 1)
        return result

    return replacement


class RewriteIndexingPass(RewritePass):
    """Writes with accumulation, masks or broadcast values; gathers and scatters by shorter indices."""

    rewrites = (
        Rewrite(("index_put.default",), index_put),
        Rewrite(("gather.default",), gather),
        Rewrite(("scatter.src", "scatter.value"), scatter),
    )
