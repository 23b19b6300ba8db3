"""Apple's Core AI with the lowering that comes in the executorch wheel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgeproof.plan.flow import LINUX_X86, MACOS, SINGLE, Arithmetic, Flow

if TYPE_CHECKING:
    from edgeproof.worker.model import Model

FLOWS = (
    Flow(
        name="coreai_fp32",
        summary="Core AI in single precision, lowered by the wheel's own Core AI backend",
        stack="coreai",
        delegate="CoreAIBackend",
        imports=("executorch.backends.apple.coreai",),
        lowers_on=(LINUX_X86, MACOS),
        runs_on=(),
        cannot_run="the wheel carries no Core AI delegate for its runtime",
    ),
)


def computes_in(flow: Flow) -> Arithmetic:
    """Plain single precision."""
    return SINGLE


def prepare(flow: Flow, model: Model) -> Model:
    """The model as it came."""
    return model


def lower(flow: Flow, program: Any, model: Model) -> Any:
    """Lower with the backend's default passes and the compile config it asks for."""
    from executorch.backends.apple.coreai import (
        CoreAIPartitioner,
        get_default_compile_config,
        get_default_passes,
    )
    from executorch.exir import to_edge_transform_and_lower

    return to_edge_transform_and_lower(
        program,
        partitioner=[CoreAIPartitioner()],
        compile_config=get_default_compile_config(),
        transform_passes=get_default_passes(),
    )


def inspect(flow: Flow, edge: Any) -> dict[str, Any]:
    """Check that every asset the delegates name is in the program, whole and readable.

    The manifest in a delegate's ``processed_bytes`` names files that must be among the program's named
    data. Raises ``ValueError`` for one that is missing or empty.
    """
    import json

    from edgeproof.flows.delegates import delegates

    assets = []
    for delegate in delegates(edge):
        manifest = json.loads(delegate.processed_bytes)
        store = delegate.named_data_store_output
        held = store.pte_data if store is not None else {}
        for name in manifest["files"]:
            key = f"coreai/{manifest['hash']}/{name}"
            if key not in held:
                raise ValueError(
                    f"the delegate's manifest names {key}, the program does not hold it"
                )
        assets.append({"hash": manifest["hash"], "files": len(manifest["files"])})
    return {"assets": assets}
