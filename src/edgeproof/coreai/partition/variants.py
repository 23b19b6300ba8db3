"""What the converter has a lowering for and still gets wrong: the table of variants kept out.

A rule names a kind of node that, delegated, crashes the converter or the runtime, or comes out wrong. Each
has a proof in ``tests/coreai/test_variants.py``: a program of that kind, delegated by force. When the proof
no longer holds (a newer converter), that test says so and the rule can be dropped.

Most such nodes never get here: a pass of ``default_passes()`` has rewritten them (``mended_by``). The rules
keep out what the passes cannot mend (sizes that are dynamic, say) and what was lowered without them.

Rules look at one node of an edge (or ATen) graph with fake values in ``meta["val"]``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from edgeproof.coreai.graph import argument, fake, holds, least, numbers, overload_name, varies
from edgeproof.coreai.passes import elementwise, indexing, normalization, resizing, shapes
from edgeproof.coreai.passes.rewrite import Replacement


@dataclass(frozen=True)
class Rule:
    """A kind of node that is kept out of the delegate.

    ``reason`` completes "kept out because ..."; ``mended_by`` names the pass of ``default_passes()``
    that rewrites such nodes, as far as it can, so that they need not be kept out.
    """

    name: str
    reason: str
    matches: Callable[[Node], bool]
    mended_by: str = ""


def _is(node: Node, *names: str) -> bool:
    return overload_name(node) in names


def _rewritable(build: Callable[[Node], Replacement | None], *names: str) -> Callable[[Node], bool]:
    """Matches the calls of ``names`` that the rewrite ``build`` would replace, or cannot mend."""
    return lambda node: _is(node, *names) and build(node) is not None


def _tensors(node: Node) -> list[torch.Tensor]:
    values: list[Any] = [source.meta.get("val") for source in node.all_input_nodes]
    return [value for value in values if isinstance(value, torch.Tensor)]


def _alpha(node: Node) -> bool:
    return (
        _is(node, "add.Tensor", "sub.Tensor", "add.Scalar", "sub.Scalar")
        and argument(node, "alpha") != 1
    )


def _implicit_dims(node: Node) -> bool:
    return _is(node, "amax.default", "amin.default", "mean.dim") and not argument(node, "dim")


def _avg_pool(node: Node) -> bool:
    if not _is(node, "avg_pool2d.default", "avg_pool3d.default"):
        return False
    rank = 2 if _is(node, "avg_pool2d.default") else 3
    counted = argument(node, "count_include_pad") or not any(argument(node, "padding") or [])
    short = any(
        len(argument(node, n) or [0, 0, 0]) < rank for n in ("kernel_size", "stride", "padding")
    )
    return (
        bool(argument(node, "ceil_mode"))
        or not counted
        or short
        or fake(node.args[0]).dim() != rank + 2
        or len(node.args) == 5  # the converter reads the sixth wherever there is a fifth
    )


def _max_pool(node: Node) -> bool:
    if not _is(node, "max_pool2d_with_indices.default"):
        return False
    return bool(argument(node, "ceil_mode")) or fake(node.args[0]).dim() != 4


def _transposed_conv3d(node: Node) -> bool:
    return (
        _is(node, "convolution.default")
        and bool(argument(node, "transposed"))
        and fake(node.args[0]).dim() == 5
    )


def _adaptive_avg_pool(node: Node) -> bool:
    if not _is(node, "_adaptive_avg_pool2d.default"):
        return False
    x, out = fake(node.args[0]), node.meta["val"].shape[-2:]
    sizes = x.shape[-2:]
    if x.dim() != 4:
        return True
    if not all(isinstance(size, int) for size in (*sizes, *out)):
        return 1 in out
    return any(o > s for o, s in zip(out, sizes, strict=True))


def _squeeze(node: Node) -> bool:
    if not _is(node, "squeeze.dims"):
        return False
    shape = fake(node.args[0]).shape
    return any(shape[dim] != 1 for dim in argument(node, "dim"))


def _accumulates(node: Node) -> bool:
    return _is(node, "index_put.default") and bool(argument(node, "accumulate"))


def _mask(node: Node) -> bool:
    if not _is(node, "index_put.default", "index.Tensor"):
        return False
    return any(
        isinstance(i, Node) and fake(i).dtype == torch.bool for i in argument(node, "indices")
    )


def _broadcast_values(node: Node) -> bool:
    if not _is(node, "index_put.default") or _accumulates(node) or _mask(node):
        return False
    return indexing.index_put(node) is not None


def _zero_dim_reduction(node: Node) -> bool:
    names = (*shapes.ZERO_DIM_REDUCTIONS, *shapes.ONE_VALUE, "any.default", "any.dim", "any.dims")
    return _is(node, *names) and fake(node.args[0]).dim() == 0


def _statistics(node: Node) -> bool:
    norm = _is(node, "native_layer_norm.default", "native_group_norm.default")
    return norm and normalization.uses_statistics(node)


def _nearest(node: Node) -> bool:
    return _is(node, "upsample_nearest2d.vec") and not resizing.whole_factors(node)


def may_be_empty(node: Node) -> bool:
    """Whether what ``node`` computes has no elements, or may come to have none.

    A size that depends on one other alone is not meant: of that the delegate demands that it be enough
    (``compiler.interface``).
    """
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and _empty(value) and bool(node.all_input_nodes)


def _empty(value: torch.Tensor) -> bool:
    return any(
        least(size) < 1 and (isinstance(size, int) or len(size.node.expr.free_symbols) != 1)
        for size in value.shape
    )


def _of_nothing(node: Node) -> bool:
    return _is(node, *shapes.OF_NOTHING) and any(_empty(tensor) for tensor in _tensors(node))


def may_not_be_whole(node: Node) -> bool:
    """Whether ``node`` will not be delegated for its sizes alone, so that it has to be taken apart."""
    return may_be_empty(node) or _channels(node)


def _channels(node: Node) -> bool:
    transposed = _is(node, "convolution.default") and argument(node, "transposed")
    norm = _is(node, "instance_norm.default", "_native_batch_norm_legit_no_training.default")
    if not transposed and not norm and not _is(node, "pixel_shuffle.default"):
        return False
    x, *per_channel = (fake(a) for a in node.args if isinstance(a, Node))
    return varies(*per_channel) or not isinstance(x.shape[1 if transposed or norm else -3], int)


def _too_large(node: Node) -> bool:
    if not overload_name(node) or not _tensors(node):
        return False
    dtypes = {tensor.dtype for tensor in _tensors(node)} - {torch.bool}
    return any(not holds(dtype, number) for number in numbers(node) for dtype in dtypes)


RULES: tuple[Rule, ...] = (
    Rule(
        "alpha",
        "the converter ignores an alpha other than 1",
        _alpha,
        "DecomposeAddSubAlphaPass",
    ),
    Rule(
        "implicit-dims",
        "the converter fails on amax, amin and mean whose dims are not written out",
        _implicit_dims,
        "NormalizeCoreAIOpArgsPass",
    ),
    Rule(
        "squeeze",
        "the converter fails to squeeze a dim whose size is not one, which PyTorch leaves alone",
        _squeeze,
        "NormalizeCoreAIOpArgsPass",
    ),
    Rule(
        "avg-pool",
        "the converter pads, sums and divides by the kernel's size, whatever ceil_mode and "
        "count_include_pad say, and fails on unbatched inputs and defaults left out",
        _avg_pool,
        "RewritePoolsPass",
    ),
    Rule(
        "max-pool",
        "the converter fails on ceil_mode whose last window starts in the padding, and on unbatched "
        "inputs",
        _max_pool,
        "RewritePoolsPass",
    ),
    Rule(
        "adaptive-pool",
        "the converter fails on adaptive pools of unbatched inputs or to more values than there are; one "
        "row or column out of a number that varies is of unknown size to it",
        _adaptive_avg_pool,
        "RewriteAdaptivePoolsPass",
    ),
    Rule(
        "transposed-conv3d",
        "the converter has no three-dimensional transposed convolution",
        _transposed_conv3d,
        "RewriteTransposedConvolutionPass",
    ),
    Rule(
        "accumulate",
        "the converter has no index_put that accumulates",
        _accumulates,
        "RewriteIndexingPass",
    ),
    Rule(
        "mask-index",
        "indexing by a boolean mask fails in the converter, or ends the process when the mask is all "
        "false",
        _mask,
        "RewriteIndexingPass",
    ),
    Rule(
        "broadcast-values",
        "index_put with values that are to be broadcast, or of dynamic size, writes wrong values",
        _broadcast_values,
        "RewriteIndexingPass",
    ),
    Rule(
        "short-gather",
        "the converter fails on a gather whose index is shorter than the input in another dim",
        _rewritable(indexing.gather, "gather.default"),
        "RewriteIndexingPass",
    ),
    Rule(
        "short-scatter",
        "the converter fails on a scatter whose index is shorter than input or source in another dim",
        _rewritable(indexing.scatter, "scatter.src", "scatter.value"),
        "RewriteIndexingPass",
    ),
    Rule(
        "zero-dim-reduction",
        "reducing a zero-dim tensor ends the process in the converter",
        _zero_dim_reduction,
        "RewriteCornersPass",
    ),
    Rule(
        "no-elements",
        "results without elements, or that may come to have none, crash or fail to load",
        may_be_empty,
        "RewriteCornersPass",
    ),
    Rule(
        "of-nothing",
        "what is reduced from no values at all comes out as whatever was in memory",
        _of_nothing,
        "RewriteCornersPass",
    ),
    Rule(
        "rounded-numbers",
        "the converter rounds the Python floats of arange and scalar_tensor to fp16",
        lambda node: _is(node, *shapes.OF_NUMBERS) and shapes.of_numbers(node) is not None,
        "RewriteCornersPass",
    ),
    Rule(
        "large-numbers",
        "the converter fails on Python numbers that the tensor's dtype does not hold",
        _too_large,
    ),
    Rule(
        "channels",
        "the converter fails on transposed convolutions, batch and instance norms and pixel shuffles of a "
        "number of channels that varies",
        _channels,
    ),
    Rule(
        "crop",
        "to replicate negative numbers of values is to crop, which the converter does not do",
        _rewritable(shapes.pad, *shapes.REPLICATION_PADS),
        "RewriteCornersPass",
    ),
    Rule(
        "to-zero-dim",
        "the converter writes an asset that does not verify when reshaping to no dims",
        _rewritable(shapes.to_zero_dim, "view.default", "_unsafe_view.default"),
        "RewriteCornersPass",
    ),
    Rule(
        "bool-extremum",
        "Core AI has no largest or least of booleans",
        _rewritable(shapes.extremum_of_bool, "amax.default", "amin.default"),
        "RewriteCornersPass",
    ),
    Rule(
        "any-of-bytes",
        "any of bytes gives a byte in PyTorch, a boolean in the converter, which then fails; any over "
        "no dims fails too",
        _rewritable(shapes.any_, "any.default", "any.dim", "any.dims"),
        "RewriteCornersPass",
    ),
    Rule(
        "beta-zero",
        "with a beta of zero addmm must not look at the added matrix, NaN in it come through",
        _rewritable(shapes.addmm, "addmm.default"),
        "RewriteCornersPass",
    ),
    Rule(
        "bool-arithmetic",
        "Core AI has no arithmetic and no order of booleans",
        _rewritable(
            elementwise.of_bools,
            *("add.Tensor", "mul.Tensor", "maximum.default", "minimum.default"),
            *("lt.Tensor", "gt.Tensor", "le.Tensor", "ge.Tensor"),
        ),
        "RewriteElementwisePass",
    ),
    Rule(
        "nan-order",
        "the converter lowers x <= y as not (x > y), which is true where NaN is compared",
        _rewritable(elementwise.or_equal, "le.Tensor", "le.Scalar", "ge.Tensor", "ge.Scalar"),
        "RewriteElementwisePass",
    ),
    Rule(
        "float-of-integers",
        "the converter types exp, sqrt and the like of integers as integers and fails",
        _rewritable(elementwise.cast_first, *elementwise.FLOAT_RESULTS),
        "RewriteElementwisePass",
    ),
    Rule(
        "bitwise-not",
        "the converter complements integers in fp32, which has 24 bits",
        _rewritable(elementwise.bitwise_not, "bitwise_not.default"),
        "RewriteElementwisePass",
    ),
    Rule(
        "remainder",
        "the remainder by an infinite divisor comes out as NaN",
        lambda node: _is(node, "remainder.Tensor") and node.meta["val"].dtype.is_floating_point,
        "RewriteElementwisePass",
    ),
    Rule(
        "integer-power",
        "the converter computes a power of integers with a Python exponent in fp16; powers of integers "
        "end the process where they do not fit, and come out as 0 for negative exponents",
        _rewritable(elementwise.power, "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar"),
        "RewriteElementwisePass",
    ),
    Rule(
        "integer-clamp",
        "bounds of an integer clamp go through a float; float bounds do not widen the result",
        _rewritable(elementwise.clamp, "clamp.default", "clamp.Tensor"),
        "RewriteElementwisePass",
    ),
    Rule(
        "batch-norm",
        "the converter fails on a batch norm without weight or bias",
        _rewritable(normalization.batch_norm, "_native_batch_norm_legit_no_training.default"),
        "RewriteNormalizationPass",
    ),
    Rule(
        "norm-statistics",
        "the converter gives the normalised values for mean and deviation too",
        _statistics,
        "RewriteNormalizationPass",
    ),
    Rule(
        "nearest",
        "nearest resizing by other than whole factors picks other values than PyTorch",
        _nearest,
        "RewriteResizingPass",
    ),
    Rule(
        "single-corner",
        "bilinear resizing to one value with corners aligned ends the process",
        _rewritable(resizing.bilinear, "upsample_bilinear2d.vec"),
        "RewriteResizingPass",
    ),
)


def unsupported_variant_reason(node: Node) -> str:
    """Why ``node`` must not be delegated though its operator has a lowering; '' when it may be."""
    if node.op != "call_function":
        return ""
    return next((rule.reason for rule in RULES if rule.matches(node)), "")


def is_coreai_supported_variant(node: Node) -> bool:
    """Whether no rule keeps ``node`` out of the delegate."""
    return not unsupported_variant_reason(node)
