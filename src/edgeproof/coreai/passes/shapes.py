"""Zero-dim and empty tensors, casts that wrap around, and other corners of simple operators."""

from __future__ import annotations

import operator
from typing import Any

import torch
from executorch.exir.pass_base import PassResult
from torch._guards import detect_fake_mode
from torch.fx import GraphModule, Node

from edgeproof.coreai.graph import argument, fake, holds, overload_name, overload_of, varies
from edgeproof.coreai.passes.rewrite import (
    Replacement,
    Rewrite,
    RewritePass,
    by_node,
    inline,
    insert_constant,
    takes_sizes,
)


def to_zero_dim(node: Node) -> Replacement | None:
    """The converter cannot reshape to no dims: they are squeezed."""
    x = fake(node.args[0])
    if node.meta["val"].dim() != 0 or x.dim() == 0:
        return None
    return lambda x: torch.squeeze(x, list(range(x.dim())))


def flip(node: Node) -> Replacement | None:
    """Turning no dims round is nothing."""
    return None if argument(node, "dims") else lambda x: torch.ops.aten.alias.default(x)


def cast(node: Node) -> Replacement | None:
    """Casts between integer types saturate in Core AI and wrap around in PyTorch."""
    x, dtype = fake(node.args[0]).dtype, node.meta["val"].dtype
    if x.is_floating_point or x == torch.bool or dtype not in _BITS or x not in _BITS:
        return None
    if (
        torch.iinfo(x).min >= torch.iinfo(dtype).min
        and torch.iinfo(x).max <= torch.iinfo(dtype).max
    ):
        return None
    bits, offset = _BITS[dtype], -torch.iinfo(dtype).min

    def replacement(x: torch.Tensor) -> torch.Tensor:
        wide = x.to(torch.int32)
        if offset:
            wide = torch.add(wide, offset)
        wide = torch.bitwise_and(wide, torch.full((), 2**bits - 1, dtype=torch.int32))
        if offset:
            wide = torch.sub(wide, offset)
        return wide.to(dtype)

    return replacement


def all_bits(dtype: torch.dtype) -> torch.Tensor:
    """The integer of ``dtype`` whose bits are all set, with no dims."""
    return torch.tensor(torch.iinfo(dtype).max if dtype == torch.uint8 else -1, dtype=dtype)


_BITS = {torch.uint8: 8, torch.int8: 8, torch.int16: 16, torch.int32: 32}


_END = 2**63 - 1

REPLICATION_PADS = tuple(f"replication_pad{rank}d.default" for rank in (1, 2, 3))


def pad(node: Node) -> Replacement | None:
    """To replicate negative numbers of values is to crop, which the converter does not do."""
    return _cropped(node, list(argument(node, "padding")))


def constant_pad(node: Node) -> Replacement | None:
    """Where cropping may leave nothing the node is not delegated, and ExecuTorch's own kernel only pads."""
    if not varies(fake(node.args[0])):
        return None
    return _cropped(node, list(argument(node, "pad")), *node.args[2:])


