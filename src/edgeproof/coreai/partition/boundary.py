"""Which values can be handed to Core AI and taken back."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Node

from edgeproof.coreai.passes.narrow import makes_positions, narrows

NARROWED = frozenset({torch.int64, torch.float64})
"""What the converter narrows to 32 bits without a word."""

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
            if value.dtype in NARROWED:
                return f"{value.dtype} cannot cross into Core AI, which has at most 32 bits"
            if value.dtype not in CARRIED:
                return f"{value.dtype} cannot cross into Core AI"
        elif value is not None:
            return f"a scalar ({type(value).__name__}) cannot cross into Core AI"
    return ""


def _values(node: Node) -> Iterator[Any]:
    if not _is_narrowing_of_delegable(node):
        for source in node.all_input_nodes:
            if source.op != "get_attr":
                yield from _used(source)
    if not _stays_inside(node):
        yield from _used(node)


def _used(node: Node) -> Iterator[Any]:
    """The values of ``node``; of an operator with several results those that something uses."""
    value = node.meta.get("val")
    if not isinstance(value, tuple | list):
        yield value
        return
    taken = [u for u in node.users if u.target is operator.getitem]
    if len(taken) < len(node.users):
        yield from value
    for user in taken:
        if user.users and not _stays_inside(user):
            yield value[user.args[1]]


def _stays_inside(node: Node) -> bool:
    """Whether ``node``'s 64-bit positions are narrowed by all that uses them, so that they never cross."""
    value = node.meta.get("val")
    return (
        isinstance(value, torch.Tensor)
        and value.dtype == torch.int64
        and node.op == "call_function"
        and bool(node.users)
        and all(narrows(user) for user in node.users)
        and (makes_positions(node) or node.target is operator.getitem)
    )


def _is_narrowing_of_delegable(node: Node) -> bool:
    """Whether ``node`` narrows a value that stays inside the delegate together with what computes it."""
    if not narrows(node):
        return False
    source = node.args[0]
    if not isinstance(source, Node) or not _stays_inside(source):
        return False
    producer = source.args[0] if source.target is operator.getitem else source
    return isinstance(producer, Node) and makes_positions(producer)
