"""Keeps a program that was found right, with inputs and answers, for others to run without torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch

from edgeproof.worker.model import Inputs, other_inputs


def keep(
    folder: Path, pte: bytes, inputs: Inputs, turns: int, answers: Callable[[Inputs], list[Any]],
    flat: Callable[[Inputs], list[Any]],
) -> dict[str, Any]:  # fmt: skip
    """Write ``program.pte``, ``inputs.npz`` and ``answers.npz`` and say what they hold.

    There is a set of inputs for each of ``turns``: the example first, then others of the same kind, and the
    ``answers`` that a program just loaded gives to each. Where the model refuses other inputs the example's
    stand for them. Arrays are named ``TURN_POSITION``, their dims in the order in which they lie in memory,
    which ``orders`` tells for each position: files of arrays know no other layouts. Raises ``ValueError``
    for values that are no tensors, or of a dtype that numpy does not have.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "program.pte").write_bytes(pte)
    arrays: dict[str, dict[str, Any]] = {"inputs": {}, "answers": {}}
    orders: dict[str, list[list[int]]] = {}
    different = 0
    for turn in range(turns):
        chosen = (other_inputs(inputs, seed=turn) if turn else None) or inputs
        try:
            answered = answers(chosen)
        except Exception:
            if not turn:
                raise
            chosen = inputs
            answered = answers(chosen)
        different += turn == 0 or chosen is not inputs
        for kind, values in (("inputs", flat(chosen)), ("answers", answered)):
            tensors = [_tensor(value) for value in values]
            orders[kind] = [list(tensor.dim_order()) for tensor in tensors]
            for n, (tensor, order) in enumerate(zip(tensors, orders[kind], strict=True)):
                arrays[kind][f"{turn}_{n}"] = tensor.permute(order).contiguous().numpy()
    for kind, held in arrays.items():
        numpy.savez(folder / f"{kind}.npz", **held)
    return {
        "turns": turns,
        "different_inputs": different,
        "outputs": len(orders["answers"]),
        "orders": orders,
    }


def _tensor(value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise ValueError(
            f"a program with a {type(value).__name__} among its values cannot be stressed"
        )
    if value.dtype is torch.bfloat16:
        raise ValueError(
            "a program that takes or gives bfloat16 cannot be stressed: numpy has none"
        )
    return value.detach()
