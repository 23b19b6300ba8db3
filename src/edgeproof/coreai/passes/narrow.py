"""Positions that a program computes as int64, taken out of the delegate as int32.

Core AI has at most 32 bits, so a node with an int64 result stays outside the delegate. For results that
count positions (``argmax``, the second of ``topk``, a sum of booleans) int32 is enough: they are narrowed
right where they are made and widened behind that, where other nodes need int64. The partitioner lets a
node have a 64-bit result inside the delegate when all that uses it is such a narrowing.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from executorch.exir.pass_base import PassResult
from torch.fx import GraphModule, Node

from edgeproof.coreai.graph import fake, in_dialect, is_edge, overload_name

_POSITIONS = {
    "argmax.default": None,
    "topk.default": 1,
    "max.dim": 1,
    "min.dim": 1,
}
"""Operators with positions for results, and which of their results these are."""

_TAKES_INT32 = {
    "index.Tensor": 1,
    "embedding.default": 1,
    "index_select.default": 2,
    "index_put.default": 1,
}
"""Operators that take int32 positions as well as int64 ones, and in which argument."""


def narrows(node: Node) -> bool:
    """Whether ``node`` is the cast of an int64 value to int32."""
    return overload_name(node) == "_to_copy.default" and node.kwargs.get("dtype") == torch.int32


class NarrowPositionsPass:
    """Casts positions to int32 where they are computed, and back to int64 for whatever else uses them."""

    def __call__(self, graph_module: GraphModule) -> PassResult:
        edge = is_edge(graph_module)
        to_copy = in_dialect(torch.ops.aten._to_copy.default, edge)
        modified = False
        for node in list(graph_module.graph.nodes):
            for source in _positions(node):
                if all(narrows(user) for user in source.users):
                    continue
                _narrow(source, to_copy)
                modified = True
        if modified:
            graph_module.graph.eliminate_dead_code()
            graph_module.recompile()
        return PassResult(graph_module, modified)


def makes_positions(node: Node) -> bool:
    """Whether ``node`` computes int64 values that are no larger than the number of its input's elements."""
    name = overload_name(node)
    counts = name in ("sum.dim_IntList", "cumsum.default")
    return name in _POSITIONS or (counts and fake(node.args[0]).dtype == torch.bool)


def _positions(node: Node) -> list[Node]:
    """The nodes that hold the positions which ``node`` computes, those that are used."""
    if not makes_positions(node):
        return []
    which = _POSITIONS.get(overload_name(node))
    held = (
        [node]
        if which is None
        else [u for u in node.users if u.target is operator.getitem and u.args[1] == which]
    )
    return [n for n in held if n.users and fake(n).dtype == torch.int64]


def _narrow(source: Node, to_copy: Any) -> None:
    users = list(source.users)
    graph, value = source.graph, fake(source)
    with graph.inserting_after(source):
        narrow = graph.call_function(to_copy, (source,), {"dtype": torch.int32})
    narrow.meta["val"] = value.to(torch.int32)
    with graph.inserting_after(narrow):
        wide = graph.call_function(to_copy, (narrow,), {"dtype": torch.int64})
    wide.meta["val"] = value
    for user in users:
        if narrows(user):
            continue
        direct = _TAKES_INT32.get(overload_name(user))
        replacement = narrow if direct is not None and _within(user.args[direct], source) else wide
        user.replace_input_with(source, replacement)


def _within(argument: Any, node: Node) -> bool:
    return node in argument if isinstance(argument, list | tuple) else argument is node
