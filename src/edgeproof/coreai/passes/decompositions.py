"""Operators outside Core ATen, taken apart into operators that the converter has.

ExecuTorch's edge dialect does not allow them and its runtime has no kernels for them, so this has to
happen on the ATen program, before lowering: ``CoreAIPartitioner.transform_for_pre_decomposition``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram

from edgeproof.coreai.graph import varies
from edgeproof.coreai.passes.adaptive import adaptive_max
from edgeproof.coreai.passes.bags import embedding_bag

aten = torch.ops.aten


def _adaptive_max_pool(rank: int) -> Callable[..., Any]:
    def decomposition(x: torch.Tensor, output_size: Any) -> Any:
        if not all(isinstance(size, int) for size in x.shape[-rank:]):
            return NotImplemented
        size = [output_size] * rank if isinstance(output_size, int) else list(output_size)
        return adaptive_max(x, size)

    return decomposition


def median_dim(x: torch.Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """The lower median along ``dim`` and where it stands; NaN if there is one."""
    if x.dim() == 0:
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    size = x.shape[dim]
    if not isinstance(size, int):
        return NotImplemented
    middle = (size - 1) // 2
    values, indices = torch.topk(x, middle + 1, dim, False, True)
    value = values.narrow(dim, middle, 1)
    index = indices.to(torch.int32).narrow(dim, middle, 1)
    if x.dtype.is_floating_point:
        number = torch.arange(size, dtype=torch.int32, device=x.device)
        number = number.view([-1 if d == dim % x.dim() else 1 for d in range(x.dim())])
        none = torch.full((), size, dtype=torch.int32, device=x.device)
        first = torch.amin(torch.where(torch.ne(x, x), number, none), [dim], True)
        has_nan = torch.lt(first, none)
        value = torch.where(has_nan, torch.full_like(value, float("nan")), value)
        index = torch.where(has_nan, first, index)
    index = index.to(torch.int64)
    return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))


def median(x: torch.Tensor) -> Any:
    """The lower median of all values; NaN if there is one."""
    if varies(x):
        return NotImplemented
    flat = x.reshape(-1)
    middle = (flat.shape[0] - 1) // 2
    value = torch.topk(flat, middle + 1, 0, False, True)[0].narrow(0, middle, 1).reshape(())
    if x.dtype.is_floating_point:
        has_nan = torch.any(torch.ne(flat, flat))
        value = torch.where(has_nan, torch.full_like(value, float("nan")), value)
    return value


def round_decimals(x: torch.Tensor, *, decimals: int) -> torch.Tensor:
    """Rounding at a decimal place, as PyTorch's CPU kernel does it."""
    if not x.dtype.is_floating_point or decimals == 0:
        return torch.round(x) if x.dtype.is_floating_point else x.clone()
    ten = float(10 ** abs(decimals))
    if decimals > 0:
        return torch.div(torch.round(torch.mul(x, ten)), ten)
    return torch.mul(torch.round(torch.div(x, ten)), ten)


def exp2(x: torch.Tensor) -> torch.Tensor:
    """Two to the power of ``x``."""
    x = x if x.dtype.is_floating_point else x.to(torch.get_default_dtype())
    return torch.pow(torch.full_like(x, 2.0), x)


def adaptive_max_pool1d(x: torch.Tensor, output_size: Any) -> Any:
    """The adaptive maximum pool of the last dim."""
    return _adaptive_max_pool(1)(x, output_size)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.adaptive_max_pool1d.default: adaptive_max_pool1d,
    aten.adaptive_max_pool2d.default: _adaptive_max_pool(2),
    aten.adaptive_max_pool3d.default: _adaptive_max_pool(3),
    aten.median.dim: median_dim,
    aten.median.default: median,
    aten.round.decimals: round_decimals,
    aten.exp2.default: exp2,
    aten.embedding_bag.padding_idx: embedding_bag,
    aten._embedding_bag_forward_only.default: embedding_bag,
}
"""What is taken apart, and how; an operator on dynamic sizes may be left as it is (``NotImplemented``)."""


def decompose_outside_core_aten(program: ExportedProgram) -> ExportedProgram:
    """``program`` with the operators of ``DECOMPOSITIONS`` taken apart; the same object if it has none."""
    called = {
        node.target
        for module in program.graph_module.modules()
        if isinstance(module, torch.fx.GraphModule)
        for node in module.graph.nodes
        if node.op == "call_function"
    }
    if not called & DECOMPOSITIONS.keys():
        return program
    return program.run_decompositions(dict(DECOMPOSITIONS))
