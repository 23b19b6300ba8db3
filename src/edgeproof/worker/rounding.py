"""Arithmetic with a bias, imitated: every result is rounded upwards to a narrower type."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class RoundedUp(TorchDispatchMode):  # type: ignore[misc] # Any where torch is not installed
    """While active, every float32 result of an operation is rounded up to ``dtype`` and widened again.

    A bound for hardware whose rounding errors have a mean other than zero: real ones round some
    results up and some to nearest.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self._dtype = dtype

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run the operation, then round what it gave."""
        result = func(*args, **(kwargs or {}))
        return torch.utils._pytree.tree_map_only(torch.Tensor, self._round, result)

    def _round(self, value: torch.Tensor) -> torch.Tensor:
        if value.dtype != torch.float32:
            return value
        nearest = value.to(self._dtype)
        above = torch.nextafter(nearest, torch.full_like(nearest, torch.inf))
        return torch.where(nearest.float() < value, above, nearest).float()
