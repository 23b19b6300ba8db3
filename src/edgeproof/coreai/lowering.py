"""From an exported program to an edge program with its parts for Core AI, in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from executorch.exir import EdgeCompileConfig, EdgeProgramManager, to_edge_transform_and_lower
from torch.export.exported_program import ExportedProgram

from edgeproof.coreai.partition import CoreAIPartitioner
from edgeproof.coreai.passes import default_passes

__all__ = ["compile_config", "default_passes", "lower"]


def compile_config() -> EdgeCompileConfig:
    """What lowering to Core AI has to be done with.

    Casts stay ``aten._to_copy``: coreai-torch knows no dim-order operators.
    """
    return EdgeCompileConfig(_skip_dim_order=True)


def lower(
    programs: ExportedProgram | dict[str, ExportedProgram],
    *,
    partitioner: CoreAIPartitioner | None = None,
    passes: Sequence[Any] | None = None,
    generate_etrecord: bool = False,
) -> EdgeProgramManager:
    """Lower one program, or one for each method, to Core AI; what it cannot do is left to ExecuTorch.

    ``partitioner`` is for its options (``CoreAIPartitioner(debug_info=True)``), ``passes`` replace
    ``default_passes()``.
    """
    return to_edge_transform_and_lower(
        programs,
        partitioner=[partitioner or CoreAIPartitioner()],
        compile_config=compile_config(),
        transform_passes=list(default_passes() if passes is None else passes),
        generate_etrecord=generate_etrecord,
    )
