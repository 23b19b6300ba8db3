"""The last stage: hold what the program answered against the reference, output by output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from edgeproof.worker.model import Inputs
from edgeproof.worker.numerics import (
    Error,
    Floor,
    distance,
    error,
    faded,
    input_rms,
    nonfinite_agree,
    told_apart,
    wrong_answers,
)


def compare(
    answers: list[Any],
    reference: list[tuple[str, Any]],
    floors: list[Floor],
    *,
    point: str,
    dtype: torch.dtype,
    inputs: Inputs,
    eager: list[tuple[str, Any]],
    other_answers: list[Any],
    writes_to: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Measure every output; each row says by itself whether it agrees and whether that proves anything.

    ``reference`` is the quantized module's answer in a quantized flow, ``eager`` always the float
    module's. Number and order are checked before values: an output too few shifts all others. To
    ``writes_to`` ExecuTorch answers with outputs of their own, and leaves the inputs as they were.
    """
    if len(answers) != len(reference):
        problem = f"the program has {len(answers)} outputs, the module {len(reference)}"
        if writes_to:
            problem += (
                f"; the module writes to its input {', '.join(writes_to)}: ExecuTorch leaves that "
                "input as it is and puts what was written before the outputs"
            )
        return [{"output": "*", "point": point, "problem": problem}]
    rms = input_rms(torch.utils._pytree.tree_leaves(inputs))
    rows = []
    for index, (path, expected) in enumerate(reference):
        row: dict[str, Any] = {"output": path or "[0]", "point": point, "problem": ""}
        rows.append(row)
        got = answers[index]
        if not isinstance(expected, torch.Tensor):
            if got != expected or isinstance(got, bool) != isinstance(expected, bool):
                row["problem"] = f"is {got!r}, must be {expected!r}"
            row.update(_scalar_row(expected))
            continue
        row["problem"] = _unlike(got, expected)
        if row["problem"]:
            continue
        floor, witnesses = limits(
            expected, index, floors[index], other_answers, dtype=dtype, rms=rms
        )
        row.update(_measure(got, expected, floor, eager[index][1]))
        row["witnesses"] = witnesses
    return rows


def limits(
    expected: torch.Tensor,
    index: int,
    floor: Floor,
    other_answers: list[Any],
    *,
    dtype: torch.dtype,
    rms: float | None,
) -> tuple[Floor, list[str]]:
    """The floor of an output, capped by wrong answers, and the names of those that no limit keeps out.

    ``rms`` is that of the inputs.
    """
    wrong = _wrong_answers(expected, index, other_answers)
    floor, witnesses = told_apart(expected, floor, wrong, dtype=dtype)
    if expected.numel() == 0:
        witnesses = ["empty"]
    elif faded(expected, dtype=dtype, input_rms=rms):
        witnesses.append("faded")
    return floor, witnesses


def compare_quantized(
    quantized: list[tuple[str, Any]],
    eager: list[tuple[str, Any]],
    *,
    point: str,
    other_answers: list[Any],
) -> list[dict[str, Any]]:
    """Hold the quantized module to the float one, output by output, both in eager PyTorch.

    How much accuracy quantization may cost is for the model's owner to say. But an answer that is off by
    more than half the way to one that is known to be wrong is no answer of this model any more.
    """
    rows = unlike_kinds(quantized, eager, point=point)
    if rows:
        return rows
    for index, ((_, got), (path, expected)) in enumerate(zip(quantized, eager, strict=True)):
        row: dict[str, Any] = {"output": path or "[0]", "point": point, "problem": ""}
        rows.append(row)
        if not isinstance(expected, torch.Tensor):
            row["constant"] = True
            continue
        if not nonfinite_agree(got, expected):
            row["problem"] = "has NaN or Inf at other places than that of the float module"
            continue
        wrong = _wrong_answers(expected, index, other_answers)
        ways = {name: distance(answer, expected) for name, answer in wrong.items()}
        nearest = min(ways, key=lambda name: ways[name])
        off, limit = distance(got, expected), ways[nearest] / 2
        row.update(error=off, limit=limit, nearest=nearest)
        if expected.is_floating_point():
            row["sqnr_db"] = error(got, expected).sqnr_db
        if not off <= limit:
            row["problem"] = (
                f"is off that of the float module by {off:.3g}, more than half the way to a wrong "
                f"answer ({nearest}): {limit:.3g}"
            )
    return rows


