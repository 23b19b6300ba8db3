"""Reading and writing the graphs that passes and rules work on.

Both dialects are served: ATen graphs (``torch.ops.aten``) and ExecuTorch's edge graphs, whose operators
wrap ATen overloads and whose views are ``*_copy`` operators.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from executorch.exir.dialects._ops import ops as edge_ops
from executorch.exir.dialects.edge._ops import EdgeOpOverload
from torch.fx import GraphModule, Node


def overload_of(target: Any) -> Any:
    """The ATen overload behind ``target``; anything that is not an edge operator comes back as it is."""
    return target._op if isinstance(target, EdgeOpOverload) else target


def overload_name(node: Node) -> str:
    """``add.Tensor`` for a call of that ATen operator in either dialect, views without ``_copy``.

    '' for everything else.
    """
    if node.op != "call_function":
        return ""
    return _aten_name(node.target)


@functools.cache
def _aten_name(target: Any) -> str:
    aten = overload_of(target)
    if getattr(aten, "namespace", None) != "aten":
        return ""
    base, _, variant = str(aten.__name__).partition(".")
    return f"{base.removesuffix('_copy') if base != '_to_copy' else base}.{variant}"


def argument(node: Node, name: str, default: Any = None) -> Any:
    """The argument ``name`` of a call by its schema: given by position, by keyword, or its default.

    ``default`` is what an operator without such an argument gives.
    """
    for position, declared in enumerate(overload_of(node.target)._schema.arguments):
        if declared.name != name:
            continue
        if name in node.kwargs:
            return node.kwargs[name]
        if not declared.kwarg_only and position < len(node.args):
            return node.args[position]
        return declared.default_value if declared.has_default_value() else default
    return default


def fake(node: Any) -> torch.Tensor:
    """The fake tensor that stands for what ``node`` computes."""
    value = node.meta["val"]
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{node} computes {type(value).__name__}, not a tensor")
    return value


def is_edge(graph_module: GraphModule) -> bool:
    """Whether the graph is in ExecuTorch's edge dialect."""
    return any(isinstance(node.target, EdgeOpOverload) for node in graph_module.graph.nodes)


_TO_COPY_FORMS = frozenset(
    [
        "alias",
        "detach",
        "diagonal",
        "expand",
        "permute",
        "select",
        "slice",
        "split",
        "split_with_sizes",
        "squeeze",
        "t",
        "transpose",
        "unbind",
        "unfold",
        "unsqueeze",
        "view",
        "view_as_complex",
        "view_as_real",
    ]
)


def in_dialect(op: Any, edge: bool) -> Any:
    """The operator of the wanted dialect for the ATen overload ``op``: views become ``*_copy`` in edge."""
    if not edge or getattr(op, "namespace", None) != "aten":
        return op
    base, _, variant = str(op.__name__).partition(".")
    if base in _TO_COPY_FORMS:
        base += "_copy"
    return getattr(getattr(edge_ops.edge.aten, base), variant)
