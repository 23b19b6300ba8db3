"""``CoreAITester``: Core AI in ExecuTorch's own test harness (``executorch.backends.test.harness``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from executorch.backends.test.harness import Tester
from executorch.backends.test.harness.stages import (
    Quantize,
    Serialize,
    StageType,
    ToEdgeTransformAndLower,
)
from torch.export.exported_program import ExportedProgram

from edgeproof.coreai.lowering import lower
from edgeproof.coreai.partition import CoreAIPartitioner
from edgeproof.coreai.precision import quantize, to_half
from edgeproof.coreai.runtime import install_runtime, last_error


class CoreAIQuantize(Quantize):  # type: ignore[misc]
    """Quantizes with coreai-opt in one of ``edgeproof.coreai.precision.QUANTIZED``."""

    def __init__(self, mode: str, calibration: Sequence[tuple[Any, ...]] = ()) -> None:
        self.mode = mode
        self.calibration = calibration
        self.quantized: Any = None
        self.count = 0

    def run(self, artifact: torch.nn.Module, inputs: tuple[Any, ...] | None = None) -> None:
        """Quantize the module. Raises ``NothingToQuantizeError`` where there is nothing to."""
        assert inputs is not None
        self.quantized, self.count = quantize(
            artifact, tuple(inputs), self.mode, calibration=self.calibration
        )

    @property
    def artifact(self) -> torch.nn.Module:
        """The quantized module."""
        module: torch.nn.Module = self.quantized
        return module

    @property
    def graph_module(self) -> torch.nn.Module:
        """The same."""
        return self.artifact

    def run_artifact(self, inputs: tuple[Any, ...]) -> Any:
        """What the quantized module answers in eager PyTorch."""
        return self.artifact(*inputs)


class CoreAILower(ToEdgeTransformAndLower):  # type: ignore[misc]
    """Lowers with our partitioner and passes; with ``half`` in half precision, inputs and outputs as were.

    Made of the exported program, which stays as it is: the harness takes its answers as the reference, so
    half precision is held against single, and an operator that eager PyTorch lacks in half has one too.
    """

    def __init__(self, *, half: bool = False, partitioner: CoreAIPartitioner | None = None) -> None:
        self.half = half
        self.partitioner = partitioner or CoreAIPartitioner()
        self.edge_dialect_program: Any = None

    def run(
        self, artifact: ExportedProgram, inputs: Any = None, generate_etrecord: bool = False
    ) -> None:
        """Lower the exported program."""
        self.edge_dialect_program = lower(
            to_half(artifact) if self.half else artifact,
            partitioner=self.partitioner,
            generate_etrecord=generate_etrecord,
        )


class CoreAISerialize(Serialize):  # type: ignore[misc]
    """Runs the program through ExecuTorch's runtime with our delegate, on a cache of its own."""

    def __init__(self, cache_dir: str | Path | None = None) -> None:
        super().__init__()
        self.cache_dir = cache_dir

    def run_artifact(self, inputs: tuple[Any, ...]) -> Any:
        """What the serialized program answers.

        The delegate says why it failed, the bindings pass on a number: the error raised has both.
        """
        install_runtime(cache_dir=self.cache_dir)
        before = last_error()
        try:
            return super().run_artifact(inputs)
        except RuntimeError as fault:
            said = last_error()
            if said == before:
                raise
            raise RuntimeError(f"{fault}: {said}") from fault


class CoreAITester(Tester):  # type: ignore[misc]
    """Takes a module through the harness's stages to Core AI's answers.

    ``precision`` is ``fp32``, ``fp16``, or a mode of ``QUANTIZED``; ``cache_dir`` where this tester's
    specialized models go.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        example_inputs: tuple[Any, ...],
        dynamic_shapes: Any = None,
        *,
        precision: str = "fp32",
        cache_dir: str | Path | None = None,
    ) -> None:
        stages: dict[StageType, Callable[..., Any]] = Tester.default_stage_classes()
        stages[StageType.TO_EDGE_TRANSFORM_AND_LOWER] = lambda: CoreAILower(
            half=precision == "fp16"
        )
        stages[StageType.SERIALIZE] = lambda: CoreAISerialize(cache_dir)
        if precision not in ("fp32", "fp16"):
            stages[StageType.QUANTIZE] = lambda: CoreAIQuantize(precision)
        super().__init__(module, example_inputs, stages, dynamic_shapes=dynamic_shapes)
