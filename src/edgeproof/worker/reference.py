"""The right answers of a case and their noise floors, computed once and shared by its flows."""

from __future__ import annotations

from typing import Any

import torch

from edgeproof.worker.model import Inputs, Model, cloned, flat_outputs, floats_to, other_inputs
from edgeproof.worker.numerics import EXACT, Error, Floor, error, floor

QUANTIZED_FACTOR = 1.0
"""A quantized flow may be as far from its quantized module as that module is from the float one."""


class Reference:
    """What eager PyTorch answers at one set of inputs, and how noisy that answer is."""

    def __init__(self, model: Model, inputs: Inputs) -> None:
        self._model = model
        self.inputs = inputs
        self.outputs = flat_outputs(model(inputs))
        self._floors: dict[torch.dtype, tuple[str, list[Error | None]]] = {}
        self._other: list[Any] | None = None

    def other_answers(self) -> list[Any]:
        """The answers to other inputs of the same kind; empty when there are none to be had."""
        if self._other is None:
            moved = other_inputs(self.inputs)
            self._other = [] if moved is None else _answers(self._model.copied(), moved)
        return self._other

    def floors(self, dtype: torch.dtype) -> list[Floor]:
        """The floor of every output for a float flow that computes in ``dtype``."""
        source, errors = self._noise(dtype)
        return [EXACT if e is None else floor(e, dtype, source=source) for e in errors]

    def quantized_floors(self, quantized: list[tuple[str, Any]], dtype: torch.dtype) -> list[Floor]:
        """The floor of every output of a quantized flow: what quantization itself changes.

        ``quantized`` are the outputs of the quantized module in eager PyTorch.
        """
        source = "the quantized module against the float one, both in eager PyTorch"
        changed = _errors([value for _, value in quantized], self.outputs)
        return [
            EXACT if e is None else floor(e, dtype, source=source, factor=QUANTIZED_FACTOR)
            for e in changed
        ]

    def _noise(self, dtype: torch.dtype) -> tuple[str, list[Error | None]]:
        if dtype not in self._floors:
            self._floors[dtype] = self._measure_noise(dtype)
        return self._floors[dtype]

    def _measure_noise(self, dtype: torch.dtype) -> tuple[str, list[Error | None]]:
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
    if not answers:
        answers = [value for _, value in reference]
    return [
        error(y, r) if isinstance(r, torch.Tensor) and r.is_floating_point() else None
        for y, (_, r) in zip(answers, reference, strict=True)
    ]
