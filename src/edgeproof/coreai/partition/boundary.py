"""Which values can be handed to Core AI and taken back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Node

_NARROWED = frozenset({torch.int64, torch.float64})
CARRIED = frozenset(
    {
        torch.float32,
        torch.float16,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    }
)
"""What ExecuTorch and Core AI's runtime both hold as it is."""


def boundary_reason(node: Node) -> str:
    """Why a value that ``node`` takes or gives cannot cross into Core AI; '' when all can.

    Core AI computes in at most 32 bits and has no scalar arguments: a Python number or a symbolic size
    would be frozen at export, a 64-bit tensor narrowed without a word.
    """
    for value in _values(node):
        if isinstance(value, torch.Tensor):
            if value.dtype in _NARROWED:
                return f"{value.dtype} cannot cross into Core AI, which has at most 32 bits"
            if value.dtype not in CARRIED:
                return f"{value.dtype} cannot cross into Core AI"
        elif value is not None:
            return f"a scalar ({type(value).__name__}) cannot cross into Core AI"
    return ""


def _values(node: Node) -> Iterator[Any]:
    for source in node.all_input_nodes:
        if source.op != "get_attr":
            yield from _flat(source.meta.get("val"))
    yield from _flat(node.meta.get("val"))


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        for item in value:
            yield from _flat(item)
    else:
        yield value
