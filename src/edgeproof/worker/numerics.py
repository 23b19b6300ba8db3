"""How far an answer is from its reference, and how far it may be.

Two errors are measured for every output, both without a unit and independent of scale:

``rms_error``   the root mean square of the difference over that of the reference; SQNR in dB is
                ``-20 log10`` of it.
``required``    the smallest tolerance ``t`` with ``|y - r| <= t (|r| + s)`` everywhere, ``s`` the root
                mean square of the reference: what torch.testing would have had to be given as
                ``rtol=t, atol=t*s``.

The first sees an error that is spread, the second one that sits in a single element. Each has a limit of
its own: a factor times the noise floor, which is what the precision alone does to the same module.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

_FACTOR = 8.0
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
    ``required``.
    """

    source: str
    rms_error: float
    required: float
    factor: float

    @property
    def limit_rms(self) -> float:
        """The largest ``rms_error`` that passes."""
        return self.factor * self.rms_error

    @property
    def limit(self) -> float:
        """The largest ``required`` tolerance that passes."""
        return self.factor * self.required


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


def passes(answer: torch.Tensor, reference: torch.Tensor, floor: Floor) -> bool:
    """Whether an answer would pass against the reference under these limits."""
    if not reference.is_floating_point():
        return bool(torch.equal(answer, reference))
    if not nonfinite_agree(answer, reference):
        return False
    off = error(answer, reference)
    return off.rms_error <= floor.limit_rms and off.required <= floor.limit


def witnesses(
    reference: torch.Tensor,
    floor: Floor,
    *,
    dtype: torch.dtype,
    input_rms: float | None = None,
    other_answer: torch.Tensor | None = None,
) -> list[str]:
    """The wrong answers that this comparison could not tell from a right one.

    A comparison with a witness is vacuous. Zeros, the wrong sign, and the answer to another input
    are tried under the very limits of the cell. ``faded`` is a reference smaller than the rounding
    step of the inputs it came from: an absolute tolerance of any use takes it for zero, as does a
    device that flushes small numbers.
    """
    found = []
    if reference.numel() == 0:
        return ["empty"]
    if passes(torch.zeros_like(reference), reference, floor):
        found.append("zeros")
    if reference.dtype != torch.bool and passes(-reference, reference, floor):
        found.append("negated")
    if other_answer is not None and passes(other_answer, reference, floor):
        found.append("other_input")
    if reference.is_floating_point() and input_rms:
        finite = _as_double(reference)
        finite = finite[torch.isfinite(finite)]
        if finite.numel() and _rms(finite) < torch.finfo(dtype).eps * input_rms:
            found.append("faded")
    return found


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
