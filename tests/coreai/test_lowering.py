"""Programs lowered whole and run, against eager PyTorch: values, sizes and state that are easily lost."""

from __future__ import annotations

from typing import Any

import pytest

from tests.coreai.conftest import FN
from tests.lab import Lab

pytestmark = pytest.mark.subject

SETUP = (
    """
import copy, tempfile, torch, torch.nn.functional as F
from executorch.runtime import Runtime
from edgeproof.coreai import *
from edgeproof.coreai.precision import to_half
install_runtime(cache_dir=tempfile.mkdtemp())
torch.manual_seed(0)
"""
    + FN
    + """
def flat(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]

def outcome(function, *calls, half=False, **options):
    '''What is wrong in any of ``calls``, what was kept out and why, and how many delegates there are.'''
    module = function if isinstance(function, torch.nn.Module) else Fn(function)
    eager = copy.deepcopy(module)
    program = torch.export.export(module, tuple(x.clone() for x in calls[0]), **options)
    partitioner = CoreAIPartitioner()
    edge = lower(to_half(program) if half else program, partitioner=partitioner)
    nodes = [n for n in edge.exported_program().graph.nodes if n.op == "call_function"]
    kept = Runtime.get().load_program(edge.to_executorch().buffer)
    method, wrong = kept.load_method("forward"), []
    for number, inputs in enumerate(calls):
        with torch.no_grad():
            right = flat(eager(*(x.clone() for x in inputs)))
        got = method.execute(tuple(x.clone() for x in inputs))
        for index, (g, r) in enumerate(zip(got, right, strict=True)):
            if g.dtype != r.dtype or g.shape != r.shape or not torch.allclose(
                g.double(), r.double(), rtol=1e-2 if half else 1e-5, atol=1e-2 if half else 1e-5
            ):
                wrong.append(f"call {number}, output {index}: {g.tolist()} for {r.tolist()}")
    return wrong, dict(partitioner.refused), sum("call_delegate" in str(n.target) for n in nodes)
"""
)


def run(lab: Lab, code: str) -> Any:
    return lab.run(SETUP + code)


def of_integers(lab: Lab, computed: str) -> Any:
    return run(lab, f"result = outcome(lambda x: {computed}, (torch.tensor([100000, -7, 0, 31]),))")


@pytest.mark.parametrize(
    "computed",
    [
        "x + 2**40",
        "x + torch.tensor([2**40, 1, 2, 3])",
        "x.to(torch.int32).to(torch.int64) + 2**33",
        "torch.add(x, x, alpha=2**35)",
        "torch.where(x > 0, 2**33, x)",
        "torch.where(x > 0, x, torch.iinfo(torch.int64).max)",
        "x.masked_fill(x > 0, torch.iinfo(torch.int64).min)",
        "torch.maximum(x, torch.tensor(torch.iinfo(torch.int64).min))",
        "torch.full_like(x, torch.iinfo(torch.int64).min).maximum(x)",
        "torch.full((4,), 2**40) + x",
        "torch.arange(4) * 2**33 + x",
        "x.clamp(0, 2**40)",
        "x.clamp(-(2**40), 3)",
        "x // 2**33",
        "F.pad(x, (1, 1), value=2**40)",
        "torch.cat([x, torch.tensor([2**40])])",
        "torch.scatter(x, 0, torch.tensor([0]), 2**40)",
        "(x.abs() * 1000003) % 65536",
        "x.pow(3)",
        "torch.pow(3, x.clamp(0, 31))",
        "x.sum() * 2**30",
        "x.cumsum(0) * 2**31",
    ],
)
def test_numbers_that_need_64_bits_have_them(coreai_lab: Lab, computed: str) -> None:
    """ExecuTorch's own kernels compute them, as right as those are (see docs/coreai.md)."""
    wrong, _, _ = of_integers(coreai_lab, computed)
    assert not wrong


@pytest.mark.parametrize(
    "computed", ["(x > 0).long() * 16 + x", "x + 3 - x.relu()", "torch.arange(4) * 3 + x"]
)
def test_numbers_that_fit_32_bits_are_computed_in_them(coreai_lab: Lab, computed: str) -> None:
    wrong, _, delegates = of_integers(coreai_lab, computed)
    assert not wrong
    assert delegates == 1


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_numbers_beyond_the_dtype(coreai_lab: Lab, dtype: str) -> None:
    wrong, _, _ = run(
        coreai_lab,
        f"""
x = torch.tensor([44, 7, 200, 1], dtype=torch.{dtype})
result = outcome(lambda x: (x == 1000, x != 1000, x > -1e12, x.clamp(float('-inf'), 2.5), x.pow(9)), (x,))
""",
    )
    assert not wrong


def test_positions_that_are_narrowed_in_another_delegate(coreai_lab: Lab) -> None:
    """What lies between keeps the cast from the delegate that makes them; the search must come to an end."""
    for made in (
        "torch.topk(x, 2, 1)",
        "torch.max(x, 1)",
        "F.max_pool1d(x, 2, return_indices=True)",
    ):
        wrong, refused, _ = run(
            coreai_lab,
            f"""
def computed(x):
    values, positions = {made}
    return positions.to(torch.int32) + torch.bitwise_and(values.to(torch.int32), 3)
result = outcome(computed, (torch.randn(4, 8) * 9,))
""",
        )
        assert not wrong, made
        assert refused


