"""XNNPACK, the CPU delegate that comes with the executorch wheel."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from edgeproof.flows import pt2e
from edgeproof.plan.flow import EVERYWHERE, SINGLE, Arithmetic, Flow

if TYPE_CHECKING:
    from edgeproof.worker.model import Model

_ONE_WORKSPACE = "all programs compute in one workspace, which a call locks for as long as it takes"
_flow = partial(
    Flow,
    stack="base",
    delegate="XnnpackBackend",
    lowers_on=EVERYWHERE,
    runs_on=EVERYWHERE,
    serial=(("load", _ONE_WORKSPACE), ("run", _ONE_WORKSPACE)),
)
_PARTITIONER = "executorch.backends.xnnpack.partition.xnnpack_partitioner"
_QUANTIZER = "executorch.backends.xnnpack.quantizer.xnnpack_quantizer"

FLOWS = (
    _flow(
        name="xnnpack_fp32",
        summary="XNNPACK in single precision",
        imports=(_PARTITIONER,),
    ),
    _flow(
        name="xnnpack_int8_dynamic",
        summary="XNNPACK, int8 weights, activations quantized as they come (linear layers only)",
        imports=(_PARTITIONER, _QUANTIZER),
        quantized=True,
    ),
    _flow(
        name="xnnpack_int8_static",
        summary="XNNPACK, int8 weights and activations, calibrated",
        imports=(_PARTITIONER, _QUANTIZER),
        quantized=True,
    ),
)


def computes_in(flow: Flow) -> Arithmetic:
    """Single precision between the quantized values."""
    return SINGLE


def prepare(flow: Flow, model: Model) -> Model:
    """Symmetric int8 with a scale per channel for the quantized flows."""
    if not flow.quantized:
        return model
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )

    config = get_symmetric_quantization_config(
        is_per_channel=True, is_dynamic=flow.name == "xnnpack_int8_dynamic"
    )
    return pt2e.quantize(model, XNNPACKQuantizer().set_global(config))


def lower(flow: Flow, program: Any, model: Model) -> Any:
    """Lower as XNNPACK's own recipes do: one partitioner for every precision."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    return to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])


def inspect(flow: Flow, edge: Any) -> dict[str, Any]:
    """Nothing to open: it is run instead."""
    return {}
