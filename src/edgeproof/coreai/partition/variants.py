"""What the converter has a lowering for and still gets wrong: the table of variants kept out.

A rule names a kind of node that, delegated, crashes the converter or the runtime, or comes out wrong.
Each has a proof in ``tests/coreai/test_variants.py``: a program of that kind, delegated by force. When
the proof no longer holds (a newer converter), that test says so and the rule can go.

Rules look at one node of an edge (or ATen) graph with fake values in ``meta["val"]``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.fx import Node

from edgeproof.coreai.graph import argument, overload_name


@dataclass(frozen=True)
class Rule:
    """A kind of node that is kept out of the delegate.

    ``reason`` completes "kept out because ..."; ``mended_by`` names the pass of ``default_passes()``
    that rewrites such nodes so that they need not be kept out, '' where there is none.
    """

    name: str
    reason: str
    matches: Callable[[Node], bool]
    mended_by: str = ""


def _is(node: Node, *names: str) -> bool:
    return overload_name(node) in names


def _non_unit_alpha(node: Node) -> bool:
    return (
        _is(node, "add.Tensor", "sub.Tensor", "add.Scalar", "sub.Scalar")
        and argument(node, "alpha") != 1
    )


def _mixed_dtypes(node: Node) -> bool:
    if not _is(node, "add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor"):
        return False
    dtypes = {
        arg.meta["val"].dtype
        for arg in node.all_input_nodes
        if isinstance(arg.meta.get("val"), torch.Tensor)
    }
    return len(dtypes) > 1


def _reduces_without_dims(node: Node) -> bool:
    return _is(node, "amax.default", "amin.default", "mean.dim") and not argument(node, "dim")


RULES: tuple[Rule, ...] = (
    Rule(
        "alpha",
        "the converter ignores an alpha other than 1",
        _non_unit_alpha,
        mended_by="DecomposeAddSubAlphaPass",
    ),
    Rule(
        "implicit-dims",
        "the converter needs the dims of amax, amin and mean written out",
        _reduces_without_dims,
        mended_by="NormalizeCoreAIOpArgsPass",
    ),
)


def unsupported_variant_reason(node: Node) -> str:
    """Why ``node`` must not be delegated though its operator has a lowering; '' when it may be."""
    return next((rule.reason for rule in RULES if rule.matches(node)), "")


def is_coreai_supported_variant(node: Node) -> bool:
    """Whether no rule keeps ``node`` out of the delegate."""
    return not unsupported_variant_reason(node)
