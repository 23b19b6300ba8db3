"""ExecuTorch's own kernels, without a delegate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgeproof.plan.flow import EVERYWHERE, SINGLE, Arithmetic, Flow

if TYPE_CHECKING:
    from edgeproof.worker.model import Model

FLOWS = (
    Flow(
        name="portable_fp32",
        summary="the kernels of the ExecuTorch runtime itself, no delegate",
        stack="base",
        delegate="",
        imports=("executorch.exir", "executorch.runtime"),
        lowers_on=EVERYWHERE,
        runs_on=EVERYWHERE,
    ),
)


def computes_in(flow: Flow) -> Arithmetic:
    """Plain single precision."""
    return SINGLE


def prepare(flow: Flow, model: Model) -> Model:
    """The model as it came."""
    return model


def lower(flow: Flow, program: Any, model: Model) -> Any:
    """Lower to the edge dialect without a partitioner."""
    from executorch.exir import to_edge_transform_and_lower

    return to_edge_transform_and_lower(program)


def inspect(flow: Flow, edge: Any) -> dict[str, Any]:
    """Nothing to open: it is run instead."""
    return {}
