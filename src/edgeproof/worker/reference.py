"""The right answers of a case and their noise floors, computed once and shared by its flows."""

from __future__ import annotations

from typing import Any

import torch

from edgeproof.plan.flow import Arithmetic
from edgeproof.worker.model import Inputs, Model, cloned, flat_outputs, floats_to, other_inputs
from edgeproof.worker.numerics import EXACT, Error, Floor, error, floor
from edgeproof.worker.rounding import RoundedUp

BIASED_FACTOR = 1.5
"""For units that do not round to nearest, whose floor is a bound already: rounding upwards throughout."""

QUANTIZED_FACTOR = 3.0
"""A quantized flow against its quantized module. Where one value rounds the other way, all that follow
may: the two are independent draws of the same noise, so they differ by 1.4 times what either is off
the float module, and the draws themselves scatter (0.5 to 2.5 on MobileNetV3, docs/numerics.md)."""


class Reference:
    """What eager PyTorch answers at one set of inputs, and how noisy that answer is."""

    def __init__(self, model: Model, inputs: Inputs) -> None:
        self._model = model
        self.inputs = inputs
        # A copy: a module may write to its buffers, and the program starts from what they were.
        self.outputs = flat_outputs(model.copied()(inputs))
        self._floors: dict[Arithmetic, tuple[str, list[Error | None]]] = {}
        self._other: list[Any] | None = None

    def other_answers(self) -> list[Any]:
        """The answers to other inputs of the same kind; empty when there are none to be had."""
        if self._other is None:
            moved = other_inputs(self.inputs)
            self._other = [] if moved is None else _answers(self._model.copied(), moved)
        return self._other

    def floors(self, arithmetic: Arithmetic) -> list[Floor]:
        """The floor of every output for a float flow that computes in this arithmetic."""
        dtype: torch.dtype = getattr(torch, arithmetic.dtype)
        source, errors = self._noise(arithmetic)
        factor = BIASED_FACTOR if arithmetic.biased else None
        return [
            EXACT if e is None else floor(e, dtype, source=source, factor=factor) for e in errors
        ]

    def quantized_floors(
        self, quantized: list[tuple[str, Any]], arithmetic: Arithmetic
    ) -> list[Floor]:
        """The floor of every output of a quantized flow: what quantization itself changes.

        ``quantized`` are the outputs of the quantized module in eager PyTorch. Where the arithmetic
        between the integers is coarser than that, it is what sets the floor.
        """
        dtype: torch.dtype = getattr(torch, arithmetic.dtype)
        changed = _errors([value for _, value in quantized], self.outputs)
        source, computed = self._noise(arithmetic)
        floors = []
        for quantization, computation in zip(changed, computed, strict=True):
            if quantization is None or computation is None:
                floors.append(EXACT)
                continue
            coarser = computation.rms_error > quantization.rms_error
            floors.append(
                floor(
                    computation if coarser else quantization,
                    dtype,
                    source=source if coarser else "the quantized module against the float one",
                    factor=QUANTIZED_FACTOR,
                )
            )
        return floors

    def _noise(self, arithmetic: Arithmetic) -> tuple[str, list[Error | None]]:
        if arithmetic not in self._floors:
            self._floors[arithmetic] = self._measure_noise(arithmetic)
        return self._floors[arithmetic]

    def _measure_noise(self, arithmetic: Arithmetic) -> tuple[str, list[Error | None]]:
        dtype: torch.dtype = getattr(torch, arithmetic.dtype)
        if arithmetic.biased:
            with RoundedUp(dtype):
                answers = _answers(self._model.copied(), self.inputs)
            return f"every result rounded up to {arithmetic.dtype}", _errors(answers, self.outputs)
        single = dtype == torch.float32
        wanted = torch.float64 if single else dtype
        answers = _answers(self._model.cast(wanted), floats_to(self.inputs, wanted))
        if len(answers) == len(self.outputs):
            return f"the module in {str(wanted).removeprefix('torch.')}", _errors(
                answers, self.outputs
            )
        # No such kernels, or a dtype written into the model: round what can be rounded.
        eps = torch.finfo(dtype).eps

        def rounded(tensor: torch.Tensor) -> torch.Tensor:
            return tensor * (1 + eps) if single else tensor.to(dtype).to(tensor.dtype)

        model = self._model.copied()
        with torch.no_grad():
            for tensor in (*model.module.parameters(), *model.module.buffers()):
                if tensor.is_floating_point():
                    tensor.copy_(rounded(tensor))
        args, kwargs = cloned(self.inputs)
        inputs = torch.utils._pytree.tree_map_only(
            torch.Tensor, lambda t: rounded(t) if t.is_floating_point() else t, (args, kwargs)
        )
        return "weights and inputs moved by one rounding step", _errors(
            _answers(model, inputs), self.outputs
        )


def _answers(model: Model, inputs: Inputs) -> list[Any]:
    """The flat answers of a variant of the module; empty where it cannot run (it need not)."""
    try:
        return [value for _, value in flat_outputs(model(inputs))]
    except Exception:
        return []


def _errors(answers: list[Any], reference: list[tuple[str, Any]]) -> list[Error | None]:
    if len(answers) != len(reference):
        answers = [value for _, value in reference]
    return [
        error(y, r) if isinstance(r, torch.Tensor) and r.is_floating_point() else None
        for y, (_, r) in zip(answers, reference, strict=True)
    ]
