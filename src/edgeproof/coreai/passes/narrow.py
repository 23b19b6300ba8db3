"""64-bit values inside a program, computed in 32 bits where Core AI is to have them.

Core AI has at most 32 bits. Inputs (and buffers) of int64 or float64 are cast behind the placeholder, and
what is computed from them follows, as far as the converter has a lowering; an operator without one gets
the 64-bit value. Outputs keep their dtype. Values of inputs and buffers, and results, that do not fit 32
bits wrap around: that is the contract of ExecuTorch's own pass for Core AI as well, which this one
replaces. Constants and Python numbers that do not fit are seen here, and what computes with them is left
in 64 bits.

Positions that the program computes (``argmax``, the second of ``topk``) always fit; they are narrowed right
where they are made. The partitioner lets a node have a 64-bit result inside the delegate when all that
uses it is such a narrowing.
"""

from __future__ import annotations

import contextlib
import math
import operator
from typing import Any

import torch
from executorch.exir.pass_base import ExportedProgramPassBase, ExportedProgramPassResult
from torch._guards import detect_fake_mode
from torch.export.exported_program import ExportedProgram
from torch.fx import Node
from torch.utils._pytree import tree_map

from edgeproof.coreai.graph import (
    fake,
    holds,
    in_dialect,
    is_edge,
    numbers,
    overload_name,
    overload_of,
    rename_outputs,
)
from edgeproof.coreai.passes.rewrite import KEPT_OUT
from edgeproof.coreai.targets import resolver_key

NARROWER = {torch.int64: torch.int32, torch.float64: torch.float32}

_POSITIONS: dict[str, int | None] = {
    "argmax.default": None,
    "topk.default": 1,
    "max.dim": 1,
    "min.dim": 1,
}
"""Operators with positions for results, and which of their results these are (``None``: the only one)."""


def narrows(node: Node) -> bool:
    """Whether ``node`` is the cast of a value to int32."""
    return overload_name(node) == "_to_copy.default" and node.kwargs.get("dtype") == torch.int32


def makes_positions(node: Node) -> bool:
    """Whether ``node`` computes int64 values that are no larger than the number of its input's elements."""
    name = overload_name(node)
    counts = name in ("sum.dim_IntList", "cumsum.default")
    return name in _POSITIONS or (counts and fake(node.args[0]).dtype == torch.bool)


