"""What crosses a delegate's boundary: as ExecuTorch hands it over, and as Core AI declares it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch.export.exported_program import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from edgeproof.coreai.graph import ranges_of, same_size
from edgeproof.coreai.runtime.asset import Interface, State, Tensor

_Ranges: TypeAlias = "Mapping[Any, ValueRanges[Any]]"
_SEARCHED = 2**16

ENTRYPOINT = "main"
STATES = "states"

# How Core AI spells the element types of tensors (coreai_torch._type_mapping).
_ELEMENT_TYPES: Mapping[torch.dtype, str] = {
    torch.float16: "f16",
    torch.float32: "f32",
    torch.bfloat16: "bf16",
    torch.bool: "i1",
    torch.int8: "si8",
    torch.uint8: "ui8",
    torch.int16: "si16",
    torch.uint16: "ui16",
    torch.int32: "si32",
    torch.uint32: "ui32",
}


def describe(
    program: Any, edge_program: ExportedProgram, least: Mapping[str, int] | None = None
) -> Interface:
    """The boundary of a partition in the order in which ExecuTorch's runtime passes values.

    Buffers that the partition writes to are no part of a call: they are the delegate's own state. Names
    are those Core AI gave, taken by position: it calls a buffer's new value by the buffer's name.

    ``least`` has what the symbols of dynamic sizes were declared to be at least, where the program says no
    more than that export takes them to be 2.
    """
    signature = edge_program.graph_signature
    kept = set(signature.buffers_to_mutate.values())
    graph = program.get_graph(ENTRYPOINT)
    given, taken = _edge_values(edge_program)
    ranges = _ranges(edge_program, least or {})
    inputs: list[Tensor] = []
    arguments: dict[str, str] = {}  # a buffer's name -> Core AI's for it
    for (placeholder, value), name in zip(given, _names(graph.arg_attrs), strict=True):
        buffer = signature.inputs_to_buffers.get(placeholder)
        if buffer in kept:
            arguments[buffer] = name
        else:
            inputs.append(_tensor("input", name, value, ranges))
    outputs: list[Tensor] = []
    states: list[State] = []
    for spec, (_, value), name in zip(
        signature.output_specs, taken, _names(graph.res_attrs), strict=True
    ):
        if spec.kind == OutputKind.BUFFER_MUTATION:
            first = f"{STATES}/{len(states)}.bin"
            states.append(State(name=arguments[spec.target], result=name, initial=first))
        else:
            outputs.append(_tensor("output", name, value, ranges))
    return Interface(inputs=tuple(inputs), outputs=tuple(outputs), states=tuple(states))


def first_values(
    edge_program: ExportedProgram, interface: Interface
) -> Iterator[tuple[str, bytes]]:
    """The files that hold what the delegate's states start with, C-contiguous elements."""
    signature = edge_program.graph_signature
    buffers = dict(zip(signature.buffers, edge_program.buffers(), strict=True))
    for state, target in zip(interface.states, signature.buffers_to_mutate.values(), strict=True):
        value = buffers[target].detach().cpu().contiguous()
        yield state.initial, value.reshape(-1).view(torch.uint8).numpy().tobytes()


def check_interface(program: Any, edge_program: ExportedProgram) -> None:
    """Raise ``ValueError`` unless Core AI declares what ExecuTorch hands over, naming each tensor.

    A dimension that is dynamic on Core AI's side takes every size. Where it is static there, and dynamic
    for ExecuTorch, the runtime would meet sizes it cannot take.
    """
    graph = program.get_graph(ENTRYPOINT)
    declared = graph.function_type.value
    given, taken = _edge_values(edge_program)
    faults = [
        *_mismatches("input", _declared(declared.inputs), given),
        *_mismatches("output", _declared(declared.results), taken),
    ]
    if faults:
        raise ValueError(
            "Core AI's side of the delegate's boundary is not what ExecuTorch hands over:\n  "
            + "\n  ".join(faults)
        )


def _names(attributes: Any) -> list[str]:
    return [attribute["coreai.name"].value for attribute in attributes]


def _tensor(kind: str, name: str, value: Any, ranges: _Ranges) -> Tensor:
    if not isinstance(value, torch.Tensor):
        raise ValueError(
            f"{kind} {name!r} is a {type(value).__name__}: Core AI takes and gives tensors alone"
        )
    return Tensor(
        name=name,
        dtype=str(value.dtype).removeprefix("torch."),
        shape=tuple(_bound(size, ranges) for size in value.shape),
    )


