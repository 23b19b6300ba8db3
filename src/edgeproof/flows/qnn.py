"""Qualcomm's QNN on the HTP; on x86-64 Linux the emulator of the SDK runs it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from edgeproof.flows import pt2e
from edgeproof.plan.flow import LINUX_X86, SINGLE, Arithmetic, Flow

if TYPE_CHECKING:
    from edgeproof.worker.model import Model

_flow = partial(
    Flow,
    stack="qnn",
    delegate="QnnBackend",
    lowers_on=(LINUX_X86,),
    runs_on=(LINUX_X86,),
    serial=(("run", "the emulator stands for one accelerator, which takes one graph at a time"),),
    libraries=("libatomic.so.1",),
    libraries_mend="apt-get install libatomic1 (Debian, Ubuntu) or dnf install libatomic (Fedora)",
)
_UTILS = "executorch.backends.qualcomm.utils.utils"
# The emulator comes as an SDK library inside the package: without it nothing can be compiled.
_SDK = "onnxruntime_qnn"

FLOWS = (
    _flow(
        name="qnn_fp16",
        summary="QNN HTP (SM8650) in half precision, on the SDK's emulator",
        imports=(_SDK, _UTILS),
    ),
    _flow(
        name="qnn_8a8w",
        summary="QNN HTP (SM8650), 8-bit activations and weights, on the SDK's emulator",
        imports=(_SDK, _UTILS, "executorch.backends.qualcomm.quantizer.quantizer"),
        quantized=True,
    ),
)


def computes_in(flow: Flow) -> Arithmetic:
    """Half precision with a bias for float graphs; integers, rescaled exactly, for the int8 flow.

    Measured on QNN 2.49's HTP emulator: each operation is right to a rounding step, but a hard-swish
    comes out too large by 2e-4 of its RMS on average. Over the depth of MobileNetV3 that adds up to
    12 to 56 times the floor of rounding to nearest, and to 0.3 to 0.8 times that of rounding every
    result upwards (docs/numerics.md).
    """
    return SINGLE if flow.quantized else Arithmetic(dtype="float16", biased=True)


def prepare(flow: Flow, model: Model) -> Model:
    """QNN's own quantizer at its default, 8-bit activations and weights."""
    if not flow.quantized:
        return model
    from executorch.backends.qualcomm.quantizer.quantizer import QnnQuantizer

    return pt2e.quantize(model, QnnQuantizer())


def lower(flow: Flow, program: Any, model: Model) -> Any:
    """Lower for the Snapdragon 8 Gen 3 (SM8650).

    QNN's helper exports by itself, since it has to run its own passes on the ATen graph: it is given
    the module of the program, so that what is lowered is what was exported.
    """
    from executorch.backends.qualcomm.serialization.qc_schema import QcomChipset
    from executorch.backends.qualcomm.utils.utils import (
        generate_htp_compiler_spec,
        generate_qnn_executorch_compiler_spec,
        to_edge_transform_and_lower_to_qnn,
    )

    spec = generate_qnn_executorch_compiler_spec(
        soc_model=QcomChipset.SM8650,
        backend_options=generate_htp_compiler_spec(use_fp16=not flow.quantized),
    )
    return to_edge_transform_and_lower_to_qnn(
        program.module(), model.positional_args(), spec, dynamic_shapes=model.dynamic_shapes
    )


def inspect(flow: Flow, edge: Any) -> dict[str, Any]:
    """Nothing to open: it is run instead."""
    return {}
