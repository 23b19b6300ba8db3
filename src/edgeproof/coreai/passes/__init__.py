"""Rewrites of a program into what the Core AI converter gets right.

``default_passes()`` are for ``to_edge_transform_and_lower(..., transform_passes=default_passes())``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from executorch.backends.apple.coreai.passes import NarrowToCoreAIDtypesPass
from torch.fx import GraphModule

from edgeproof.coreai.passes.alpha import DecomposeAddSubAlphaPass
from edgeproof.coreai.passes.normalize import NormalizeCoreAIOpArgsPass

__all__ = ["DecomposeAddSubAlphaPass", "NormalizeCoreAIOpArgsPass", "default_passes"]


def default_passes() -> list[Callable[[GraphModule], Any]]:
    """The passes that make a program right for Core AI, in their order."""
    return [NarrowToCoreAIDtypesPass(), NormalizeCoreAIOpArgsPass(), DecomposeAddSubAlphaPass()]
