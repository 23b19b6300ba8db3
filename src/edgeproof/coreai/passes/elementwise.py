"""Elementwise operators whose lowering is wrong for some values or dtypes, written with ones that are right.

Most of these are about infinities and NaN: the converter composes ``floor`` of a division by one, ``x <= y``
of ``not (x > y)``, and so on, which agree with PyTorch on ordinary numbers alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from edgeproof.coreai.graph import argument, fake, holds, overload_name, overload_of
from edgeproof.coreai.passes.rewrite import Replacement, Rewrite, RewritePass, by_node
from edgeproof.coreai.passes.shapes import all_bits

FLOAT_RESULTS = tuple(
    f"{name}.default"
    for name in (
        *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "expm1"),
        *("log", "log10", "log1p", "log2", "reciprocal", "rsqrt", "sigmoid", "sin", "sinh", "sqrt"),
        *("tan", "tanh"),
    )
)

_INTEGER_BEFORE = {torch.float32: 2.0**23, torch.float16: 2.0**10}
"""From here on every number of the type is an integer."""


def _operands(node: Node, values: tuple[torch.Tensor, ...]) -> list[Any]:
    """The positional arguments of ``node`` with nodes replaced by ``values``, given for its input nodes."""
    known = by_node(node, values)
    return [known[a] if isinstance(a, Node) else a for a in node.args]


def _is_float(node: Any) -> bool:
    return isinstance(node, Node) and fake(node).dtype.is_floating_point


def cast_first(node: Node) -> Replacement | None:
    """The converter types such results by the operand, PyTorch as floating point: the operand is cast."""
    dtype = node.meta["val"].dtype
    if fake(node.args[0]).dtype == dtype:
        return None
    op = overload_of(node.target)
    return lambda x: op(x.to(dtype))


def rounding(node: Node) -> Replacement | None:
    """``floor``, ``ceil`` and ``trunc`` come out as NaN for infinities: large values are passed through."""
    op, dtype = overload_of(node.target), node.meta["val"].dtype
    if dtype not in _INTEGER_BEFORE:
        return None
    limit = torch.tensor(_INTEGER_BEFORE[dtype], dtype=dtype)
    return lambda x: torch.where(torch.lt(torch.abs(x), limit), op(x), x)


def bitwise_not(node: Node) -> Replacement | None:
    """The converter goes through fp32, which has 24 bits: exclusive or with all bits set."""
    dtype = node.meta["val"].dtype
    if dtype == torch.bool:
        return None
    ones = all_bits(dtype)
    return lambda x: torch.bitwise_xor(x, ones)


def or_equal(node: Node) -> Replacement | None:
    """``x <= y`` is lowered as ``not (x > y)``, which is true for NaN: less or equal, one by one."""
    if not any(_is_float(a) for a in node.args):
        return of_bools(node)
    strict = torch.lt if "le." in str(overload_of(node.target).__name__) else torch.gt

    def replacement(*values: torch.Tensor) -> torch.Tensor:
        x, y = _operands(node, values)
        return torch.logical_or(strict(x, y), torch.eq(x, y))

    return replacement


def remainder(node: Node) -> Replacement | None:
    """Python's remainder from C's, as PyTorch defines it; the converter's is NaN for infinite divisors."""
    dtype = node.meta["val"].dtype
    scalar = not isinstance(node.args[1], Node)
    if not dtype.is_floating_point:
        if not scalar:
            return None
        other = torch.tensor(node.args[1], dtype=dtype)
        return lambda x: torch.remainder(x, other)

    def replacement(*values: torch.Tensor) -> torch.Tensor:
        x, y = (
            a.to(dtype) if isinstance(a, torch.Tensor) else torch.tensor(a, dtype=dtype)
            for a in _operands(node, values)
        )
        rest = torch.fmod(x, y)
        other_side = torch.logical_and(
            torch.ne(rest, 0.0), torch.ne(torch.lt(rest, 0.0), torch.lt(y, 0.0))
        )
        return torch.where(other_side, torch.add(rest, y), rest)

    return replacement


def divide(node: Node) -> Replacement | None:
    """Rounded division: truncated as the truncated quotient, floored with infinite divisors put right."""
    dtype = node.meta["val"].dtype
    mode = "floor" if "floor" in str(node.target) else node.kwargs.get("rounding_mode")
    if (
        not dtype.is_floating_point
        or mode not in ("floor", "trunc")
        or dtype not in _INTEGER_BEFORE
    ):
        return None
    limit = torch.tensor(_INTEGER_BEFORE[dtype], dtype=dtype)
    inf = torch.tensor(float("inf"), dtype=dtype)

    def replacement(*values: torch.Tensor) -> torch.Tensor:
        x, y = (
            a.to(dtype) if isinstance(a, torch.Tensor) else torch.tensor(a, dtype=dtype)
            for a in _operands(node, values)
        )
        if mode == "trunc":
            quotient = torch.div(x, y)
            small = torch.lt(torch.abs(quotient), limit)
            return torch.where(small, torch.trunc(quotient), quotient)
        floored = torch.floor_divide(x, y)
        finite = torch.logical_and(torch.lt(torch.abs(x), inf), torch.ne(x, 0.0))
        apart = torch.ne(torch.lt(x, 0.0), torch.lt(y, 0.0))
        just_below = torch.logical_and(
            torch.logical_and(finite, apart), torch.eq(torch.abs(y), inf)
        )
        return torch.where(just_below, torch.full_like(floored, -1.0), floored)

    return replacement