@pytest.mark.parametrize(
    "branching",
    [
        "torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x * 2,)) * 3",
        "torch._higher_order_ops.map(lambda row: row + 1, x)",
    ],
)
def test_branches_and_loops_stay_with_executorch(coreai_lab: Lab, branching: str) -> None:
    wrong, refused, _ = run(
        coreai_lab,
        f"result = outcome(lambda x: {branching}, (torch.ones(4, 2),), (-torch.ones(4, 2),))",
    )
    assert not wrong
    assert "the passes that mend a program do not reach into branches and loops" in refused.values()


STATE = """
class Kept(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("a", torch.zeros(4))
        self.register_buffer("b", torch.ones(4))
        self.register_buffer("k", torch.arange(4.0))
    def forward(self, x):
        y = x * 2 + self.a
        {body}
calls = [(torch.full((4,), float(n)),) for n in (1, 2, 3)]
"""


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(
    "body",
    [
        "self.a.add_(x); return y",
        "self.a.copy_(x); return y",
        "self.a.copy_(self.k); return y",
        "self.a.copy_(self.b); return y",
        "old = self.a + 0; self.a.copy_(self.b); self.b.copy_(old + 1); return y",
        "old = self.a.clone(); self.a.add_(x); return old",
        "self.a.add_(x); return self.a, self.a, x",
        "self.a.copy_(x.flip(0)); self.b.mul_(self.a); return y + self.b",
        "return y, y, x",
        "return self.k, x + self.k",
    ],
)
def test_what_buffers_are_set_to_and_what_is_given_back(
    coreai_lab: Lab, body: str, half: bool
) -> None:
    wrong, _, delegates = run(
        coreai_lab, STATE.format(body=body) + f"result = outcome(Kept(), *calls, half={half})"
    )
    assert not wrong
    assert delegates == 1


def test_a_constant_whose_cast_is_given_back(coreai_lab: Lab) -> None:
    wrong, _, _ = run(
        coreai_lab,
        """
class Cast(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("k", torch.arange(4))
    def forward(self, x):
        cast = self.k.to(torch.float32)
        return cast, x + cast
result = outcome(Cast(), (torch.ones(4),))
""",
    )
    assert not wrong


def test_what_a_program_writes_to_its_input_comes_out_in_half_precision_too(
    coreai_lab: Lab,
) -> None:
    """ExecuTorch gives what was written before the results."""
    single, half = run(
        coreai_lab,
        """
def answers(change):
    def write(x):
        x.add_(1.0)
        return x * 2
    edge = lower(change(torch.export.export(Fn(write), (torch.zeros(4),))))
    kept = Runtime.get().load_program(edge.to_executorch().buffer)
    return [[str(y.dtype), y.tolist()] for y in kept.load_method("forward").execute((torch.ones(4),))]
result = [answers(lambda program: program), answers(to_half)]
""",
    )
    assert single == half == [["torch.float32", [2.0] * 4], ["torch.float32", [4.0] * 4]]


@pytest.mark.parametrize(
    ("computed", "first", "others", "sizes"),
    [
        ("x.amax(0)", "(5, 3)", ["(1, 3)", "(7, 3)"], "n, min=1, max=8"),
        ("x.sum(0)", "(5, 3)", ["(1, 3)"], "n"),
        ("torch.softmax(x, 0)", "(5, 3)", ["(1, 3)", "(2, 3)"], "n"),
        ("F.pad(x[None], (0, 0, -1, 2), mode='replicate')", "(5, 3)", ["(4, 3)"], "n, min=3"),
        ("torch.gather(x, 1, x[:1, :2].long() * 0)", "(5, 3)", ["(4, 3)"], "n, min=3"),
        (
            "torch.scatter(x, 1, torch.tensor([[2, 0], [1, 0]]), x)",
            "(5, 3)",
            ["(4, 3)"],
            "n, min=3",
        ),
        ("x.masked_fill(x > 0, 0.0)", "(5, 3)", ["(1, 3)", "(7, 3)"], "n, max=9"),
        (
            "F.adaptive_avg_pool1d(x.t()[None], 3)",
            "(5, 3)",
            ["(3, 3)", "(8, 3)"],
            "n, min=3, max=9",
        ),
        ("torch.cat([x[1:], x])", "(5, 3)", ["(4, 3)"], "n, min=3"),
    ],
)
def test_sizes_that_vary(
    coreai_lab: Lab, computed: str, first: str, others: list[str], sizes: str
) -> None:
    bounds = "".join(f", {bound}" for bound in sizes.split(", ")[1:])
    wrong, _, _ = run(
        coreai_lab,
        f"""
n = torch.export.Dim("n"{bounds})
calls = [(torch.randn(shape),) for shape in [{", ".join([first, *others])}]]
result = outcome(lambda x: {computed}, *calls, dynamic_shapes=(({{0: n}},),))
""",
    )
    assert not wrong


def test_a_size_that_comes_to_be_none_is_refused(coreai_lab: Lab) -> None:
    """Core AI's reductions of nothing are whatever was in memory."""
    ran, said = run(
        coreai_lab,
        """
program = torch.export.export(
    Fn(lambda x: x.sum(0)), (torch.ones(5, 3),), dynamic_shapes=(({0: torch.export.Dim("n")},),))
kept = Runtime.get().load_program(lower(program).to_executorch().buffer)
method = kept.load_method("forward")
try:
    result = [True, str(method.execute((torch.ones(0, 3),)))]
except RuntimeError:
    result = [False, last_error()]
""",
    )
    assert not ran
    assert "is of shape (0, 3), the delegate was made for (1..any, 3)" in said
