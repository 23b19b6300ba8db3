"""``CoreAITester``: Core AI in ExecuTorch's own test harness (``executorch.backends.test.harness``)."""

from __future__ import annotations

import contextlib
import copy
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from executorch.backends.test.harness import Tester
from executorch.backends.test.harness.stages import (
    Quantize,
    Serialize,
    StageType,
    ToEdgeTransformAndLower,
)
from torch.export.exported_program import ExportedProgram
from torch.utils import _pytree as pytree

from edgeproof.coreai.lowering import lower, lower_released
from edgeproof.coreai.precision import PRECISIONS, QUANTIZED, quantize, to_half
from edgeproof.coreai.runtime import cache_at, last_error
from edgeproof.errors import UsageError


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
    """Lowers with ``lowering``; with ``half`` in half precision, inputs and outputs as they were.

    Made of the exported program, which stays as it is: the harness takes its answers as the reference, so
    half precision is held against single, and an operator that eager PyTorch lacks in half has one too.
    """

    def __init__(
        self,
        *,
        half: bool = False,
        lowering: Callable[..., Any] = lower,
    ) -> None:
        self.half = half
        self.lowering = lowering
        self.edge_dialect_program: Any = None

    def run(
        self, artifact: ExportedProgram, inputs: Any = None, generate_etrecord: bool = False
    ) -> None:
        """Lower the exported program."""
        self.edge_dialect_program = self.lowering(
            to_half(artifact) if self.half else artifact, generate_etrecord=generate_etrecord
        )


class CoreAISerialize(Serialize):  # type: ignore[misc]
    """Runs the program through ExecuTorch's runtime with our delegate.

    Specialized models go to ``cache_dir``, or to a folder that is new for each run and gone after it.
    """

    def __init__(self, cache_dir: str | Path | None = None) -> None:
        super().__init__()
        self.cache_dir = cache_dir

    def run_artifact(self, inputs: tuple[Any, ...]) -> Any:
        """What the serialized program answers.

        The delegate says why it failed, the bindings pass on a number: the error raised has both.
        """
        with contextlib.ExitStack() as own:
            folder = self.cache_dir or own.enter_context(
                tempfile.TemporaryDirectory(prefix="edgeproof-coreai-", ignore_cleanup_errors=True)
            )
            own.enter_context(cache_at(folder))
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
    specialized models go, unless given a folder of each run's own. With ``released`` it lowers with the
    executorch wheel's own Core AI backend.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        example_inputs: tuple[Any, ...],
        dynamic_shapes: Any = None,
        *,
        precision: str = "fp32",
        released: bool = False,
        cache_dir: str | Path | None = None,
    ) -> None:
        stages: dict[StageType, Callable[..., Any]] = Tester.default_stage_classes()
        stages[StageType.TO_EDGE_TRANSFORM_AND_LOWER] = lambda: CoreAILower(
            half=precision == "fp16", lowering=lower_released if released else lower
        )
        stages[StageType.SERIALIZE] = lambda: CoreAISerialize(cache_dir)
        if precision not in PRECISIONS:
            raise UsageError(
                f"there is no precision {precision!r}", mend=f"there are {', '.join(PRECISIONS)}"
            )
        if precision in QUANTIZED:
            stages[StageType.QUANTIZE] = lambda: CoreAIQuantize(precision)
        self._half = precision == "fp16"
        if self._half:
            module, example_inputs = _rounded(copy.deepcopy(module)), _rounded(example_inputs)
        super().__init__(module, example_inputs, stages, dynamic_shapes=dynamic_shapes)

    def generate_random_inputs(self) -> Iterator[tuple[Any, ...]]:
        """The harness's inputs; for half precision, such as it can hold."""
        for inputs in super().generate_random_inputs():
            yield _rounded(inputs) if self._half else inputs

    def run_method_and_compare_outputs(
        self, stage: Any = None, inputs: Any = None, *args: Any, **options: Any
    ) -> Any:
        """As the harness does it, on inputs that the precision can hold.

        What is compared is then the arithmetic. A value next to a half, rounded on its way in, would be
        rounded up by one and down by the other, and count as a fault.
        """
        given = _rounded(inputs) if self._half and inputs is not None else inputs
        return super().run_method_and_compare_outputs(stage, given, *args, **options)


_Rounded = TypeVar("_Rounded")


def _rounded(values: _Rounded) -> _Rounded:
    """A module, in place, or nested inputs, with single-precision values that half precision can hold.

    What it cannot hold at all, beyond 65504, stays as it is, as it does when it is lowered.
    """

    def rounded(value: torch.Tensor) -> torch.Tensor:
        if value.dtype != torch.float32:
            return value
        half = value.half().float()
        return torch.where(torch.isfinite(half), half, value)

    if isinstance(values, torch.nn.Module):
        with torch.no_grad():
            for tensor in (*values.parameters(), *values.buffers()):
                tensor.copy_(rounded(tensor))
        return values
    return cast(_Rounded, pytree.tree_map_only(torch.Tensor, rounded, values))
