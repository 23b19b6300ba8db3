"""What of a program Core AI gets: the partitioner and the table of variants that it keeps out."""

from __future__ import annotations

from edgeproof.coreai.partition.partitioner import CoreAIPartitioner
from edgeproof.coreai.partition.variants import (
    RULES,
    Rule,
    is_coreai_supported_variant,
    unsupported_variant_reason,
)

__all__ = [
    "RULES",
    "CoreAIPartitioner",
    "Rule",
    "is_coreai_supported_variant",
    "unsupported_variant_reason",
]
