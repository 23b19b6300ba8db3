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
    from edgeproof.coreai.lowering import lower_released
    from edgeproof.coreai.precision import to_half

    return lower_released(to_half(program) if mode_of(flow) == "fp16" else program)
