"""The compiler side of ``CoreAIBackend``: a partition in, a manifest and an asset out.

ExecuTorch finds a backend by the name of its class, and the name goes into the program, where Apple's
delegate looks for it: this class has to have the name of the one in the executorch wheel. Of two classes of
a name the one defined last is found. That is this one; it hands on what another partitioner made, which it
tells by the compile spec that ours puts there.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from executorch.backends.apple.coreai.compiler import preprocess as released
from executorch.backends.apple.coreai.compiler.enumerated_shapes import apply_enumerated_shapes
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from torch.export.exported_program import ExportedProgram

from edgeproof.coreai.compiler import bundle
from edgeproof.coreai.compiler.convert import convert
from edgeproof.coreai.compiler.interface import check_interface, describe
from edgeproof.coreai.runtime.asset import OURS, signed

SPEC = "edgeproof_coreai"
_KEYS = released.COMPILE_SPEC_KEYS


@final
class CoreAIBackend(BackendDetails):  # type: ignore[misc]
    """Compiles the partitions of ``edgeproof.coreai.CoreAIPartitioner``, and leaves others to the wheel's."""

    @staticmethod
    def preprocess(
        edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> PreprocessResult:
        """Compile one partition.

        Raises ``ValueError`` when Core AI's side of the boundary is not what ExecuTorch will hand over,
        naming the tensor, and what the converter raises for what it cannot express.
        """
        specs = {spec.key: bytes(spec.value) for spec in compile_specs}
        if SPEC not in specs or _KEYS.AOT_COMPILE_CONFIG.value in specs:
            # Compiling for Apple's chips is done by Apple's tools, which need a Mac.
            return released.CoreAIBackend.preprocess(edge_program, compile_specs)
        told = json.loads(specs[SPEC])
        program = convert(edge_program, debug_info=told["debug_info"])
        check_interface(program, edge_program)
        interface = describe(program, edge_program, told["least"])
        enumerated = specs.get(_KEYS.INPUT_ENUMERATIONS.value)
        if enumerated:
            apply_enumerated_shapes(program, edge_program, json.loads(enumerated))
        minimum_os = released._min_os_version(compile_specs)
        with tempfile.TemporaryDirectory(prefix="edgeproof-") as folder:
            asset_hash = bundle.write(Path(folder), program, edge_program, interface, minimum_os)
            delivered = released._deliver(
                Path(folder),
                asset_hash,
                _packaging(specs),
                {
                    "path": f"{asset_hash}/{bundle.BUNDLE}",
                    "min_deployment_version": released._os_version_text(minimum_os),
                    OURS: interface.to_json(),
                },
                _sidecar_folder(specs),
            )
            manifest = signed(json.loads(delivered.processed_bytes))
            delivered.processed_bytes = json.dumps(manifest).encode()
            return delivered


def _packaging(specs: Mapping[str, bytes]) -> Any:
    sidecar = _KEYS.USES_SIDECAR.value in specs
    return released.AssetPackaging.SIDECAR if sidecar else released.AssetPackaging.INLINE


def _sidecar_folder(specs: Mapping[str, bytes]) -> str | None:
    if _KEYS.USES_SIDECAR.value not in specs:
        return None
    folder = os.environ.get(released.SIDECAR_DIR_ENV)
    if not folder:
        raise ValueError(
            f"uses_sidecar=True needs ${released.SIDECAR_DIR_ENV} to name the folder that assets are "
            "written to; executorch.backends.apple.coreai.coreai_sidecar_dir(path) sets it"
        )
    return folder