def _cropped(node: Node, amounts: list[int], *more: Any) -> Replacement | None:
    if all(amount >= 0 for amount in amounts):
        return None
    op, rank = overload_of(node.target), fake(node.args[0]).dim()

    def replacement(x: torch.Tensor) -> torch.Tensor:
        for d in range(len(amounts) // 2):
            before, after = (max(-amount, 0) for amount in amounts[2 * d : 2 * d + 2])
            if before or after:
                x = torch.ops.aten.slice.Tensor(x, rank - 1 - d, before, -after or _END)
        return op(x, [max(amount, 0) for amount in amounts], *more)

    return replacement


def any_(node: Node) -> Replacement | None:
    """``any`` of bytes gives a byte; of a zero-dim tensor, or over no dims, what is not zero."""
    x = fake(node.args[0])
    over_no_dims = overload_name(node) == "any.dims" and argument(node, "dim") == []
    if x.dim() == 0 or over_no_dims:
        dtype = node.meta["val"].dtype
        return lambda x: (x.clone() if x.dtype == torch.bool else torch.ne(x, 0)).to(dtype)
    if x.dtype != torch.uint8:
        return None
    op, rest = overload_of(node.target), node.args[1:]
    return lambda x: op(torch.ne(x, 0), *rest).to(torch.uint8)


def whole_of_zero_dim(node: Node) -> Replacement | None:
    """Reducing a zero-dim tensor makes the converter end the process: the tensor is its own reduction."""
    if fake(node.args[0]).dim() != 0:
        return None
    value = node.meta["val"]
    dtypes = [v.dtype for v in (value if isinstance(value, tuple | list) else [value])]

    def replacement(x: torch.Tensor) -> Any:
        if len(dtypes) == 1:
            return x.to(dtypes[0]) if x.dtype != dtypes[0] else torch.ops.aten.alias.default(x)
        return torch.ops.aten.alias.default(x), torch.full((), 0, dtype=dtypes[1])

    return replacement


def of_one_value(node: Node) -> Replacement | None:
    """Softmax and norm of a zero-dim tensor, which end the process in the converter."""
    if fake(node.args[0]).dim() != 0:
        return None
    name, dtype = overload_name(node), node.meta["val"].dtype
    if name.startswith("linalg_vector_norm"):
        if argument(node, "ord") == 0:
            return lambda x: torch.ne(x, 0.0).to(dtype)
        return lambda x: torch.abs(x).to(dtype)
    if name.startswith("_log"):
        return lambda x: torch.sub(x, x).to(dtype)
    return lambda x: torch.exp(torch.sub(x, x)).to(dtype)


def extremum_of_bool(node: Node) -> Replacement | None:
    """The largest of booleans is whether any is true, the least whether none is false."""
    if fake(node.args[0]).dtype != torch.bool:
        return None
    dims, keepdim = list(argument(node, "dim")), bool(argument(node, "keepdim"))
    if "amax" in str(overload_of(node.target).__name__):
        return lambda x: torch.ops.aten.any.dims(x, dims, keepdim)
    return lambda x: torch.logical_not(torch.ops.aten.any.dims(torch.logical_not(x), dims, keepdim))


def sort(node: Node) -> Replacement | None:
    """Neither the converter nor ExecuTorch's runtime has ``sort``: it is ``topk`` of all."""
    x, dim = fake(node.args[0]), argument(node, "dim")
    if x.dim() == 0 or not isinstance(x.shape[dim], int) or x.shape[dim] == 0:
        return None
    size, descending = x.shape[dim], bool(argument(node, "descending"))

    def replacement(x: torch.Tensor) -> Any:
        if x.dtype != torch.bool:
            return _nan_first_topk(x, size, dim, descending)
        values, positions = _nan_first_topk(x.to(torch.int32), size, dim, descending)
        return values.to(torch.bool), positions

    return replacement


def topk(node: Node) -> Replacement | None:
    """Core AI sorts NaN behind all numbers, PyTorch before the largest."""
    x, dim = fake(node.args[0]), argument(node, "dim")
    if x.dim() == 0 or not x.dtype.is_floating_point or not argument(node, "largest"):
        return None
    return lambda x: _nan_first_topk(x, node.args[1], dim, True)


def _nan_first_topk(x: torch.Tensor, k: Any, dim: int, largest: bool) -> Any:
    """The ``k`` largest, NaN largest of all, or smallest; and where they stand."""
    if not largest or not x.dtype.is_floating_point:
        return torch.topk(x, k, dim, largest, True)
    inf = torch.full((), float("inf"), dtype=x.dtype)
    greatest = torch.full((), torch.finfo(x.dtype).max, dtype=x.dtype)
    ordered = torch.where(torch.ne(x, x), inf, torch.minimum(x, greatest))
    positions = torch.topk(ordered, k, dim, True, True)[1]
    return torch.gather(x, dim, positions), positions


OF_NOTHING = {
    "sum.dim_IntList": 0.0,
    "mean.dim": float("nan"),
    "mean.default": float("nan"),
    "prod.default": 1.0,
    "prod.dim_int": 1.0,
    "any.default": 0.0,
    "any.dim": 0.0,
    "any.dims": 0.0,
    "linalg_vector_norm.default": 0.0,
}
"""What operators make of no values at all; Core AI leaves such results as they were in memory."""


def of_nothing(node: Node) -> Replacement | None:
    """The result of a reduction over no values, as a constant."""
    x, value = fake(node.args[0]), node.meta["val"]
    if varies(x, value) or x.numel() != 0:
        return None
    shape, dtype, number = list(value.shape), value.dtype, OF_NOTHING[overload_name(node)]
    return lambda *_: torch.full(
        shape, number if dtype.is_floating_point else int(number), dtype=dtype
    )


OF_NUMBERS = ("arange.start_step", "scalar_tensor.default")


def of_numbers(node: Node) -> torch.Tensor | None:
    """The values of ``arange`` or ``scalar_tensor``, to be written out.

    The converter rounds Python floats to fp16 where no operand is a tensor.
    """
    dtype = node.meta["val"].dtype
    if node.all_input_nodes or not any(isinstance(a, float) for a in node.args):
        return None
    if all(float(a).is_integer() and abs(a) <= 2**11 for a in node.args):
        return None
    if not all(holds(dtype, a) for a in node.args):
        return None
    values: torch.Tensor = overload_of(node.target)(*node.args, dtype=dtype)
    return values


def _replace_by_constant(graph_module: GraphModule, node: Node, constant: torch.Tensor) -> None:
    with node.graph.inserting_before(node):
        held = insert_constant(graph_module, constant, detect_fake_mode([node.meta["val"]]))
    node.replace_all_uses_with(held)
    node.graph.erase_node(node)


def arg_extremum(node: Node) -> Replacement | None:
    """PyTorch answers the position of the first NaN, Core AI of the best number: both are asked for."""
    x, name = fake(node.args[0]), overload_name(node)
    if x.dim() == 0:
        return None
    if name in ("argmax.default", "argmin.default"):
        return _arg(node, least=name == "argmin.default")
    if x.dtype == torch.bool:
        return _of_bools_as_integers(node)
    if not x.dtype.is_floating_point:
        return None
    used = any(user.args[1] == 1 and user.users for user in node.users)
    dim, keepdim = argument(node, "dim"), bool(argument(node, "keepdim"))
    if not used:
        return None
    op = overload_of(node.target)

    def replacement(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, positions = op(x, dim, keepdim)
        return values, _first_nan_or(x, positions, dim, keepdim)

    return replacement


def _arg(node: Node, *, least: bool) -> Replacement | None:
    dim, keepdim = argument(node, "dim"), bool(argument(node, "keepdim"))
    real = fake(node.args[0]).dtype.is_floating_point
    rank = fake(node.args[0]).dim()
    whole = dim is None and keepdim
    if not (real or least or whole):
        return None

    def replacement(x: torch.Tensor) -> torch.Tensor:
        kept = keepdim and not whole
        turned = x
        if least:
            turned = torch.neg(x) if real else torch.bitwise_xor(x, all_bits(x.dtype))
        positions = torch.argmax(turned, dim, kept)
        if real:
            positions = _first_nan_or(x, positions, dim, kept)
        return torch.ops.aten.view.default(positions, [1] * rank) if whole else positions

    return replacement


def _of_bools_as_integers(node: Node) -> Replacement:
    op, rest = overload_of(node.target), node.args[1:]

    def replacement(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, positions = op(x.to(torch.int32), *rest)
        return values.to(torch.bool), positions

    return replacement


def _first_nan_or(
    x: torch.Tensor, positions: torch.Tensor, dim: int | None, keepdim: bool
) -> torch.Tensor:
    nan = torch.ne(x, x)
    first = torch.argmax(nan.to(torch.float32), dim, keepdim).to(torch.int32)
    has_nan = torch.any(nan) if dim is None else torch.any(nan, dim, keepdim)
    return torch.where(has_nan, first, positions.to(torch.int32)).to(torch.int64)


def addmm(node: Node) -> Replacement | None:
    """With a beta of zero the added matrix does not count, not even its NaN."""
    if argument(node, "beta") != 0:
        return None
    alpha = argument(node, "alpha")

    def replacement(*tensors: torch.Tensor) -> torch.Tensor:
        known = by_node(node, tensors)
        product = torch.mm(known[node.args[1]], known[node.args[2]])
        return product if alpha == 1 else torch.mul(product, alpha)

    return replacement


ONE_VALUE = ("_softmax.default", "_log_softmax.default", "linalg_vector_norm.default")

ZERO_DIM_REDUCTIONS = (
    *(
        "topk.default",
        "amax.default",
        "amin.default",
        "max.default",
        "min.default",
        "max.dim",
        "min.dim",
    ),
    *("sum.dim_IntList", "mean.default", "mean.dim", "prod.default", "cumsum.default"),
)


class RewriteCornersPass(RewritePass):
    """Zero-dim reductions, wrapping casts and other corners; results without elements become constants."""

    rewrites = (
        Rewrite(("view.default", "_unsafe_view.default"), to_zero_dim),
        Rewrite(("flip.default",), flip),
        Rewrite(("_to_copy.default",), cast),
        Rewrite(("any.default", "any.dim", "any.dims"), any_),
        Rewrite(("amax.default", "amin.default"), extremum_of_bool),
        Rewrite(ONE_VALUE, of_one_value),
        Rewrite(("sort.default",), sort),
        Rewrite(("topk.default",), topk),
        Rewrite(REPLICATION_PADS, pad),
        Rewrite(("constant_pad_nd.default",), constant_pad),
        Rewrite(("argmax.default", "argmin.default", "max.dim", "min.dim"), arg_extremum),
        Rewrite(("addmm.default",), addmm),
    )

    def __call__(self, graph_module: GraphModule) -> PassResult:
        """Change ``graph_module`` in place."""
        modified = False
        for node in list(graph_module.graph.nodes):
            if node.op != "call_function" or not node.users or takes_sizes(node):
                continue
            if _is_empty(node):
                inline(graph_module, node, _nothing(fake(node)))
                modified = True
            elif overload_name(node) in OF_NOTHING and (nothing := of_nothing(node)):
                inline(graph_module, node, nothing)
                modified = True
            elif overload_name(node) in OF_NUMBERS and (constant := of_numbers(node)) is not None:
                _replace_by_constant(graph_module, node, constant)
                modified = True
            elif overload_name(node) in ZERO_DIM_REDUCTIONS and (
                replacement := whole_of_zero_dim(node)
            ):
                inline(graph_module, node, replacement)
                modified = True
        result = super().__call__(graph_module)
        if modified:
            graph_module.graph.eliminate_dead_code()
            graph_module.recompile()
        return PassResult(graph_module, modified or result.modified)


def _aten(node: Node) -> str:
    return str(getattr(overload_of(node.target), "__name__", ""))


def _is_empty(node: Node) -> bool:
    value = node.meta.get("val")
    return (
        isinstance(value, torch.Tensor)
        and node.target is not operator.getitem
        and getattr(overload_of(node.target), "namespace", "") == "aten"
        and _aten(node) != "full.default"
        and not varies(value)
        and value.numel() == 0
        and bool(node.all_input_nodes)
    )


def _nothing(value: torch.Tensor) -> Replacement:
    shape, dtype = list(value.shape), value.dtype
    return lambda *_: torch.full(shape, 0, dtype=dtype)
