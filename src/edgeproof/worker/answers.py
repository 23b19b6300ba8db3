"""Ask a loaded program, and hold its answers against a case's reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from edgeproof.plan.flow import SINGLE, Arithmetic
from edgeproof.worker.compare import compare, limits
from edgeproof.worker.model import Inputs, cloned
from edgeproof.worker.numerics import input_rms
from edgeproof.worker.reference import Reference


def compared_with(
    reference: Reference,
    answers: list[Any],
    arithmetic: Arithmetic,
    *,
    point: str,
    writes_to: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """The rows of a float flow's answers at one point (see ``edgeproof.worker.compare.compare``)."""
    return compare(
        answers,
        reference.outputs,
        reference.floors(arithmetic),
        point=point,
        dtype=getattr(torch, arithmetic.dtype),
        inputs=reference.inputs,
        eager=reference.outputs,
        other_answers=reference.other_answers(),
        writes_to=writes_to,
    )


def proves_something(reference: Reference) -> bool:
    """Whether a right answer can be told from a wrong one at every output, in single precision."""
    floors = reference.floors(SINGLE)
    rms = input_rms(torch.utils._pytree.tree_leaves(reference.inputs))
    for index, (_, expected) in enumerate(reference.outputs):
        if isinstance(expected, torch.Tensor):
            _, found = limits(
                expected,
                index,
                floors[index],
                reference.other_answers(),
                dtype=torch.float32,
                rms=rms,
            )
            if found:
                return False
    return True


def answers_of(method: Any, point: str, inputs: Inputs) -> list[Any]:
    """What a loaded method answers to the inputs of a point, copied out of its own memory.

    Raises what the runtime raises, with the shapes of the inputs where they are not the example's.
    """
    try:
        return [_detached(value) for value in method.execute(flat_inputs(inputs, method))]
    except Exception as fault:
        if point == "example":
            raise
        shapes = [
            tuple(t.shape) for t in flat_inputs(inputs, method) if isinstance(t, torch.Tensor)
        ]
        raise RuntimeError(f"at the {point} input, of shape {shapes}: {fault}") from fault


def flat_inputs(inputs: Inputs, method: Any) -> list[Any]:
    """Fresh copies of the inputs in the order in which the program takes them.

    Inputs that are no tensors are written into the program by export; a program that does not take
    them as inputs at all gets the tensors alone.
    """
    leaves: list[Any] = torch.utils._pytree.tree_leaves(cloned(inputs))
    if len(leaves) != method.metadata.num_inputs():
        leaves = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return leaves


def _detached(value: Any) -> Any:
    # Outputs live in the method's own memory, which the next call writes to.
    return value.detach().clone() if isinstance(value, torch.Tensor) else value