class NarrowDtypesPass(ExportedProgramPassBase):  # type: ignore[misc]
    """Computes in 32 bits what the program computes in 64, where the converter has a lowering for it."""

    def call(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        """Change the program's graph in place."""
        narrowing = _Narrowing(exported_program)
        for node in list(exported_program.graph.nodes):
            narrowing.visit(node)
        if narrowing.modified:
            exported_program.graph.eliminate_dead_code()
            exported_program.graph_module.recompile()
            rename_outputs(exported_program)
        return ExportedProgramPassResult(exported_program, narrowing.modified)


class _Narrowing:
    """One walk over a graph; ``_wide`` has the 64-bit node for each that was narrowed."""

    def __init__(self, program: ExportedProgram) -> None:
        self._to_copy = in_dialect(torch.ops.aten._to_copy.default, is_edge(program.graph_module))
        self._program = program
        signature = program.graph_signature
        changed = set(signature.buffers_to_mutate.values())
        self._fixed = {
            spec.arg.name: spec.target
            for spec in signature.input_specs
            if spec.target is not None and spec.target not in changed
        }
        self._wide: dict[Node, Node] = {}
        self.modified = False

    def visit(self, node: Node) -> None:
        if node.op in ("placeholder", "get_attr"):
            if (
                _is_wide(node)
                and any(_may_be_narrow(user) for user in node.users)
                and ((constant := self._constant(node)) is None or _fits_narrow(constant))
            ):
                self._cast_behind(node)
        elif node.op == "call_function":
            if _may_be_narrow(node) and not self._may_outgrow(node):
                self._compute_narrow(node)
            else:
                self._feed_wide(node)
        elif node.op == "output":
            self._feed_wide(node)

    def _constant(self, node: Node) -> torch.Tensor | None:
        """The values that ``node`` always has, if it is a constant."""
        program = self._program
        if node.op == "get_attr":
            value = getattr(program.graph_module, str(node.target))
        else:
            target = self._fixed.get(node.name, "")
            value = program.state_dict.get(target, program.constants.get(target))
        return value if isinstance(value, torch.Tensor) else None

    def _may_outgrow(self, node: Node) -> bool:
        """Whether ``node`` multiplies 64-bit integers that are not known to be small.

        Sums and differences of what fits 32 bits hardly ever do not; products (of hashes, of random
        generators) are often meant not to.
        """
        name = overload_name(node)
        if name not in ("mul.Tensor", "mul.Scalar") and not name.startswith("pow."):
            return False
        if not isinstance(value := node.meta["val"], torch.Tensor) or value.dtype != torch.int64:
            return False
        bounds = [self._bound(a) for a in node.args[:2]]
        known = [bound for bound in bounds if bound is not None]
        return name.startswith("pow.") or len(known) < 2 or math.prod(known) >= 2**31

    def _bound(self, operand: Any) -> int | None:
        """The greatest absolute value that an integer operand can have, ``None`` if it is not known."""
        if not isinstance(operand, Node):
            return abs(int(operand))
        constant = self._constant(operand) if operand.op != "call_function" else None
        if constant is not None:
            greatest: int = max((abs(n) for n in constant.flatten().tolist()), default=0)
            return greatest
        dtype, name = fake(operand).dtype, overload_name(operand)
        if dtype == torch.bool:
            return 1
        if dtype in (torch.uint8, torch.int8, torch.int16):
            return int(max(torch.iinfo(dtype).max, -torch.iinfo(dtype).min))
        if name == "_to_copy.default" and not fake(operand.args[0]).dtype.is_floating_point:
            cast: Node = operand.args[0]
            return self._bound(cast)
        if name == "full_like.default" or _makes_of_numbers(operand):
            return max(int(abs(n)) for n in numbers(operand))
        return None

    def _cast_behind(self, node: Node) -> None:
        value, users = fake(node), list(node.users)
        with node.graph.inserting_after(node):
            cast = node.graph.call_function(
                self._to_copy, (node,), {"dtype": NARROWER[value.dtype]}
            )
        cast.meta["val"] = value.to(NARROWER[value.dtype])
        for user in users:
            user.replace_input_with(node, cast)
        self._wide[cast] = node
        self.modified = True

    def _compute_narrow(self, node: Node) -> None:
        """Let ``node`` have its operands in 32 bits and, if its result follows them, compute in 32 bits."""
        before = node.meta["val"]
        kwargs = dict(node.kwargs)
        if _asks_wide(node) and _fits(node):
            kwargs["dtype"] = NARROWER[fake(node).dtype]
            node.kwargs = kwargs
        elif not any(source in self._wide for source in node.all_input_nodes):
            self._take_positions(node)
            return
        elif not _fits(node) or any(
            _is_wide(source) and source not in self._wide for source in node.all_input_nodes
        ):
            self._feed_wide(node)  # of 32 and 64 bits together it would make 64
            self._take_positions(node)
            return
        try:
            node.meta["val"] = _recomputed(node, before)
        except (RuntimeError, TypeError, ValueError, IndexError):
            self._feed_wide(node)  # PyTorch has the operator in 64 bits alone
            return
        self._note_widths(node, before)
        self._take_positions(node)
        self.modified = True

    def _note_widths(self, node: Node, before: Any) -> None:
        if isinstance(before, torch.Tensor):
            if before.dtype in NARROWER and fake(node).dtype != before.dtype:
                self._wide[node] = self._widened_later(node, before)
            return
        for user in node.users:
            if user.target is operator.getitem:
                was, user.meta["val"] = user.meta["val"], node.meta["val"][user.args[1]]
                self._note_widths(user, was)

    def _widened_later(self, node: Node, before: torch.Tensor) -> Node:
        with node.graph.inserting_after(node):
            wide = node.graph.call_function(self._to_copy, (node,), {"dtype": before.dtype})
        wide.meta["val"] = before
        return wide

    def _feed_wide(self, node: Node) -> None:
        if node.target is operator.getitem or node in self._wide.values():
            return
        for source in list(node.all_input_nodes):
            if source in self._wide:
                node.replace_input_with(source, self._wide[source])
                self.modified = True

    def _take_positions(self, node: Node) -> None:
        if not makes_positions(node):
            return
        which = _POSITIONS.get(overload_name(node))
        held = [node]
        if which is not None:
            held = [u for u in node.users if u.target is operator.getitem and u.args[1] == which]
        for source in held:
            if not source.users or all(narrows(user) for user in source.users):
                continue
            if fake(source).dtype != torch.int64:
                continue
            users = list(source.users)
            with source.graph.inserting_after(source):
                narrow = source.graph.call_function(
                    self._to_copy, (source,), {"dtype": torch.int32}
                )
            narrow.meta["val"] = fake(source).to(torch.int32)
            with source.graph.inserting_after(narrow):
                wide = source.graph.call_function(self._to_copy, (narrow,), {"dtype": torch.int64})
            wide.meta["val"] = fake(source)
            for user in users:
                if not narrows(user):
                    user.replace_input_with(source, narrow)
            self._wide[narrow] = wide
            self.modified = True


def _is_wide(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in NARROWER


def _may_be_narrow(node: Node) -> bool:
    """Whether ``node`` calls an operator that the converter has a lowering for."""
    if node.meta.get(KEPT_OUT):
        return False  # ExecuTorch's own kernels take positions of 64 bits alone
    plain = bool(overload_name(node)) or node.target is operator.getitem
    return plain and node.op == "call_function" and resolver_key(node.target) is not None


def _makes_of_numbers(node: Node) -> bool:
    return overload_name(node) in ("full.default", "scalar_tensor.default", "arange.start_step")


def _asks_wide(node: Node) -> bool:
    """Whether ``node`` makes int64 of numbers, or of what has fewer bits."""
    asked = node.kwargs.get("dtype")
    if asked is None and _makes_of_numbers(node):
        return bool(fake(node).dtype == torch.int64)
    if asked != torch.int64:
        return False
    cast = overload_name(node) == "_to_copy.default"
    return not cast or not fake(node.args[0]).dtype.is_floating_point


def _fits(node: Node) -> bool:
    """Whether the Python numbers that ``node`` computes with fit 32 bits."""
    if not isinstance(overload_of(node.target), torch._ops.OpOverload):
        return True
    values = [node.meta["val"], *(source.meta["val"] for source in node.all_input_nodes)]
    dtypes = {v.dtype for v in values if isinstance(v, torch.Tensor)} & set(NARROWER)
    return all(holds(NARROWER[dtype], n) for n in numbers(node) for dtype in dtypes)


def _fits_narrow(value: torch.Tensor) -> bool:
    """Whether no 64-bit value wraps around, or comes to be infinite or zero, in 32 bits."""
    cast = value.to(NARROWER[value.dtype])
    if not value.is_floating_point():
        return bool(torch.equal(cast.to(value.dtype), value))
    lost = (cast.isinf() & ~value.isinf()) | ((cast == 0) & (value != 0))
    return not bool(lost.any())


def _recomputed(node: Node, before: Any) -> Any:
    args, kwargs = tree_map(
        lambda a: a.meta["val"] if isinstance(a, Node) else a, (node.args, dict(node.kwargs))
    )
    mode = detect_fake_mode([before])
    with mode or contextlib.nullcontext():  # without operands nothing else would make it fake
        return node.target(*args, **kwargs)
