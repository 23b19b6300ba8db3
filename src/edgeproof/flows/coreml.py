"""Apple's Core ML: lowers on Linux through coremltools, runs on Apple devices only."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from edgeproof.plan.flow import LINUX_X86, MACOS, SINGLE, Arithmetic, Flow

if TYPE_CHECKING:
    from edgeproof.worker.model import Model

_flow = partial(
    Flow,
    stack="base",
    delegate="CoreMLBackend",
    imports=("executorch.backends.apple.coreml.partition",),
    lowers_on=(LINUX_X86, MACOS),
    runs_on=(MACOS,),
    cannot_run="Core ML runs on Apple hardware only",
)

FLOWS = (
    _flow(name="coreml_fp32", summary="Core ML in single precision"),
    _flow(name="coreml_fp16", summary="Core ML in half precision, its default"),
)


def computes_in(flow: Flow) -> Arithmetic:
    """As the flow's name says; Core ML computes in the precision it was compiled for."""
    return Arithmetic(dtype="float16") if flow.name == "coreml_fp16" else SINGLE


def prepare(flow: Flow, model: Model) -> Model:
    """The model as it came: Core ML casts inside the delegate."""
    return model


def lower(flow: Flow, program: Any, model: Model) -> Any:
    """Lower for iOS 17 and later, at the flow's precision."""
    import coremltools as ct
    from executorch.backends.apple.coreml.compiler import CoreMLBackend
    from executorch.backends.apple.coreml.partition import CoreMLPartitioner
    from executorch.exir import to_edge_transform_and_lower

    half = computes_in(flow).dtype == "float16"
    specs = CoreMLBackend.generate_compile_specs(
        compute_precision=ct.precision.FLOAT16 if half else ct.precision.FLOAT32,
        minimum_deployment_target=ct.target.iOS17,
    )
    return to_edge_transform_and_lower(
        program, partitioner=[CoreMLPartitioner(compile_specs=specs)]
    )


def inspect(flow: Flow, edge: Any) -> dict[str, Any]:
    """Open every delegate's payload with coremltools and check it against its graph.

    Raises ``ValueError`` when a payload is no ML program, has other inputs or outputs than the graph
    it was made of, or does not compute in the flow's precision.
    """
    from edgeproof.flows.delegates import delegates

    return {"payloads": [_inspect_payload(flow, delegate) for delegate in delegates(edge)]}


def _inspect_payload(flow: Flow, delegate: Any) -> dict[str, Any]:
    import tempfile
    from pathlib import Path

    import coremltools as ct
    from executorch.backends.apple.coreml import executorchcoreml

    with tempfile.TemporaryDirectory() as folder:
        if not executorchcoreml.unflatten_directory_contents(delegate.processed_bytes, folder):
            raise ValueError("the Core ML payload could not be unpacked")
        package = next(Path(folder).glob("**/*.mlpackage"), None)
        if package is None:
            raise ValueError("the Core ML payload holds no model.mlpackage")
        spec = ct.models.MLModel(str(package), skip_model_load=True).get_spec()

    if spec.WhichOneof("Type") != "mlProgram":
        raise ValueError(f"the Core ML payload is a {spec.WhichOneof('Type')}, not an ML program")
    signature = delegate.original_module.graph_signature
    for what, here, there in (
        ("inputs", len(spec.description.input), len(signature.user_inputs)),
        ("outputs", len(spec.description.output), len(signature.user_outputs)),
    ):
        if here != there:
            raise ValueError(f"the Core ML payload has {here} {what}, its graph has {there}")
    dtypes = _float_dtypes(spec.mlProgram)
    wanted = computes_in(flow).dtype.upper()
    if dtypes and dtypes.most_common(1)[0][0] != wanted:
        raise ValueError(f"the Core ML payload computes mostly in {dtypes}, not in {wanted}")
    return {
        "specification_version": spec.specificationVersion,
        "inputs": [feature.name for feature in spec.description.input],
        "outputs": [feature.name for feature in spec.description.output],
        "float_operations": dict(dtypes),
    }


def _float_dtypes(program: Any) -> Counter[str]:
    """How many operations of an ML program put out each float type, constants and casts left out."""
    from coremltools.proto import MIL_pb2

    names = {MIL_pb2.FLOAT16: "FLOAT16", MIL_pb2.FLOAT32: "FLOAT32"}
    counted: Counter[str] = Counter()
    for function in program.functions.values():
        for block in function.block_specializations.values():
            for operation in block.operations:
                if operation.type == "const" or operation.type == "cast":
                    continue
                for output in operation.outputs:
                    dtype = output.type.tensorType.dataType
                    if dtype in names:
                        counted[names[dtype]] += 1
    return counted
