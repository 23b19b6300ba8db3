"""OpenVINO on the CPU."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from edgeproof.flows import pt2e
from edgeproof.plan.flow import LINUX_X86, Arithmetic, Flow

if TYPE_CHECKING:
    from edgeproof.worker.model import Model

_flow = partial(
    Flow,
    stack="openvino",
    delegate="OpenvinoBackend",
    lowers_on=(LINUX_X86,),
    runs_on=(LINUX_X86,),
    serial=(
        ("run", "a call computes on all cores, in one pool of threads that all programs share"),
    ),
)

FLOWS = (
    _flow(
        name="openvino_fp32",
        summary="OpenVINO on the CPU (in bf16 where the CPU has it, which is OpenVINO's default)",
        imports=("executorch.backends.openvino.partitioner",),
    ),
    _flow(
        name="openvino_int8",
        summary="OpenVINO on the CPU, int8, calibrated with NNCF's quantizer",
        imports=(
            "executorch.backends.openvino.partitioner",
            "executorch.backends.openvino.quantizer",
        ),
        quantized=True,
    ),
)


def computes_in(flow: Flow) -> Arithmetic:
    """What OpenVINO says it infers in here: bf16 on CPUs with AMX or AVX-512 BF16, else f32."""
    from openvino import Core

    hint = Core().get_property("CPU", "INFERENCE_PRECISION_HINT").get_type_name()
    return Arithmetic(dtype={"f32": "float32", "bf16": "bfloat16", "f16": "float16"}[hint])


def prepare(flow: Flow, model: Model) -> Model:
    """The quantized flow keeps its weights unfolded: OpenVINO folds them itself."""
    if not flow.quantized:
        return model
    from executorch.backends.openvino.quantizer import OpenVINOQuantizer

    return pt2e.quantize(model, OpenVINOQuantizer(), fold=False)


def lower(flow: Flow, program: Any, model: Model) -> Any:
    """Lower for OpenVINO's CPU device."""
    from executorch.backends.openvino.partitioner import OpenvinoPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.exir.backend.backend_details import CompileSpec

    partitioner = OpenvinoPartitioner([CompileSpec("device", b"CPU")])
    return to_edge_transform_and_lower(program, partitioner=[partitioner])


def inspect(flow: Flow, edge: Any) -> dict[str, Any]:
    """Nothing to open: it is run instead."""
    return {}
