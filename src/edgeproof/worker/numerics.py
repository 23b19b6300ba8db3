"""How far an answer is from its reference, and how far it may be.

Two errors are measured for every output, both without a unit and independent of scale:

``rms_error``   the root mean square of the difference over that of the reference; SQNR in dB is
                ``-20 log10`` of it.
``required``    the smallest tolerance ``t`` with ``|y - r| <= t (|r| + s)`` everywhere, ``s`` the root
                mean square of the reference: what torch.testing would have had to be given as
                ``rtol=t, atol=t*s``.

The first sees an error that is spread, the second one that sits in a single element. Each has a limit of
its own: a factor times the noise floor, which is what the precision alone does to the same module, but
never more than half the way to an answer that is known to be wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch

_FACTOR = 16.0
_FACTOR_NARROW = 4.0
"""How many times its noise floor a float flow may be off. In single precision backends sum in another
order than eager PyTorch does; in a narrower type eager PyTorch rounds after every operation, which fusing
backends do less often (measured factors: docs/numerics.md)."""

_LEAST_ULPS = 16.0
_LEAST_ULPS_NARROW = 2.0
"""The floor is never taken below this many rounding steps, since a small output may be exact by luck.
Single precision sums are accumulated in single precision, narrower ones in a wider type."""


@dataclass(frozen=True, kw_only=True)
class Error:
    """The distance of one output from its reference (``inf`` where it cannot be told)."""

    rms_error: float
    required: float
    max_abs: float
    max_rel: float

    @property
    def sqnr_db(self) -> float:
        """Signal to quantization noise ratio in dB; ``inf`` for equal outputs."""
        return math.inf if self.rms_error == 0 else -20 * math.log10(self.rms_error)


def _as_double(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to(torch.float64).flatten()


def error(answer: torch.Tensor, reference: torch.Tensor) -> Error:
    """Measure ``answer`` against ``reference`` (same shape) where both are finite."""
    y, r = _as_double(answer), _as_double(reference)
    finite = torch.isfinite(y) & torch.isfinite(r)
    y, r = y[finite], r[finite]
    if y.numel() == 0:
        return Error(rms_error=0.0, required=0.0, max_abs=0.0, max_rel=0.0)
    difference = (y - r).abs()
    if not difference.any():
        return Error(rms_error=0.0, required=0.0, max_abs=0.0, max_rel=0.0)
    scale = _rms(r)
    noise = _rms(difference)
    allowed = r.abs() + scale
    return Error(
        rms_error=noise / scale if scale else math.inf,
        required=float((difference / allowed).max()) if scale else math.inf,
        max_abs=float(difference.max()),
        max_rel=float((difference[r != 0] / r[r != 0].abs()).max()) if r.any() else math.inf,
    )


def nonfinite_agree(answer: torch.Tensor, reference: torch.Tensor) -> bool:
    """Whether NaN, +Inf and -Inf stand at the same places in both."""
    y, r = _as_double(answer), _as_double(reference)
    finite = torch.isfinite(r)
    if not torch.equal(torch.isfinite(y), finite):
        return False
    same_signs = torch.equal(torch.nan_to_num(y[~finite]), torch.nan_to_num(r[~finite]))
    return bool(same_signs and torch.equal(torch.isnan(y), torch.isnan(r)))


@dataclass(frozen=True, kw_only=True)
class Floor:
    """What the precision alone does to an output, and the limits that follow.

    ``source`` says how it was measured. ``limit_rms`` bounds ``rms_error``, ``limit`` bounds
    ``required``. The caps come from ``told_apart``; ``nearest`` names the wrong answer that set one.
    """

    source: str
    rms_error: float
    required: float
    factor: float
    cap_rms: float = math.inf
    cap: float = math.inf
    nearest: str = ""

    @property
    def limit_rms(self) -> float:
        """The largest ``rms_error`` that passes."""
        return min(self.factor * self.rms_error, self.cap_rms)

    @property
    def limit(self) -> float:
        """The largest ``required`` tolerance that passes."""
        return min(self.factor * self.required, self.cap)


EXACT = Floor(
    source="integers and booleans are compared exactly", rms_error=0, required=0, factor=0
)


def floor(
    measured: Error, dtype: torch.dtype, *, source: str, factor: float | None = None
) -> Floor:
    """The floor of an output that ``measured`` off in a flow that computes in ``dtype``.

    ``factor`` replaces the one of plain float arithmetic.
    """
    narrow = torch.finfo(dtype).bits < 32
    least = (_LEAST_ULPS_NARROW if narrow else _LEAST_ULPS) * torch.finfo(dtype).eps
    return Floor(
        source=source,
        rms_error=max(measured.rms_error, least),
        required=max(measured.required, least),
        factor=factor or (_FACTOR_NARROW if narrow else _FACTOR),
    )


def told_apart(
    reference: torch.Tensor, floor: Floor, wrong: dict[str, torch.Tensor], *, dtype: torch.dtype
) -> tuple[Floor, list[str]]:
    """The floor with its limits held below half the distance to every wrong answer.

    Each answer in ``wrong`` caps the error in which it stands out more from the noise. Also returned
    are the names of those that no limit can tell from the reference, since they are the same to within
    two rounding steps of ``dtype``.
    """
    same = []
    for name, answer in wrong.items():
        if not reference.is_floating_point():
            if torch.equal(answer, reference):
                same.append(name)
            continue
        if not nonfinite_agree(answer, reference):
            continue
        off = error(answer, reference)
        if off.required <= 2 * torch.finfo(dtype).eps:
            same.append(name)
        elif off.rms_error / floor.rms_error >= off.required / floor.required:
            if off.rms_error / 2 < floor.limit_rms:
                floor = replace(floor, cap_rms=off.rms_error / 2, nearest=name)
        elif off.required / 2 < floor.limit:
            floor = replace(floor, cap=off.required / 2, nearest=name)
    return floor, same


def wrong_answers(
    reference: torch.Tensor, other_answer: torch.Tensor | None
) -> dict[str, torch.Tensor]:
    """Answers that must not pass for ``reference``: zeros, the wrong sign, that to another input."""
    wrong = {"zeros": torch.zeros_like(reference)}
    if reference.dtype != torch.bool:
        wrong["negated"] = -reference
    if other_answer is not None:
        wrong["other_input"] = other_answer
    return wrong


def distance(answer: torch.Tensor, reference: torch.Tensor) -> float:
    """How far an answer is off: its ``rms_error``, or the share of integers and booleans that differ."""
    if reference.is_floating_point():
        return error(answer, reference).rms_error
    return float((answer != reference).double().mean()) if reference.numel() else 0.0


def faded(reference: torch.Tensor, *, dtype: torch.dtype, input_rms: float | None) -> bool:
    """Whether a float reference is smaller than the rounding step of the inputs it came from.

    An absolute tolerance of any use takes it for zero, and so does a device that flushes small
    numbers: untrained deep networks end like this.
    """
    if not reference.is_floating_point() or not input_rms:
        return False
    finite = _as_double(reference)
    finite = finite[torch.isfinite(finite)]
    return bool(finite.numel()) and _rms(finite) < float(torch.finfo(dtype).eps) * input_rms


def input_rms(tensors: list[Any]) -> float | None:
    """The root mean square of all float inputs together, ``None`` where there is none."""
    floats = [
        _as_double(t) for t in tensors if isinstance(t, torch.Tensor) and t.is_floating_point()
    ]
    floats = [t for t in floats if t.numel()]
    return _rms(torch.cat(floats)) if floats else None


def _rms(values: torch.Tensor) -> float:
    # Scaled by the largest value, so that neither float64's range ends the sum of squares.
    largest = float(values.abs().max())
    if largest == 0 or not math.isfinite(largest):
        return largest
    return largest * math.sqrt(float((values / largest).square().mean()))
