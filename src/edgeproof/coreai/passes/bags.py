"""``embedding_bag``: rows of a table, reduced bag by bag.

Neither the converter nor ExecuTorch's portable kernels have it, so it is written in operators they have.
"""

from __future__ import annotations

from typing import Any

import torch

_SUM, _MEAN, _MAX = range(3)


def embedding_bag(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    """The reduced rows, ``[bags, width]``; the other three results, which are for gradients, are empty.

    A row counts for a bag by a mask and not by a product with zero, so that an infinity in one bag's rows
    stays there.
    """
    count = indices.shape[0]
    bags = offsets.shape[0] - include_last_offset
    if not all(isinstance(size, int) for size in (count, bags, *weight.shape)):
        return NotImplemented
    starts = offsets.to(torch.int32)[:bags]
    last = torch.full_like(starts[:1], count)
    ends = torch.cat([starts[1:], last])
    member = _members(indices, starts, ends, padding_idx)
    held = torch.sum(member.to(torch.float32), 1, keepdim=True)
    if include_last_offset and mode != _MAX and padding_idx is None:
        # PyTorch wants the last offset to be the number of indices. Where it is less, its kernels take the
        # last bag to the end all the same, but for this one: it sums up to there and divides by all.
        member = _members(indices, starts, offsets.to(torch.int32)[1:], padding_idx)
    rows = torch.embedding(weight, indices)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    rows, mask = rows.unsqueeze(0), member.unsqueeze(2)
    if mode == _MAX:
        lowest = torch.full_like(rows, float("-inf"))
        result = torch.amax(torch.where(mask, rows, lowest), 1)
        empty = torch.logical_not(torch.any(member, 1, keepdim=True))
        result = torch.where(empty, torch.zeros_like(result), result)
    else:
        result = torch.sum(torch.where(mask, rows, torch.zeros_like(rows)), 1)
        if mode == _MEAN:
            result = result / torch.clamp(held, min=1.0).to(result.dtype)
    none = offsets.new_empty(0)
    return result, none, none, none


def _members(
    indices: torch.Tensor, starts: torch.Tensor, ends: torch.Tensor, padding_idx: int | None
) -> torch.Tensor:
    """Which index counts for which bag, ``[bags, indices]``."""
    place = torch.arange(indices.shape[0], dtype=torch.int32, device=indices.device).unsqueeze(0)
    member = (place >= starts.unsqueeze(1)) & (place < ends.unsqueeze(1))
    if padding_idx is not None:
        member = member & torch.ne(indices.to(torch.int32), padding_idx).unsqueeze(0)
    return member
