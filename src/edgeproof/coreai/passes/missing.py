"""Operators that the converter does not have and that a few others make up."""

from __future__ import annotations

import torch
from torch.fx import Node

from edgeproof.coreai.graph import argument, fake
from edgeproof.coreai.passes.rewrite import Replacement, Rewrite, RewritePass


def elu(node: Node) -> Replacement | None:
    """``x`` where it is positive, ``alpha * (exp(input_scale * x) - 1)`` elsewhere, scaled."""
    alpha, scale, inner = (float(argument(node, n)) for n in ("alpha", "scale", "input_scale"))

    def replacement(x: torch.Tensor) -> torch.Tensor:
        below = torch.minimum(x, torch.full((), 0.0, dtype=x.dtype))
        below = torch.expm1(torch.mul(below, inner) if inner != 1 else below)
        result = torch.where(torch.gt(x, 0.0), x, torch.mul(below, alpha) if alpha != 1 else below)
        return torch.mul(result, scale) if scale != 1 else result

    return replacement


def variance(node: Node) -> Replacement | None:
    """The mean of squared distances from the mean, corrected for the degrees of freedom, in fp32."""
    x = fake(node.args[0])
    given = argument(node, "dim")
    dims = [d % x.dim() for d in given] if given else list(range(x.dim()))
    correction = argument(node, "correction")
    correction = 1 if correction is None else correction
    if x.dim() == 0 or not all(isinstance(x.shape[d], int) for d in dims):
        return None
    count = 1
    for d in dims:
        count *= x.shape[d]
    freedom, keepdim = count - correction, bool(argument(node, "keepdim"))
    if freedom <= 0 or x.dtype not in (torch.float32, torch.float16):
        return None

    def replacement(x: torch.Tensor) -> torch.Tensor:
        wide = x.to(torch.float32)
        centred = torch.sub(wide, torch.mean(wide, dims, True))
        mean = torch.mean(torch.mul(centred, centred), dims, keepdim)
        return torch.mul(mean, count / freedom).to(x.dtype)

    return replacement


def isnan(node: Node) -> Replacement | None:
    """NaN alone differs from itself."""
    return lambda x: torch.ne(x, x)


class RewriteMissingPass(RewritePass):
    """``elu``, ``isnan`` and the variance, made up of what the converter has."""

    rewrites = (
        Rewrite(("isnan.default",), isnan),
        Rewrite(("elu.default",), elu),
        Rewrite(("var.correction",), variance),
    )
