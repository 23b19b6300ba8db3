"""Lowers, runs and compares cases of the sweep; executed inside the subject behind the files of cases."""

import functools
import tempfile

import torch._export.utils as export_utils
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime

from edgeproof.coreai import compile_config, default_passes, install_runtime
from edgeproof.coreai.partition import CoreAIPartitioner, partitioner
from edgeproof.coreai.passes import NarrowDtypesPass

# Nine tenths of the time of lowering a small program is torch collecting this table anew.
_collected = functools.cache(export_utils._collect_all_valid_cia_ops)
export_utils._collect_all_valid_cia_ops = _collected
install_runtime(cache_dir=tempfile.mkdtemp())


class Calls(torch.nn.Module):
    """Several functions, each with inputs of its own."""

    def __init__(self, functions, counts):
        super().__init__()
        self.functions, self.counts = functions, counts
        self.layers = torch.nn.ModuleList(g for g in functions if isinstance(g, torch.nn.Module))

    def forward(self, *values):
        results = []
        for function, count in zip(self.functions, self.counts, strict=True):
            results += _flat(function(*values[:count]))
            values = values[count:]
        return tuple(results)


def _flat(result):
    return list(result) if isinstance(result, tuple | list) else [result]


def _difference(got, want):
    """How ``got`` differs from ``want``; '' when it is right. NaN and infinities must stand in place."""
    if not isinstance(got, torch.Tensor):
        return f"{type(got).__name__} instead of a tensor"
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{tuple(got.shape)} {got.dtype} for {tuple(want.shape)} {want.dtype}"
    if not want.dtype.is_floating_point:
        return (
            ""
            if torch.equal(got, want)
            else f"{got.flatten()[:8].tolist()} for {want.flatten()[:8].tolist()}"
        )
    finite = want[want.isfinite()].abs()
    size = max(1.0, finite.max().item() if finite.numel() else 0.0)
    tolerance = 2e-2 if want.dtype in (torch.float16, torch.bfloat16) else 1e-4
    close = torch.allclose(
        got.double(), want.double(), rtol=tolerance, atol=0.2 * tolerance * size, equal_nan=True
    )
    return "" if close else f"{got.flatten()[:8].tolist()} for {want.flatten()[:8].tolist()}"


class _Unruled(CoreAIPartitioner):
    """Delegates all that the converter has a lowering for, as the program has it."""

    def transform_for_pre_decomposition(self, exported_program):
        return exported_program

    def ops_to_not_decompose(self, ep):
        return super().ops_to_not_decompose(ep)[0], None


def check(names, forced=False, dynamic=False):
    """What became of each case: ``right``, or ``wrong``/``failed`` with the reason.

    Cases go through one program together; when that fails, halves do, down to single ones. ``forced``
    delegates without rules and passes, which is what shows that a rule is needed; ``dynamic`` lets every
    size vary that export can let vary.
    """
    if len(names) > 1:
        try:
            together = _run(names, forced, dynamic)
        except Exception:
            together = {}
        if all(name in together for name in names):
            return together
        middle = len(names) // 2
        return {
            **check(names[:middle], forced, dynamic),
            **check(names[middle:], forced, dynamic),
        }
    try:
        return _run(names, forced, dynamic)
    except Exception as error:
        return {names[0]: {"outcome": "failed", "why": f"{type(error).__name__}: {error}"[:600]}}


def _all_dynamic(names):
    """``dynamic_shapes`` of ``Calls``: every size of two or more may vary.

    Apart from those that no model varies: of a convolution's weights, of heads and their width.
    """
    shapes = []
    for name in names:
        for number, value in enumerate(CASES[name][1]):
            fixed = set()
            if name.startswith("conv") and number:
                fixed = set(range(value.dim()))
            elif name.startswith("sdpa"):
                fixed = {value.dim() - 1, value.dim() - 3}
            shapes.append(
                {
                    d: torch.export.Dim.AUTO
                    for d, size in enumerate(value.shape)
                    if size > 1 and d not in fixed
                }
            )
    return (tuple(shapes),)


def _run(names, forced, dynamic):
    functions = [CASES[name][0] for name in names]
    inputs = [tuple(CASES[name][1]) for name in names]
    wanted = [[w.clone() for w in _flat(g(*x))] for g, x in zip(functions, inputs, strict=True)]
    values = tuple(v for x in inputs for v in x)
    module = Calls(functions, [len(x) for x in inputs]).eval()
    part = _Unruled() if forced else CoreAIPartitioner()
    reason = partitioner.unsupported_variant_reason
    if forced:
        partitioner.unsupported_variant_reason = lambda node: ""
    try:
        edge = to_edge_transform_and_lower(
            torch.export.export(
                module, values, dynamic_shapes=_all_dynamic(names) if dynamic else None
            ),
            partitioner=[part],
            compile_config=compile_config(),
            transform_passes=[NarrowDtypesPass()] if forced else default_passes(),
        )
    finally:
        partitioner.unsupported_variant_reason = reason
    program = Runtime.get().load_program(edge.to_executorch().buffer)
    got = list(program.load_method("forward").execute(values))
    delegates = sum("call_delegate" in str(n.target) for n in edge.exported_program().graph.nodes)
    results = {}
    for name, want in zip(names, wanted, strict=True):
        mine, got = got[: len(want)], got[len(want) :]
        differences = [_difference(g, w) for g, w in zip(mine, want, strict=True)]
        why = "; ".join(f"output {i}: {d}" for i, d in enumerate(differences) if d)
        results[name] = {
            "outcome": "wrong" if why else "right",
            "why": why[:600],
            "delegates": delegates,
            "refused": dict(part.refused),
        }
    return results