def _wrong_answers(
    expected: torch.Tensor, index: int, other_answers: list[Any]
) -> dict[str, torch.Tensor]:
    other = other_answers[index] if index < len(other_answers) else None
    if not isinstance(other, torch.Tensor) or other.shape != expected.shape:
        other = None
    return wrong_answers(expected, other)


def unlike_kinds(
    quantized: list[tuple[str, Any]], eager: list[tuple[str, Any]], *, point: str
) -> list[dict[str, Any]]:
    """Rows for outputs that a quantized module gives in other number, shape or dtype than the float one."""
    if len(quantized) != len(eager):
        problem = f"the quantized module has {len(quantized)} outputs, the module {len(eager)}"
        return [{"output": "*", "point": point, "problem": problem}]
    rows = []
    for (path, expected), (_, got) in zip(eager, quantized, strict=True):
        if not isinstance(expected, torch.Tensor):
            problem = "" if type(got) is type(expected) else f"is a {type(got).__name__}"
        else:
            problem = _unlike_kind(got, expected)
        if problem:
            row = {"output": path or "[0]", "point": point}
            rows.append({**row, "problem": f"of the quantized module {problem}"})
    return rows


def _unlike(got: Any, expected: torch.Tensor) -> str:
    """What is wrong with an answer before its values are looked at."""
    problem = _unlike_kind(got, expected)
    if problem:
        return problem
    if not nonfinite_agree(got, expected):
        return "has NaN or Inf at other places than the reference"
    return ""


def _unlike_kind(got: Any, expected: torch.Tensor) -> str:
    if not isinstance(got, torch.Tensor):
        return f"is a {type(got).__name__}, must be a tensor"
    if got.shape != expected.shape:
        return f"has shape {tuple(got.shape)}, must have {tuple(expected.shape)}"
    if got.dtype != expected.dtype:
        return f"has dtype {got.dtype}, must have {expected.dtype}"
    return ""


def _scalar_row(expected: Any) -> dict[str, Any]:
    return {
        "shape": [],
        "dtype": type(expected).__name__,
        "exact": True,
        # Written into the program, no input can change it: it agrees, and proves nothing.
        "constant": True,
    }


def _measure(
    got: torch.Tensor, expected: torch.Tensor, floor: Floor, eager: torch.Tensor
) -> dict[str, Any]:
    off = error(got, expected)
    exact = not expected.is_floating_point()
    agrees = (
        torch.equal(got, expected)
        if exact
        else (off.rms_error <= floor.limit_rms and off.required <= floor.limit)
    )
    return {
        "shape": list(expected.shape),
        "dtype": str(expected.dtype).removeprefix("torch."),
        "exact": exact,
        "max_abs": off.max_abs,
        "max_rel": off.max_rel,
        "sqnr_db": off.sqnr_db,
        "rms_error": off.rms_error,
        "required": off.required,
        "limit_rms": floor.limit_rms,
        "limit": floor.limit,
        "floor": {
            "source": floor.source,
            "rms_error": floor.rms_error,
            "required": floor.required,
            "factor": floor.factor,
            "nearest": floor.nearest,
        },
        "sqnr_db_against_eager": error(got, eager).sqnr_db,
        "problem": "" if agrees else _differs(got, expected) if exact else _too_far(off, floor),
    }


def _differs(got: torch.Tensor, expected: torch.Tensor) -> str:
    wrong = int((got != expected).sum())
    return f"{wrong} of {expected.numel()} values differ, none may"


def _too_far(off: Error, floor: Floor) -> str:
    said = (
        f"is too far off: rms error {off.rms_error:.3g} (limit {floor.limit_rms:.3g}), "
        f"required tolerance {off.required:.3g} (limit {floor.limit:.3g})"
    )
    if floor.rms_error > floor.limit_rms or floor.required > floor.limit:
        said += (
            f"; the precision alone may be too coarse for this model: {floor.source} is off by "
            f"{floor.rms_error:.3g} ({floor.required:.3g}), and a wrong answer ({floor.nearest}) is near"
        )
    return said
