"""The passes on ATen and edge graphs: what they write, and that it computes what was there before."""

from __future__ import annotations

import pytest

from tests.coreai.conftest import FN
from tests.lab import Lab

pytestmark = pytest.mark.subject

SETUP = (
    """
import functools, itertools, torch, torch.nn.functional as F, torch._export.utils as export_utils
export_utils._collect_all_valid_cia_ops = functools.cache(export_utils._collect_all_valid_cia_ops)
from executorch.exir import to_edge_transform_and_lower
from edgeproof.coreai import compile_config
from edgeproof.coreai.graph import fake, overload_name
from edgeproof.coreai.passes import *
import edgeproof.coreai.passes as passes
"""
    + FN
    + """
def aten(function, *inputs):
    return torch.export.export(Fn(function), inputs).run_decompositions()

def edge(function, *inputs, **more):
    program = to_edge_transform_and_lower(
        torch.export.export(Fn(function), inputs, **more), compile_config=compile_config(),
        transform_passes=default_passes())
    return program.exported_program()

def calls(program):
    return [n for n in program.graph.nodes if n.op == "call_function"]

def names(program):
    return [overload_name(n) for n in calls(program)]

def same(function, change, *inputs):
    program = aten(function, *inputs)
    modified = change(program.graph_module).modified
    got = program.graph_module(*[*program.state_dict.values(), *program.constants.values(), *inputs])
    want = function(*inputs)
    want = want if isinstance(want, (tuple, list)) else [want]
    for g, w in zip(got, want, strict=True):
        torch.testing.assert_close(g, w, rtol=1e-5, atol=1e-5, equal_nan=True)
    return modified
"""
)


def test_alpha_becomes_a_constant_of_the_outputs_dtype(coreai_lab: Lab) -> None:
    found = coreai_lab.run(
        SETUP
        + """
x = torch.randn(3, 4).half()
program = edge(lambda x, y: torch.add(x, y, alpha=0.5), x, x)
multiply, add = calls(program)
result = [names(program), str(fake(multiply.args[1]).dtype), "alpha" in add.kwargs]
"""
    )
    assert found == [["mul.Tensor", "add.Tensor"], "torch.float16", False]


@pytest.mark.parametrize("order", ["x, y", "y, x"])
def test_no_mixed_dtypes_are_left_by_alpha(coreai_lab: Lab, order: str) -> None:
    mixed = coreai_lab.run(
        SETUP
        + f"""
x, y = torch.randn(3, 4), torch.arange(4, dtype=torch.int32)
program = edge(lambda x, y: torch.sub({order}, alpha=2), x, y)
result = [n.name for n in calls(program) if overload_name(n) != "_to_copy.default"
          and len({{fake(a).dtype for a in n.all_input_nodes}}) > 1]
"""
    )
    assert mixed == []


def test_dims_are_written_out(coreai_lab: Lab) -> None:
    found = coreai_lab.run(
        SETUP
        + """
functions = [lambda x: torch.mean(x, ()), torch.amax, torch.amin, lambda x: torch.mean(x, None, True),
             lambda x: torch.amax(x, ())]
result = [list(calls(edge(g, torch.randn(2, 3)))[0].args[1]) for g in functions]
"""
    )
    assert found == [[0, 1]] * 5


def test_ceil_mode_is_cleared_where_no_spatial_dim_changes(coreai_lab: Lab) -> None:
    """A kernel of one number stands for both dims: 5 rows change under ceil_mode, though 4 columns do not."""
    found = coreai_lab.run(
        SETUP
        + """
def after(rows, columns):
    pool = lambda x: torch.ops.aten.avg_pool2d(x, [2], [], [0], True)
    program = aten(pool, torch.randn(1, 2, rows, columns))
    NormalizeCoreAIOpArgsPass()(program.graph_module)
    (pool,) = calls(program)
    return [list(a) if isinstance(a, (list, tuple)) else a for a in pool.args[1:]]
result = [after(5, 4), after(4, 4)]
"""
    )
    assert found == [
        [[2, 2], [2, 2], [0, 0], True, True, None],
        [[2, 2], [2, 2], [0, 0], False, True, None],
    ]


def test_squeezes_that_do_nothing_are_removed(coreai_lab: Lab) -> None:
    found = coreai_lab.run(
        SETUP
        + """
a = edge(lambda x: x.squeeze(0) + 1, torch.randn(3, 1))
b = edge(lambda x: x.squeeze((0, 1)) + 1, torch.randn(1, 3))
result = [names(a), names(b), list(calls(b)[0].args[1])]
"""
    )
    assert found == [["add.Tensor"], ["squeeze.dims", "add.Tensor"], [0]]