def atan2(node: Node) -> Replacement | None:
    """The converter answers ±π for a second argument of -0.0: it is made 0.0 unless the first is zero."""
    dtype = node.meta["val"].dtype

    def replacement(*values: torch.Tensor) -> torch.Tensor:
        y, x = (a.to(dtype) for a in _operands(node, values))
        on_axis = torch.logical_and(torch.eq(x, 0.0), torch.ne(y, 0.0))
        return torch.atan2(y, torch.where(on_axis, torch.full_like(x, 0.0), x))

    return replacement


def power(node: Node) -> Replacement | None:
    """A Python exponent of an integer tensor is read in fp16 by the converter: the tensor is cast first.

    Powers of integers end the process where they do not fit, and come out as 0 for negative exponents.
    """
    dtype = node.meta["val"].dtype
    if not dtype.is_floating_point:
        return _integer_power(node)
    if all(fake(a).dtype == dtype for a in node.all_input_nodes):
        return None
    op = overload_of(node.target)

    def replacement(*values: torch.Tensor) -> torch.Tensor:
        operands = _operands(node, values)
        return op(*(a.to(dtype) if isinstance(a, torch.Tensor) else a for a in operands))

    return replacement


def _integer_power(node: Node) -> Replacement | None:
    dtype, exponent = fake(node).dtype, node.args[1]
    if dtype in (torch.bool, torch.int64):  # of 64 bits nothing is delegated
        return None
    if isinstance(exponent, int):
        return (lambda x: _multiplied(x.to(dtype), exponent)) if exponent >= 0 else None
    if not isinstance(exponent, Node) or overload_name(exponent) == "relu.default":
        return None
    if isinstance(node.args[0], int) and not holds(dtype, node.args[0]):
        return None  # PyTorch gives an error when it is run

    def replacement(*values: torch.Tensor) -> torch.Tensor:
        base, to = _operands(node, values)
        to = to.to(dtype)
        base = base.to(dtype) if isinstance(base, torch.Tensor) else torch.full_like(to, base)
        one = torch.full((), 1, dtype=dtype)
        positive = torch.pow(base, torch.relu(to))
        if not dtype.is_signed:
            return positive
        # One over an integer, towards zero: 1 of 1, the sign of a power of -1, else 0.
        odd = torch.eq(torch.bitwise_and(to, one), one)
        sign = torch.where(torch.logical_and(odd, torch.lt(base, 0)), torch.neg(one), one)
        unit = torch.logical_or(torch.eq(base, 1), torch.eq(base, -1))
        inverse = torch.where(unit, sign, torch.full((), 0, dtype=dtype))
        return torch.where(torch.lt(to, 0), inverse, positive)

    return replacement


def _multiplied(x: torch.Tensor, times: int) -> torch.Tensor:
    """``x`` to the power of ``times``, by squaring."""
    result, square = torch.full_like(x, 1), x
    while times:
        if times & 1:
            result = torch.mul(result, square)
        times >>= 1
        square = torch.mul(square, square) if times else square
    return result


def _both_bool(node: Node) -> bool:
    return all(isinstance(a, Node) and fake(a).dtype == torch.bool for a in node.args[:2])


def of_bools(node: Node) -> Replacement | None:
    """Core AI cannot add or order booleans: a sum is "or", a product "and", order one of integers."""
    name = overload_name(node).partition(".")[0]
    if not _both_bool(node):
        return None
    logical = {
        "add": torch.logical_or,
        "maximum": torch.logical_or,
        "mul": torch.logical_and,
        "minimum": torch.logical_and,
    }.get(name)
    op = overload_of(node.target)

    def replacement(*values: torch.Tensor) -> torch.Tensor:
        x, y = _operands(node, values)
        return logical(x, y) if logical else op(x.to(torch.int32), y.to(torch.int32))

    return replacement


def clamp(node: Node) -> Replacement | None:
    """Bounds of an integer tensor are read through a float, and its dtype is not widened to theirs.

    PyTorch lets negative bounds of bytes wrap around.
    """
    dtype = node.meta["val"].dtype
    if fake(node.args[0]).dtype.is_floating_point:
        return None
    low, high = (
        256 + b if dtype == torch.uint8 and isinstance(b, int) and -256 < b < 0 else b
        for b in (argument(node, "min"), argument(node, "max"))
    )
    if not all(holds(dtype, b) for b in (low, high) if isinstance(b, int | float)):
        return None  # PyTorch gives an error when it is run

    def replacement(*values: torch.Tensor) -> torch.Tensor:
        known = by_node(node, values)
        result = known[node.args[0]].to(dtype)
        for bound, limit in ((low, torch.maximum), (high, torch.minimum)):
            if bound is not None:
                given = (
                    known[bound].to(dtype)
                    if isinstance(bound, Node)
                    else torch.tensor(bound, dtype=dtype)
                )
                result = limit(result, given)
        return result

    return replacement


class RewriteElementwisePass(RewritePass):
    """Elementwise operators on integers, infinities and NaN."""

    rewrites = (
        Rewrite(FLOAT_RESULTS, cast_first),
        Rewrite(("floor.default", "ceil.default", "trunc.default"), rounding),
        Rewrite(("bitwise_not.default",), bitwise_not),
        Rewrite(("le.Tensor", "le.Scalar", "ge.Tensor", "ge.Scalar"), or_equal),
        Rewrite(
            (
                "add.Tensor",
                "mul.Tensor",
                "maximum.default",
                "minimum.default",
                "lt.Tensor",
                "gt.Tensor",
            ),
            of_bools,
        ),
        Rewrite(("remainder.Tensor", "remainder.Scalar"), remainder),
        Rewrite(("floor_divide.default", "div.Tensor_mode"), divide),
        Rewrite(("atan2.default",), atan2),
        Rewrite(("clamp.default", "clamp.Tensor"), clamp),
        Rewrite(("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar"), power),
    )