def _bound(size: Any, ranges: _Ranges) -> int | tuple[int, int | None]:
    """A size, or the least and the greatest that a dynamic one may have."""
    if isinstance(size, int):
        return size
    expression = size.node.expr
    if expression.is_Integer:
        return int(expression)
    bounds = bound_sympy(expression, ranges)
    low = int(bounds.lower) if bounds.lower.is_Integer else 1
    high = int(bounds.upper) if bounds.upper.is_Integer and bounds.upper < 2**31 else None
    return max(low, 1), high


def _ranges(edge_program: ExportedProgram, least: Mapping[str, int]) -> _Ranges:
    """Of each symbol of sizes what the delegate takes: with it no tensor inside comes to have no elements.

    What Core AI makes of such is not to be relied on: garbage, or the end of the process. So a dim that is
    declared to begin at 0 (as ``Dim("n")`` is) begins at 1, and at 3 if a convolution by three follows.
    """
    sizes = [
        size
        for node in edge_program.graph.nodes
        for value in _flat(node.meta.get("val"))
        if isinstance(value, torch.Tensor)
        for size in value.shape
        if isinstance(size, torch.SymInt)
    ]
    ranges: dict[Any, ValueRanges[Any]] = {}
    for size in sizes:
        ranges |= ranges_of(size, lambda symbol, lower: max(least.get(str(symbol), lower), 1))
    for expression in {size.node.expr for size in sizes}:
        if len(expression.free_symbols) == 1:
            (symbol,) = expression.free_symbols
            ranges[symbol] = _with_elements(expression, symbol, ranges[symbol])
    return ranges


def _with_elements(expression: Any, symbol: Any, known: ValueRanges[Any]) -> ValueRanges[Any]:
    """The part of ``known`` at whose ends ``expression`` is one or more; it rises or falls throughout."""
    low, high = known.lower, known.upper
    while low < high and low < _SEARCHED and expression.subs(symbol, low) < 1:
        low += 1
    while high.is_Integer and high > low and expression.subs(symbol, high) < 1:
        high -= 1
    return ValueRanges(low, high)


def _flat(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value]


def _edge_values(edge_program: ExportedProgram) -> tuple[list[Any], list[Any]]:
    """Names and values on both sides, in the order in which the converter makes them arguments.

    It takes placeholders in the order of the graph, mutated buffers among them, and all outputs.
    """
    signature = edge_program.graph_signature
    mutated = set(signature.buffers_to_mutate.values())
    taken = set(signature.user_inputs) | {
        name for name, target in signature.inputs_to_buffers.items() if target in mutated
    }
    inputs = [
        (node.name, node.meta["val"])
        for node in edge_program.graph.nodes
        if node.op == "placeholder" and node.name in taken
    ]
    outputs = [
        (node.name, node.meta["val"]) if isinstance(node, torch.fx.Node) else (str(node), node)
        for node in edge_program.graph.output_node().args[0]
    ]
    return inputs, outputs


def _declared(types: Sequence[Any]) -> list[tuple[str, tuple[int | None, ...] | None]]:
    """Element type and shape of each; ``None`` for a dimension that is dynamic, and for no tensor."""
    from coreai._compiler.ir import RankedTensorType, ShapedType

    dynamic = ShapedType.get_dynamic_size()
    return [
        (str(t.element_type), tuple(None if size == dynamic else size for size in t.shape))
        if RankedTensorType.isinstance(t)
        else (str(t), None)
        for t in types
    ]


def _mismatches(
    kind: str,
    declared: Sequence[tuple[str, tuple[int | None, ...] | None]],
    given: Sequence[tuple[str, Any]],
) -> Iterator[str]:
    if len(declared) != len(given):
        names = ", ".join(name for name, _ in given) or "none"
        yield f"Core AI declares {len(declared)} {kind}s, ExecuTorch has {len(given)} ({names})"
        return
    for (element, shape), (name, value) in zip(declared, given, strict=True):
        if shape is None or not isinstance(value, torch.Tensor):
            yield f"{kind} {name!r} is no tensor: {element} for Core AI, {type(value).__name__} here"
            continue
        wanted = _ELEMENT_TYPES.get(value.dtype)
        if element != wanted:
            yield f"{kind} {name!r} is {value.dtype} here, {element} for Core AI"
        if len(shape) != value.dim():
            yield f"{kind} {name!r} has {value.dim()} dimensions here, {len(shape)} for Core AI"
            continue
        for dim, (theirs, ours) in enumerate(zip(shape, value.shape, strict=True)):
            if theirs is not None and not same_size(ours, theirs):
                yield f"{kind} {name!r}, dimension {dim}, is {ours} here, {theirs} for Core AI"
