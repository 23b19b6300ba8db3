"""64-bit values inside a program, computed in 32 bits where Core AI is to have them.

Core AI has at most 32 bits. Inputs (and buffers) of int64 or float64 are cast behind the placeholder, and
what is computed from them follows, as far as the converter has a lowering; an operator without one gets
the 64-bit value. Outputs keep their dtype. Values that do not fit 32 bits wrap around: that is the
contract of ExecuTorch's own pass for Core AI as well, which this one replaces.

Positions that the program computes (``argmax``, the second of ``topk``) always fit; they are narrowed right
where they are made. The partitioner lets a node have a 64-bit result inside the delegate when all that
uses it is such a narrowing.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from executorch.exir.pass_base import PassResult
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_map

from edgeproof.coreai.graph import fake, in_dialect, is_edge, overload_name
from edgeproof.coreai.targets import resolver_key

NARROWER = {torch.int64: torch.int32, torch.float64: torch.float32}

_POSITIONS: dict[str, int | None] = {
    "argmax.default": None,
    "topk.default": 1,
    "max.dim": 1,
    "min.dim": 1,
}
"""Operators with positions for results, and which of their results these are (``None``: the only one)."""

_LIMIT = 2**31


def narrows(node: Node) -> bool:
    """Whether ``node`` is the cast of a value to int32."""
    return overload_name(node) == "_to_copy.default" and node.kwargs.get("dtype") == torch.int32


def makes_positions(node: Node) -> bool:
    """Whether ``node`` computes int64 values that are no larger than the number of its input's elements."""
    name = overload_name(node)
    counts = name in ("sum.dim_IntList", "cumsum.default")
    return name in _POSITIONS or (counts and fake(node.args[0]).dtype == torch.bool)


class NarrowDtypesPass:
    """Computes in 32 bits what the program computes in 64, where the converter has a lowering for it."""

    def __call__(self, graph_module: GraphModule) -> PassResult:
        """Change ``graph_module`` in place."""
        narrowing = _Narrowing(graph_module)
        for node in list(graph_module.graph.nodes):
            narrowing.visit(node)
        if narrowing.modified:
            graph_module.graph.eliminate_dead_code()
            graph_module.recompile()
        return PassResult(graph_module, narrowing.modified)


class _Narrowing:
    """One walk over a graph; ``_wide`` has the 64-bit node for each that was narrowed."""

    def __init__(self, graph_module: GraphModule) -> None:
        self._to_copy = in_dialect(torch.ops.aten._to_copy.default, is_edge(graph_module))
        self._wide: dict[Node, Node] = {}
        self.modified = False

    def visit(self, node: Node) -> None:
        if node.op == "placeholder":
            if _is_wide(node) and any(_may_be_narrow(user) for user in node.users):
                self._cast_behind(node)
        elif node.op == "call_function":
            if _may_be_narrow(node):
                self._compute_narrow(node)
            else:
                self._feed_wide(node)
        elif node.op == "output":
            self._feed_wide(node)

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
            kwargs["dtype"] = NARROWER[kwargs["dtype"]]
            node.kwargs = kwargs
        elif not any(source in self._wide for source in node.all_input_nodes):
            self._take_positions(node)
            return
        try:
            node.meta["val"] = _recomputed(node)
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
    plain = bool(overload_name(node)) or node.target is operator.getitem
    return plain and node.op == "call_function" and resolver_key(node.target) is not None


def _asks_wide(node: Node) -> bool:
    """Whether ``node`` makes int64 of numbers, or of what has fewer bits."""
    if node.kwargs.get("dtype") != torch.int64:
        return False
    cast = overload_name(node) == "_to_copy.default"
    return not cast or not fake(node.args[0]).dtype.is_floating_point


def _fits(node: Node) -> bool:
    """Whether the numbers that ``node``, which names a 64-bit dtype, is given fit 32 bits."""
    numbers = [a for a in node.args if isinstance(a, int | float) and not isinstance(a, bool)]
    return all(abs(n) < _LIMIT for n in numbers)


def _recomputed(node: Node) -> Any:
    args, kwargs = tree_map(
        lambda a: a.meta["val"] if isinstance(a, Node) else a, (node.args, dict(node.kwargs))
    )
    return node.target(*args, **kwargs)
