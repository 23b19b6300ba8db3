"""Writes out the arguments that the converter misreads, or fails on, when they are left to their defaults."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from executorch.exir.pass_base import PassResult
from torch.fx import GraphModule, Node

from edgeproof.coreai.graph import argument, fake, overload_name

_REDUCTIONS = ("mean.dim", "amax.default", "amin.default", "sum.dim_IntList", "any.dims")
_SQUEEZES = ("squeeze.dims", "squeeze.dim", "squeeze.default")
_AVG_POOLS = {"avg_pool1d.default": 1, "avg_pool2d.default": 2, "avg_pool3d.default": 3}
_MAX_POOLS = {"max_pool2d_with_indices.default": 2, "max_pool3d_with_indices.default": 3}


class NormalizeCoreAIOpArgsPass:
    """Makes implicit arguments explicit: reduced dims, pooling's defaults, squeezed dims.

    - ``mean``, ``amax`` and ``amin`` without dims, or with ``None`` or ``[]``, get all of them; dims are
      counted from the front.
    - Pools get every default, kernels of length one are expanded to the operator's spatial rank, and
      ``ceil_mode`` is cleared where it does not change the shape of the output.
    - ``squeeze`` keeps only dims whose size is one: naming another is a no-op in PyTorch and an error in
      the converter; a squeeze that is left with none is removed.
    """

    def __call__(self, graph_module: GraphModule) -> PassResult:
        """Change ``graph_module`` in place."""
        modified = False
        for node in list(graph_module.graph.nodes):
            name = overload_name(node)
            if name in _REDUCTIONS:
                modified |= _reduction(node)
            elif name in _AVG_POOLS:
                modified |= _pool(node, _AVG_POOLS[name], average=True)
            elif name in _MAX_POOLS:
                modified |= _pool(node, _MAX_POOLS[name], average=False)
            elif name in _SQUEEZES:
                modified |= _squeeze(node)
        if modified:
            graph_module.recompile()
        return PassResult(graph_module, modified)


def _set(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if node.args == args and node.kwargs == kwargs:
        return False
    node.args, node.kwargs = args, kwargs
    return True


def _reduction(node: Node) -> bool:
    rank = fake(node.args[0]).dim()
    if rank == 0 and fake(node.args[0]).dtype == fake(node).dtype:
        node.replace_all_uses_with(node.args[0])
        node.graph.erase_node(node)
        return True
    dims = argument(node, "dim")
    if dims == [] and overload_name(node) == "any.dims":
        return False  # of no dims it is the one reduction that reduces nothing
    every = dims is None or len(dims) == 0
    counted = list(range(rank)) if every else sorted({d % rank if rank else 0 for d in dims})
    kwargs = {"dtype": node.kwargs["dtype"]} if node.kwargs.get("dtype") is not None else {}
    return _set(node, (node.args[0], counted, bool(argument(node, "keepdim"))), kwargs)


def expanded(value: Any, rank: int) -> list[int]:
    """A kernel, stride or padding for ``rank`` spatial dims; a single number stands for all of them."""
    listed = [value] if isinstance(value, int) else list(value)
    return listed * rank if len(listed) == 1 else listed


def pool_parameters(
    node: Node, rank: int
) -> tuple[list[int], list[int], list[int], list[int], bool]:
    """Kernel, stride, padding, dilation and ceil_mode of a pooling node, defaults written out."""
    kernel = expanded(argument(node, "kernel_size"), rank)
    stride = expanded(argument(node, "stride") or kernel, rank)
    padding = expanded(argument(node, "padding") or 0, rank)
    dilation = expanded(argument(node, "dilation") or 1, rank)
    return kernel, stride, padding, dilation, bool(argument(node, "ceil_mode"))


def floor_sizes(
    sizes: Sequence[Any],
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
) -> list[Any]:
    """The spatial output sizes of a pool without ``ceil_mode``."""
    return [
        (size + 2 * p - d * (k - 1) - 1) // s + 1
        for size, k, s, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True)
    ]


def _pool(node: Node, rank: int, *, average: bool) -> bool:
    kernel, stride, padding, dilation, ceil_mode = pool_parameters(node, rank)
    if ceil_mode:
        value = node.meta["val"]
        output = value if isinstance(value, torch.Tensor) else value[0]
        floor = floor_sizes(fake(node.args[0]).shape[-rank:], kernel, stride, padding, dilation)
        static = all(isinstance(size, int) for size in (*floor, *output.shape[-rank:]))
        ceil_mode = not static or list(output.shape[-rank:]) != floor
    if not average:
        return _set(node, (node.args[0], kernel, stride, padding, dilation, ceil_mode), {})
    written: tuple[Any, ...] = (node.args[0], kernel, stride, padding, ceil_mode)
    written += (bool(argument(node, "count_include_pad")),)
    if rank > 1:
        written += (argument(node, "divisor_override"),)
    return _set(node, written, {})


def _squeeze(node: Node) -> bool:
    shape = fake(node.args[0]).shape
    if overload_name(node) == "squeeze.default":
        named = list(range(len(shape)))
    else:
        given = argument(node, "dim")
        named = [given] if isinstance(given, int) else list(given)
    rank = len(shape)
    ones = sorted({d % rank for d in named if rank and shape[d] == 1})
    if not ones:
        node.replace_all_uses_with(node.args[0])
        node.graph.erase_node(node)
        return True
    if overload_name(node) != "squeeze.dims":
        return False
    return _set(node, (node.args[0], ones), {})
