"""A transformer block with a dynamic batch, to try ``edgeproof check`` on.

edgeproof check examples/transformer_block.py:build --flows "portable_fp32,xnnpack_*"
"""

from __future__ import annotations

import torch
from torch import nn


class Block(nn.Module):
    """Pre-norm self-attention and a gated MLP, both residual. Takes and gives (batch, 16, 64)."""

    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.gate = nn.Linear(width, 2 * width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One block."""
        batch, length, width = x.shape
        split = (batch, length, 3, self.heads, width // self.heads)
        q, k, v = self.qkv(self.norms[0](x)).view(split).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        y = self.norms[1](x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


def build() -> tuple[nn.Module, tuple[torch.Tensor], tuple[dict[int, torch.export.Dim]]]:
    """The block, an example batch of four, and a batch that may be 1 to 32."""
    batch = torch.export.Dim("batch", min=1, max=32)
    return Block(), (torch.randn(4, 16, 64),), ({0: batch},)
