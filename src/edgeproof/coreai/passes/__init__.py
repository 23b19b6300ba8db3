"""Rewrites of a program into what the Core AI converter gets right.

``default_passes()`` are for ``to_edge_transform_and_lower(..., transform_passes=default_passes())``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgeproof.coreai.passes.adaptive import RewriteAdaptivePoolsPass
from edgeproof.coreai.passes.alpha import DecomposeAddSubAlphaPass
from edgeproof.coreai.passes.attention import RewriteAttentionPass
from edgeproof.coreai.passes.buffers import CopyToBuffersPass
from edgeproof.coreai.passes.constants import FoldConstantCastsPass
from edgeproof.coreai.passes.convolution import RewriteTransposedConvolutionPass
from edgeproof.coreai.passes.elementwise import RewriteElementwisePass
from edgeproof.coreai.passes.indexing import RewriteIndexingPass
from edgeproof.coreai.passes.missing import RewriteMissingPass
from edgeproof.coreai.passes.narrow import NarrowDtypesPass
from edgeproof.coreai.passes.normalization import RewriteNormalizationPass
from edgeproof.coreai.passes.normalize import NormalizeCoreAIOpArgsPass
from edgeproof.coreai.passes.pooling import RewritePoolsPass
from edgeproof.coreai.passes.resizing import RewriteResizingPass
from edgeproof.coreai.passes.shapes import RewriteCornersPass

__all__ = [
    "CopyToBuffersPass",
    "DecomposeAddSubAlphaPass",
    "FoldConstantCastsPass",
    "NarrowDtypesPass",
    "NormalizeCoreAIOpArgsPass",
    "RewriteAdaptivePoolsPass",
    "RewriteAttentionPass",
    "RewriteCornersPass",
    "RewriteElementwisePass",
    "RewriteIndexingPass",
    "RewriteMissingPass",
    "RewriteNormalizationPass",
    "RewritePoolsPass",
    "RewriteResizingPass",
    "RewriteTransposedConvolutionPass",
    "default_passes",
]


def default_passes() -> list[Callable[[Any], Any]]:
    """The passes that make a program right for Core AI, in their order."""
    return [
        CopyToBuffersPass(),
        FoldConstantCastsPass(),
        NormalizeCoreAIOpArgsPass(),
        RewriteMissingPass(),
        RewriteCornersPass(),
        RewritePoolsPass(),
        RewriteAdaptivePoolsPass(),
        RewriteTransposedConvolutionPass(),
        RewriteNormalizationPass(),
        RewriteAttentionPass(),
        RewriteResizingPass(),
        RewriteIndexingPass(),
        NarrowDtypesPass(),
        FoldConstantCastsPass(),
        RewriteElementwisePass(),
        DecomposeAddSubAlphaPass(),
    ]
