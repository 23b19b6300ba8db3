"""The engine of the rewriting passes: a node is replaced by what a plain torch function traces to.

A rewrite is written as torch code on tensors, so that it can be tested against the operator in eager
PyTorch, with no lowering in between. Here the function is traced on the fake values of the node's inputs,
decomposed to Core ATen, put into the dialect of the graph and inlined where the node was.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Never

import torch
from coreai_torch import get_decomp_table
from executorch.exir.pass_base import PassResult
from torch._guards import detect_fake_mode
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_map

from edgeproof.coreai.graph import in_dialect, is_edge, overload_name

Replacement = Callable[..., Any]
"""Takes the values of ``node.all_input_nodes`` in that order, gives what the node gives."""


KEPT_OUT = "edgeproof_kept_out"
"""Marks, in a node's ``meta``, that a pass found it can only be kept out of the delegate."""


def kept_out(*_: Any) -> Never:
    """What ``build`` answers for a node that is wrong as it is, or may be, and cannot be mended.

    A rule of ``variants.py`` keeps such nodes out of the delegate.
    """
    raise AssertionError("stands for no replacement")


@dataclass(frozen=True)
class Rewrite:
    """Replaces calls of ``operators`` by what ``build`` writes for them.

    ``build`` looks at one node and answers with the function that replaces it, with ``None`` when this node
    is right as it is, or with ``kept_out``.
    """

    operators: tuple[str, ...]
    build: Callable[[Node], Replacement | None]


class RewritePass:
    """Applies rewrites to a graph, each node once; subclasses name theirs in ``rewrites``."""

    rewrites: tuple[Rewrite, ...] = ()

    def __call__(self, graph_module: GraphModule) -> PassResult:
        """Change ``graph_module`` in place."""
        by_name = {name: rewrite for rewrite in self.rewrites for name in rewrite.operators}
        modified = False
        for node in list(graph_module.graph.nodes):
            rewrite = by_name.get(overload_name(node))
            replacement = rewrite.build(node) if rewrite and not takes_sizes(node) else None
            if replacement is kept_out:
                node.meta[KEPT_OUT] = True
            elif replacement is not None:
                inline(graph_module, node, replacement)
                modified = True
        if modified:
            graph_module.graph.eliminate_dead_code()
            graph_module.recompile()
        return PassResult(graph_module, modified)


def by_node(node: Node, values: Sequence[torch.Tensor]) -> dict[Any, torch.Tensor]:
    """The values that a replacement is given, by the input nodes of ``node`` that they stand for."""
    return dict(zip(node.all_input_nodes, values, strict=True))


def takes_sizes(node: Node) -> bool:
    """Whether ``node`` is given a size that the program computes: a scalar, for which it is not delegated."""
    return any(
        isinstance(n.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool)
        for n in node.all_input_nodes
    )


@functools.cache
def core_decompositions() -> dict[Any, Any]:
    """The decompositions after which the converter knows every operator (building them takes a second)."""
    table: dict[Any, Any] = get_decomp_table()
    return table


def inline(graph_module: GraphModule, node: Node, replacement: Replacement) -> None:
    """Replace ``node`` by the operators that ``replacement`` traces to on the node's inputs."""
    sources = list(node.all_input_nodes)
    traced = trace(replacement, [source.meta["val"] for source in sources])
    edge = is_edge(graph_module)
    graph = graph_module.graph
    mode = detect_fake_mode([source.meta["val"] for source in sources])
    copies: dict[Node, Node] = dict(
        zip((n for n in traced.graph.nodes if n.op == "placeholder"), sources, strict=True)
    )
    with graph.inserting_before(node):
        for inner in traced.graph.nodes:
            if inner.op == "get_attr":
                constant = getattr(traced, inner.target)
                copies[inner] = insert_constant(graph_module, constant, mode)
            elif inner.target in _PASSED_ON:
                copies[inner] = copies[inner.args[0]]
            elif inner.op == "call_function":
                args, kwargs = tree_map(
                    lambda a: copies[a] if isinstance(a, Node) else a,
                    (inner.args, dict(inner.kwargs)),
                )
                args = _scalars_to_tensors(graph_module, inner, args, edge, mode)
                copy = graph.call_function(in_dialect(inner.target, edge), args, kwargs)
                copy.meta = {**_provenance(node), "val": inner.meta.get("val")}
                copies[inner] = copy
    (results,) = traced.graph.output_node().args
    results = list(results) if isinstance(results, tuple | list) else [results]
    if isinstance(node.meta["val"], torch.Tensor):
        (result,) = results
        node.replace_all_uses_with(copies[result])
        graph.erase_node(node)
        return
    for user in list(node.users):
        if user.target is not operator.getitem:
            raise ValueError(f"{user} uses {node} whole, which has several results")
        user.replace_all_uses_with(copies[results[user.args[1]]])
        graph.erase_node(user)
    graph.erase_node(node)


_PASSED_ON = frozenset(
    {
        torch.ops.aten.lift_fresh.default,
        torch.ops.aten.lift_fresh_copy.default,
        torch.ops.aten.detach.default,
        torch.ops.aten.alias.default,
    }
)
"""What tracing writes around constants and results, and means nothing in a graph without aliases."""


def trace(replacement: Replacement, values: Sequence[Any]) -> GraphModule:
    """The Core ATen graph of ``replacement`` on fake ``values``, symbolic sizes kept symbolic."""
    symbolic = any(
        isinstance(value, torch.SymInt)
        or (
            isinstance(value, torch.Tensor)
            and any(isinstance(s, torch.SymInt) for s in value.shape)
        )
        for value in values
    )

    def of_all(values: Sequence[Any]) -> Any:
        return replacement(*values)

    traced: GraphModule = make_fx(
        of_all,
        decomposition_table=core_decompositions(),
        tracing_mode="symbolic" if symbolic else "fake",
        _allow_non_fake_inputs=True,
    )(list(values))
    traced.graph.eliminate_dead_code()
    return traced


def insert_constant(graph_module: GraphModule, constant: torch.Tensor, mode: Any) -> Node:
    """A node that holds ``constant``, at the graph's insertion point; lowering lifts it to a buffer."""
    number = 0
    while hasattr(graph_module, name := f"_edgeproof_constant_{number}"):
        number += 1
    graph_module.register_buffer(name, constant)
    node: Node = graph_module.graph.get_attr(name)
    node.meta["val"] = mode.from_tensor(constant, static_shapes=True) if mode else constant
    return node


def _scalars_to_tensors(
    graph_module: GraphModule, inner: Node, args: tuple[Any, ...], edge: bool, mode: Any
) -> tuple[Any, ...]:
    """In the edge dialect Python numbers for tensors become constants of the other operand's dtype."""
    if not edge or not isinstance(inner.target, torch._ops.OpOverload):
        return args
    value = inner.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return args
    tensors = [a.meta["val"] for a in args if isinstance(a, Node)]
    new = list(args)
    for position, declared in enumerate(inner.target._schema.arguments[: len(args)]):
        given = args[position]
        if isinstance(declared.type, torch.TensorType) and isinstance(given, bool | int | float):
            dtype = tensors[0].dtype if tensors else value.dtype
            if isinstance(given, float) and not dtype.is_floating_point:
                dtype = value.dtype
            new[position] = insert_constant(graph_module, torch.tensor(given, dtype=dtype), mode)
    return tuple(new)


def _provenance(node: Node) -> dict[str, Any]:
    kept = ("stack_trace", "nn_module_stack", "source_fn_stack", "debug_handle", "from_node")
    return {key: node.meta[key] for key in kept if key in node.meta}
