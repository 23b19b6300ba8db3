"""Rewrites of a program into what the Core AI converter gets right.

``default_passes()`` are for ``to_edge_transform_and_lower(..., transform_passes=default_passes())``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from executorch.backends.apple.coreai.passes import NarrowToCoreAIDtypesPass
from torch.fx import GraphModule

from edgeproof.coreai.passes.adaptive import RewriteAdaptivePoolsPass
from edgeproof.coreai.passes.alpha import DecomposeAddSubAlphaPass
from edgeproof.coreai.passes.convolution import RewriteTransposedConvolutionPass
from edgeproof.coreai.passes.elementwise import RewriteElementwisePass
from edgeproof.coreai.passes.narrow import NarrowPositionsPass
from edgeproof.coreai.passes.normalize import NormalizeCoreAIOpArgsPass
from edgeproof.coreai.passes.pooling import RewritePoolsPass

__all__ = [
    "DecomposeAddSubAlphaPass",
    "NarrowPositionsPass",
    "NormalizeCoreAIOpArgsPass",
    "RewriteAdaptivePoolsPass",
    "RewriteElementwisePass",
    "RewritePoolsPass",
    "RewriteTransposedConvolutionPass",
    "default_passes",
]


def default_passes() -> list[Callable[[GraphModule], Any]]:
    """The passes that make a program right for Core AI, in their order."""
    return [
        NarrowToCoreAIDtypesPass(),
        NormalizeCoreAIOpArgsPass(),
        RewritePoolsPass(),
        RewriteAdaptivePoolsPass(),
        RewriteTransposedConvolutionPass(),
        RewriteElementwisePass(),
        DecomposeAddSubAlphaPass(),
        NarrowPositionsPass(),
    ]
