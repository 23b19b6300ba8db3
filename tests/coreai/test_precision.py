"""The precisions: an explicit table, and answers of the precision that was asked for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.coreai.test_runtime import SETUP
from tests.lab import Lab

pytestmark = pytest.mark.subject

MODEL = (
    SETUP
    + """
from edgeproof.coreai.precision import *
from edgeproof.coreai.precision import NothingToQuantizeError
torch.manual_seed(0)
module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32)).eval()
x = torch.randn(16, 64)
def sqnr(got, right):
    return float(10 * torch.log10(right.pow(2).mean() / (got - right).pow(2).mean()))
def answer(program):
    loaded = Runtime.get().load_program(lower(program).to_executorch().buffer)
    return loaded.load_method("forward").execute((x,))[0]
"""
)


def run(lab: Lab, code: str) -> Any:
    return lab.run(MODEL + code)


@pytest.mark.parametrize(
    ("mode", "least", "most"), [("w8a8", 25, 60), ("w8", 35, 70), ("w4", 10, 35)]
)
def test_quantized_answers_are_those_of_the_quantized_module(
    coreai_lab: Lab, mode: str, least: float, most: float
) -> None:
    to_quantized, to_float, count = run(
        coreai_lab,
        f"""
quantized, count = quantize(module, (x,), {mode!r})
got = answer(torch.export.export(quantized, (x,)))
with torch.no_grad():
    result = [sqnr(got, quantized(x)), sqnr(got, module(x)), count]
""",
    )
    assert to_quantized > 45
    assert least < to_float < most
    assert count >= 2


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_tensor_without_dims_is_quantized_and_float64_is_not(coreai_lab: Lab, dtype: str) -> None:
    off, answered = run(
        coreai_lab,
        f"""
module = Fn(lambda x: linear(x).mean(dtype=torch.{dtype})).eval()
linear = module.linear = torch.nn.Linear(64, 8)
quantized, _ = quantize(module, (x,), "w8a8")
got, right = answer(torch.export.export(quantized, (x,))), quantized(x)
assert got.shape == right.shape == ()
result = [abs(float(got - right)), str(got.dtype)]
""",
    )
    assert off < 1e-6
    assert answered == f"torch.{dtype}"


def test_half_precision_computes_in_half_and_takes_and_gives_single(coreai_lab: Lab) -> None:
    decibels, dtypes, bytes_, unchanged = run(
        coreai_lab,
        """
program = torch.export.export(module, (x,))
half = to_half(program)
got = answer(half)
[part] = __import__("edgeproof.flows.delegates", fromlist=["delegates"]).delegates(lower(half))
manifest = json.loads(part.processed_bytes)["edgeproof"]
size = lambda p: len(lower(p).to_executorch().buffer)
with torch.no_grad():
    result = [
        sqnr(got, module(x)),
        [str(got.dtype), manifest["inputs"][0]["dtype"]],
        size(half) / size(program),
        float((program.module()(x) - module(x)).abs().max()),
    ]
""",
    )
    assert 45 < decibels < 75
    assert dtypes == ["torch.float32", "float32"]
    assert bytes_ < 0.9  # of which a third is no weights
    assert unchanged == 0


def test_an_operator_without_a_half_kernel_has_a_reference_all_the_same(coreai_lab: Lab) -> None:
    """avg_pool3d has none on the CPU: in half precision eager PyTorch cannot answer, single can."""
    eager, decibels = run(
        coreai_lab,
        """
module, x = torch.nn.AvgPool3d(2).eval(), torch.randn(1, 2, 4, 4, 4)
try:
    module(x.half())
    eager = "has a kernel now: the note in docs/coreai.md can go"
except RuntimeError as fault:
    eager = str(fault)
result = [eager, sqnr(answer(to_half(torch.export.export(module, (x,)))), module(x))]
""",
    )
    assert "not implemented for 'Half'" in eager
    assert decibels > 45


@pytest.mark.parametrize("mode", ["w8a8", "w8", "w4"])
def test_a_model_with_nothing_to_quantize_says_so(coreai_lab: Lab, mode: str) -> None:
    said = run(
        coreai_lab,
        f"""
try:
    quantize(torch.nn.Softmax(-1).eval() if {mode!r} != "w8a8" else Fn(torch.abs), (x,), {mode!r})
    result = "quantized"
except NothingToQuantizeError as fault:
    result = fault.message
""",
    )
    assert said.startswith("nothing to quantize")


@pytest.mark.parametrize(
    "step",
    [
        "h.double().mul(0.5).float()",
        "h.type(torch.float64).sin().type(torch.float32)",
        "(h.double() + h).float()",
        "h.half().mul(2).float()",
        "h.bfloat16().float()",
    ],
)
def test_casts_that_the_model_makes_itself_stay_in_half_precision(
    coreai_lab: Lab, step: str
) -> None:
    off, found = run(
        coreai_lab,
        f"""
module = Fn(lambda x: (lambda h: after({step}))(linear(x))).eval()
linear, after = torch.nn.Linear(64, 64), torch.nn.Linear(64, 8)
module.inner = torch.nn.ModuleList([linear, after])
program = to_half(torch.export.export(module, (x,)))
result = [sqnr(answer(program), module(x).detach()), str(program.module()(x).dtype)]
""",
    )
    assert off > (35 if "bfloat16" in step else 50)
    assert found == "torch.float32"


def test_a_mode_that_does_not_exist_is_refused_with_those_that_do(coreai_lab: Lab) -> None:
    said = run(
        coreai_lab,
        """
from edgeproof.coreai.tester import CoreAITester
from edgeproof.errors import UsageError
result = []
for wrong in (lambda: quantize(module, (x,), "__class__"),
              lambda: CoreAITester(module, (x,), precision="w9")):
    try:
        wrong()
    except UsageError as fault:
        result.append([fault.message, fault.mend])
""",
    )
    assert said[0] == ["there is no mode '__class__' to quantize in", "there are w8a8, w8, w4"]
    assert said[1][1] == "there are fp32, fp16, w8a8, w8, w4"
