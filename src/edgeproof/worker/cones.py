"""Which nodes of a lowered graph an output comes from: what a case in a bundle has of the whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Cone:
    """The operators that some outputs come from: those ``outside`` delegates by name, all by number."""

    outside: frozenset[str]
    nodes: int
    delegated: int


def cones(program: Any, counts: Sequence[int]) -> list[Cone]:
    """The cone of each group of outputs of a lowered exported program; ``counts`` are the groups' sizes.

    Raises ``ValueError`` when the program has another number of outputs.
    """
    outputs = list(program.graph.output_node().args[0])
    if len(outputs) != sum(counts):
        raise ValueError(f"the program has {len(outputs)} outputs, its cases {sum(counts)}")
    found, start = [], 0
    for count in counts:
        found.append(_cone(program, outputs[start : start + count]))
        start += count
    return found


def ops_of(program: Any, counts: Sequence[int]) -> list[frozenset[str]]:
    """The operators, without overloads (``aten::add``), that each group of outputs comes from."""
    return [cone.outside for cone in cones(program, counts)]


def _cone(program: Any, outputs: Sequence[Any]) -> Cone:
    outside: set[str] = set()
    nodes = delegated = 0
    seen: set[Any] = set()
    inside: dict[Any, set[int]] = {}
    waiting = [node for node in outputs if hasattr(node, "all_input_nodes")]
    while waiting:
        node = waiting.pop()
        if _is_delegate(node):  # whole, where it is not asked for a single one of its results
            waiting += _through(program, node, None, inside)
            continue
        if node in seen:
            continue
        seen.add(node)
        if node.op == "call_function":
            source = node.args[0] if node.args else None
            if _is_getitem(node) and hasattr(source, "op") and _is_delegate(source):
                waiting += _through(program, source, node.args[1], inside)
                continue
            if not _is_getitem(node):
                outside.add(_name(node.target))
                nodes += 1
        waiting += node.all_input_nodes
    for delegate, wanted in inside.items():
        graph = getattr(program.graph_module, delegate.args[0].target).original_module.graph
        delegated += len(_computed(graph, wanted))
    return Cone(outside=frozenset(outside), nodes=nodes + delegated, delegated=delegated)


def _through(
    program: Any, delegate: Any, index: int | None, inside: dict[Any, set[int]]
) -> Iterator[Any]:
    """The arguments of a delegate that one of its results, or all, come from."""
    original = getattr(program.graph_module, delegate.args[0].target).original_module
    results = list(original.graph.output_node().args[0])
    asked = set(range(len(results))) if index is None else {index}
    known = inside.setdefault(delegate, set())
    if asked <= known:
        return
    known |= asked
    names = list(original.graph_signature.user_inputs)
    given = dict(zip(names, delegate.args[1:], strict=True))
    for node in _ancestors(results[i] for i in asked):
        if node.op == "placeholder" and node.name in given:
            yield given[node.name]


def _computed(graph: Any, wanted: set[int]) -> list[Any]:
    results = list(graph.output_node().args[0])
    found = _ancestors(results[index] for index in wanted)
    return [node for node in found if node.op == "call_function" and not _is_getitem(node)]


def _ancestors(nodes: Iterator[Any]) -> list[Any]:
    found: dict[Any, None] = {}
    waiting = [node for node in nodes if hasattr(node, "all_input_nodes")]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found[node] = None
            waiting += node.all_input_nodes
    return list(found)


def _is_delegate(node: Any) -> bool:
    return bool(node.op == "call_function" and "executorch_call_delegate" in str(node.target))


def _is_getitem(node: Any) -> bool:
    return bool(node.op == "call_function" and getattr(node.target, "__name__", "") == "getitem")


def _name(target: Any) -> str:
    """``aten::add`` of an overload of whichever dialect."""
    name = target.name() if hasattr(target, "name") and callable(target.name) else str(target)
    return str(name).partition(".")[0]