def test_pools_compute_the_same(coreai_lab: Lab) -> None:
    """Every combination of kernel, stride, padding, ceil_mode and the rest that PyTorch accepts, in eager."""
    found = coreai_lab.run(
        SETUP
        + """
tried = rewritten = 0
no_yes = (False, True)
for k, s, p, ceil, count, divisor in itertools.product(
        (2, 3), (1, 2, 3), (0, 1), no_yes, no_yes, (None, 5)):
    x = torch.randn(1, 2, 7, 8)
    tried += 1
    rewritten += same(lambda x: F.avg_pool2d(x, k, s, p, ceil, count, divisor), RewritePoolsPass(), x)
    if k == 3 and s == 2:
        x = torch.randn(1, 2, 5, 7, 8)
        same(lambda x: F.avg_pool3d(x, k, s, p, ceil, count, divisor), RewritePoolsPass(), x)
for k, s, p, d, ceil in itertools.product((2, 3), (1, 2, 3), (0, 1), (1, 2), (False, True)):
    pool = lambda x: tuple(F.max_pool2d(x, k, s, p, d, ceil, return_indices=True))
    same(pool, RewritePoolsPass(), torch.randn(1, 2, 7, 8).round())
    if k == 3 and s == 2:
        pool = lambda x: tuple(F.max_pool3d(x, k, s, p, d, ceil, return_indices=True))
        same(pool, RewritePoolsPass(), torch.randn(1, 2, 5, 7, 8).round())
result = [tried, rewritten]
"""
    )
    assert found[0] == 96
    assert 0 < found[1] < 96


def test_transposed_convolutions_compute_the_same(coreai_lab: Lab) -> None:
    assert coreai_lab.run(
        SETUP
        + """
result = True
for s, p, d, groups in itertools.product((1, 3), (0, 2), (1, 2), (1, 2)):
    x, w, b = torch.randn(2, 4, 4, 3, 5), torch.randn(4, 3, 2, 3, 3), torch.randn(3 * groups)
    for extra in range(max(s, d)):
        result &= same(lambda x, w, b: F.conv_transpose3d(x, w, b, s, p, extra, groups, d),
                       RewriteTransposedConvolutionPass(), x, w, b)
"""
    )


def test_64_bits_stay_where_the_converter_has_no_lowering(coreai_lab: Lab) -> None:
    found = coreai_lab.run(
        SETUP
        + """
index = torch.tensor([[0, 1], [1, 0]])
program = edge(lambda x, i: torch.scatter_add(x, 1, i, x) + torch.gather(x, 1, i), torch.randn(2, 2), index)
(scatter,) = [n for n in calls(program) if overload_name(n) == "scatter_add.default"]
(gather,) = [n for n in calls(program) if overload_name(n) == "gather.default"]
result = [str(fake(scatter.args[2]).dtype), str(fake(gather.args[2]).dtype)]
"""
    )
    assert found == ["torch.int64", "torch.int32"]


def test_outputs_keep_64_bits(coreai_lab: Lab) -> None:
    found = coreai_lab.run(
        SETUP
        + """
def dtypes(function, *inputs):
    output = edge(function, *inputs).graph.output_node()
    return [str(fake(a).dtype)[6:] for a in output.args[0]]
result = [dtypes(lambda x: x + 1, torch.arange(3)), dtypes(lambda x: x * 2, torch.randn(3).double()),
          dtypes(lambda x: torch.argmax(x, 1) + 1, torch.randn(3, 4)),
          dtypes(lambda x: tuple(torch.topk(x, 2)), torch.randn(3, 4))]
"""
    )
    assert found == [["int64"], ["float64"], ["int64"], ["float32", "int64"]]


def test_passes_leave_a_plain_program_alone(coreai_lab: Lab) -> None:
    assert coreai_lab.run(
        SETUP
        + """
model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(),
                            torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(36, 5))
from executorch.exir.pass_base import ExportedProgramPassBase
program = torch.export.export(model.eval(), (torch.randn(1, 3, 8, 8),)).run_decompositions()
passes = [(p, program if isinstance(p, ExportedProgramPassBase) else program.graph_module)
          for p in default_passes()]
changed = [type(p).__name__ for p, given in passes if p(given).modified]
result = changed in ([], ["NormalizeCoreAIOpArgsPass"])
"""
    )


def test_casts_of_constants_are_done_at_lowering(coreai_lab: Lab) -> None:
    found = coreai_lab.run(
        SETUP
        + """
program = edge(lambda x: (x + 2) * 3, torch.randn(3))
x = torch.randn(3)
result = [names(program), bool(torch.equal(program.module()(x), (x + 2) * 3))]
"""
    )
    assert found == [["add.Tensor", "mul.Tensor"], True]
