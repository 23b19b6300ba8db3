"""Apple's Core AI with the lowering in the executorch wheel, run by edgeproof's delegate.

Beside ``edgeproof.flows.coreai`` these show what the released lowering gets wrong.
"""

from __future__ import annotations

from typing import Any

from edgeproof.flows.coreai import computes_in, flows, inspect, mode_of, prepare
from edgeproof.plan.flow import Flow

__all__ = ["FLOWS", "computes_in", "inspect", "lower", "prepare"]

FLOWS = flows("coreai_upstream", "lowered by the executorch wheel", smoke=())


def lower(flow: Flow, program: Any, model: Any) -> Any:
    """Lower with the wheel's default passes and the compile config it asks for."""
    from executorch.backends.apple.coreai import (
        CoreAIPartitioner,
        get_default_compile_config,
        get_default_passes,
    )
    from executorch.exir import to_edge_transform_and_lower

    from edgeproof.coreai.precision import to_half

    return to_edge_transform_and_lower(
        to_half(program) if mode_of(flow) == "fp16" else program,
        partitioner=[CoreAIPartitioner()],
        compile_config=get_default_compile_config(),
        transform_passes=get_default_passes(),
    )
