"""What crosses a delegate's boundary: as ExecuTorch hands it over, and as Core AI declares it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export.exported_program import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from edgeproof.coreai.runtime.asset import Interface, State, Tensor

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


def describe(program: Any, edge_program: ExportedProgram) -> Interface:
    """The boundary of a partition in the order in which ExecuTorch's runtime passes values.

    Buffers that the partition writes to are no part of a call: they are the delegate's own state.
    """
    signature = edge_program.graph_signature
    nodes = {node.name: node for node in edge_program.graph.nodes}
    mutated = set(signature.buffers_to_mutate.values())
    inputs: list[Tensor] = []
    kept: dict[str, str] = {}  # the buffer's name -> its placeholder's
    for spec in signature.input_specs:
        if spec.kind == InputKind.USER_INPUT:
            value = nodes[spec.arg.name].meta["val"] if spec.arg.name in nodes else spec.arg
            inputs.append(_tensor("input", spec.arg.name, value, edge_program))
        elif spec.kind == InputKind.BUFFER and spec.target in mutated:
            kept[spec.target] = spec.arg.name
    outputs: list[Tensor] = []
    states: list[State] = []
    for position, spec in enumerate(signature.output_specs):
        if spec.kind == OutputKind.BUFFER_MUTATION:
            name = kept[spec.target]
            states.append(
                State(name=name, result=spec.arg.name, initial=f"{STATES}/{position}.bin")
            )
        else:
            value = nodes[spec.arg.name].meta["val"] if spec.arg.name in nodes else spec.arg
            outputs.append(_tensor("output", spec.arg.name, value, edge_program))
    return Interface(inputs=tuple(inputs), outputs=tuple(outputs), states=tuple(states))


def first_values(edge_program: ExportedProgram, interface: Interface) -> Iterator[tuple[str, bytes]]:
    """The files that hold what the delegate's states start with, C-contiguous elements."""
    placeholders = {
        spec.arg.name: spec.target
        for spec in edge_program.graph_signature.input_specs
        if spec.kind == InputKind.BUFFER
    }
    buffers = dict(
        zip(edge_program.graph_signature.buffers, edge_program.buffers(), strict=True)
    )
    for state in interface.states:
        value = buffers[placeholders[state.name]].detach().cpu().contiguous()
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


def _tensor(kind: str, name: str, value: Any, edge_program: ExportedProgram) -> Tensor:
    if not isinstance(value, torch.Tensor):
        raise ValueError(
            f"{kind} {name!r} is a {type(value).__name__}: Core AI takes and gives tensors alone"
        )
    return Tensor(
        name=name,
        dtype=str(value.dtype).removeprefix("torch."),
        shape=tuple(_bound(size, edge_program) for size in value.shape),
    )


def _bound(size: Any, edge_program: ExportedProgram) -> int | tuple[int, int | None]:
    """A size, or the least and the greatest that a dynamic one may have."""
    if isinstance(size, int):
        return size
    expression = size.node.expr
    if expression.is_Integer:
        return int(expression)
    bounds = size.node.shape_env.bound_sympy(expression)
    low = int(bounds.lower) if bounds.lower.is_finite else 0
    high = int(bounds.upper) if bounds.upper.is_finite and bounds.upper < 2**31 else None
    return max(low, 0), high


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
            if theirs is not None and not (isinstance(ours, int) and ours == theirs):
                yield f"{kind} {name!r}, dimension {dim}, is {ours} here, {theirs} for Core AI"
