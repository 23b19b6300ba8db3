"""Reading and writing the graphs that passes and rules work on.

Both dialects are served: ATen graphs (``torch.ops.aten``) and ExecuTorch's edge graphs, whose operators
wrap ATen overloads and whose views are ``*_copy`` operators.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from executorch.exir.dialects._ops import ops as edge_ops
from executorch.exir.dialects.edge._ops import EdgeOpOverload
from torch.export.exported_program import ExportedProgram
from torch.fx import GraphModule, Node
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy


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


def least(size: Any) -> int:
    """The least that ``size`` can be, with dynamic sizes of inputs taken to be one or more.

    That is what the delegate demands of them. (Export notes 2 as the least of a size that may be 0 or 1.)
    """
    if isinstance(size, int):
        return size
    ranges = ranges_of(size, lambda _, lower: lower if lower > 2 else 1)
    lower = bound_sympy(size.node.expr, ranges).lower
    return int(lower) if lower.is_Integer else 0


def ranges_of(size: torch.SymInt, low: Callable[[Any, Any], Any]) -> dict[Any, ValueRanges[Any]]:
    """Of each symbol in ``size`` what export knows, beginning at what ``low`` makes of it and its least."""
    ranges = {}
    for symbol in size.node.expr.free_symbols:
        known = size.node.shape_env.var_to_range.get(symbol, ValueRanges(0, int_oo))
        lower = low(symbol, known.lower)
        ranges[symbol] = ValueRanges(lower, max(known.upper, lower))
    return ranges


def varies(*tensors: torch.Tensor) -> bool:
    """Whether any size of these is dynamic."""
    return any(not isinstance(size, int) for tensor in tensors for size in tensor.shape)


def same_size(size: Any, other: Any) -> bool:
    """Whether two sizes are known to be the same, whatever the dynamic ones come to be."""
    first, second = (s if isinstance(s, int) else s.node.expr for s in (size, other))
    return bool(first == second)


def holds(dtype: torch.dtype, number: float) -> bool:
    """Whether ``number`` is within the range of ``dtype``: a float becomes no infinity, and not zero."""
    if dtype == torch.bool:
        return True
    if isinstance(number, float) and not math.isfinite(number):
        return bool(dtype.is_floating_point)
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        return bool(info.min <= number <= info.max)
    finfo = torch.finfo(dtype)
    return bool(number == 0 or finfo.smallest_normal / 2**24 <= abs(number) <= finfo.max)


def numbers(node: Node) -> list[float]:
    """The Python numbers that a call computes with; sizes, dims and positions are none of them."""
    found = []
    for position, declared in enumerate(overload_of(node.target)._schema.arguments):
        kind = declared.type
        kind = kind.getElementType() if isinstance(kind, torch.OptionalType) else kind
        if isinstance(kind, torch.IntType | torch.ListType | torch.BoolType):
            continue
        given = node.args[position] if position < len(node.args) else node.kwargs.get(declared.name)
        if isinstance(given, int | float) and not isinstance(given, bool):
            found.append(given)
    return found


def rename_outputs(program: ExportedProgram) -> None:
    """Write the names of what the graph gives into the program's signature, after a change of the graph."""
    results = program.graph.output_node().args[0]
    for spec, result in zip(program.graph_signature.output_specs, results, strict=True):
        if isinstance(result, Node):
            spec.arg.name = result.name


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
    if base.startswith("sym_"):  # of sizes, not of tensors
        return op
    if base in _TO_COPY_FORMS:
        base += "_copy"
    return getattr(getattr(edge_ops.edge.aten, base), variant)
