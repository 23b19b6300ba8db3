"""The precisions a model can be lowered to Core AI in.

Half precision is made of the exported program, integers of the module before it is exported; both by
Apple's ``coreai-opt``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch.export.exported_program import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from edgeproof.errors import UsageError

Inputs = tuple[Any, ...]
_RESHAPE = torch.ops.aten.reshape.default


class NothingToQuantizeError(UsageError):
    """The model has no operator that the quantizer works on, so that its answers would be float ones."""


def _w8a8() -> Any:
    from coreai_opt.quantization import QuantizerConfig

    return QuantizerConfig()


def _w8() -> Any:
    from coreai_opt.quantization import QuantizerConfig

    return QuantizerConfig.presets.w8()


def _w4() -> Any:
    from coreai_opt.quantization import QuantizerConfig

    return QuantizerConfig.presets.w4()


QUANTIZED: Mapping[str, Callable[[], Any]] = MappingProxyType({"w8a8": _w8a8, "w8": _w8, "w4": _w4})
"""By the name of a mode, what makes its ``coreai_opt.quantization.QuantizerConfig``: weights and activations
in eight bits, weights alone in eight, or in four."""

PRECISIONS = ("fp32", "fp16", *QUANTIZED)


def quantize(
    module: torch.nn.Module,
    inputs: Inputs,
    mode: str,
    *,
    calibration: Iterable[Inputs] = (),
    dynamic_shapes: Any = None,
) -> tuple[torch.nn.Module, int]:
    """The module in integers, ready to be exported, and how many of its nodes or weights are so.

    It is calibrated on ``calibration``, or on the example ``inputs``. Raises ``UsageError`` for a mode
    that does not exist and ``NothingToQuantizeError`` where there is nothing to quantize.
    """
    if mode not in QUANTIZED:
        raise UsageError(
            f"there is no mode {mode!r} to quantize in", mend=f"there are {', '.join(QUANTIZED)}"
        )
    from coreai_opt.common import ExportBackend
    from coreai_opt.quantization import Quantizer

    quantizer = Quantizer(module.eval(), QUANTIZED[mode]())
    prepared = quantizer.prepare(tuple(inputs), dynamic_shapes=dynamic_shapes)
    with quantizer.calibration_mode(), torch.no_grad():
        for sample in list(calibration) or [inputs]:
            prepared(*sample)
    try:
        finished: torch.nn.Module = quantizer.finalize(backend=ExportBackend.CoreAI)
    except ValueError as fault:
        if "no fake quantization nodes" in str(fault):
            raise _nothing(mode) from fault
        raise
    _mend(finished)
    count = _count(finished)
    if not count:
        raise _nothing(mode)
    return finished, count


def _nothing(mode: str) -> NothingToQuantizeError:
    return NothingToQuantizeError(
        "nothing to quantize: the model has no operator that coreai-opt quantizes",
        mend=f"prove it in fp32 or fp16 instead of {mode}",
    )


def _count(finished: torch.nn.Module) -> int:
    """How many nodes compute in integers or read integer weights: they are operators of ``coreai``."""
    graph = getattr(finished, "graph", None)
    if graph is None:
        return 0
    return sum(
        str(node.target).startswith(("coreai.", "coreaix."))
        for node in graph.nodes
        if node.op == "call_function"
    )


def _mend(finished: torch.nn.Module) -> None:
    """Take back what ``coreai-opt`` quantizes and neither torch nor Core AI can run.

    Tensors without dims are quantized as tensors of one, since ``coreai::quantize`` in torch cannot take
    them. Tensors of float64 are left as they are: Core AI has none, and elsewhere no kernel quantizes.
    """
    if not isinstance(finished, torch.fx.GraphModule):
        return
    graph = finished.graph
    for node in list(graph.nodes):
        if not str(node.target).startswith("coreai.quantize"):
            continue
        given = node.args[0].meta.get("val")
        if not isinstance(given, torch.Tensor):
            continue
        if given.dtype is torch.float64:
            for user in list(node.users):
                user.replace_all_uses_with(node.args[0])
                graph.erase_node(user)
            graph.erase_node(node)
        elif given.dim() == 0:
            with graph.inserting_before(node):
                node.update_arg(0, graph.call_function(_RESHAPE, (node.args[0], [1])))
            for user in list(node.users):
                with graph.inserting_after(user):
                    scalar = graph.call_function(_RESHAPE, (user, []))
                user.replace_all_uses_with(
                    scalar, delete_user_cb=lambda n, new=scalar: n is not new
                )
    finished.recompile()


def to_half(program: ExportedProgram) -> ExportedProgram:
    """A copy of the program that computes in half precision and takes and gives what it did before.

    Inputs are cast where they come in, outputs where they go out: who calls the program sees float32.
    What float16 cannot hold (weights and constants beyond 65504) stays in float32.
    """
    from coreai_opt.casting import cast_fp32_to_fp16

    program = _with_writes_as_results(program)
    before = {node.name: _dtype(node) for node in program.graph.nodes if node.op == "placeholder"}
    results = [_dtype(node) for node in program.graph.output_node().args[0]]
    program = copy.deepcopy(program)
    hidden = _hide_doubles(program)
    half = cast_fp32_to_fp16(program)
    for node, value in hidden.items():
        node.meta["val"] = value
    graph = half.graph
    for spec in half.graph_signature.input_specs:
        if spec.kind is not InputKind.USER_INPUT:
            continue
        node = next((n for n in graph.nodes if n.name == spec.arg.name), None)
        if node is None or _dtype(node) == before[node.name]:
            continue
        node.meta["val"] = node.meta["val"].to(before[node.name])
        with graph.inserting_after(node):
            cast = _cast(graph, node, torch.float16)
        node.replace_all_uses_with(cast, delete_user_cb=lambda user, cast=cast: user is not cast)
    output = graph.output_node()
    values = list(output.args[0])
    for index, (value, dtype, spec) in enumerate(
        zip(values, results, half.graph_signature.output_specs, strict=True)
    ):
        if spec.kind not in _HANDED_OUT or _dtype(value) == dtype:
            continue
        with graph.inserting_before(output):
            values[index] = _cast(graph, value, dtype)
        spec.arg.name = values[index].name
    output.args = (tuple(values),)
    half.graph_module.recompile()
    return half


_HANDED_OUT = (OutputKind.USER_OUTPUT, OutputKind.USER_INPUT_MUTATION)


def _with_writes_as_results(program: ExportedProgram) -> ExportedProgram:
    """The program, in functional form if it writes to its inputs: a write to a cast of them would be lost."""
    in_place = any(
        isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
        for node in program.graph.nodes
    )
    functional = program.run_decompositions({}) if in_place else program
    return functional if functional.graph_signature.user_inputs_to_mutate else program


def _hide_doubles(program: ExportedProgram) -> dict[torch.fx.Node, Any]:
    """Call values of float64 integers, and return what they were.

    ``cast_fp32_to_fp16`` takes every float for one of float32, and would drop the casts between them.
    """
    hidden = {}
    for node in list(program.graph.nodes):
        if node.target is torch.ops.aten._assert_tensor_metadata.default:
            program.graph.erase_node(node)  # what export saw; it will be something else
        elif _dtype(node) is torch.float64:
            hidden[node] = node.meta["val"]
            node.meta["val"] = node.meta["val"].to(torch.int64)
    return hidden


def _cast(graph: torch.fx.Graph, value: torch.fx.Node, dtype: torch.dtype) -> torch.fx.Node:
    node = graph.call_function(torch.ops.aten._to_copy.default, (value,), {"dtype": dtype})
    node.meta["val"] = value.meta["val"].to(dtype)
    return node


def _dtype(node: Any) -> torch.dtype | None:
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    return value.dtype if isinstance(value, torch.Tensor) else None
