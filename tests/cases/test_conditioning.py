"""MobileNetV3 as PyTorch initialises it proves nothing; conditioned it does, in half precision too."""

from __future__ import annotations

import pytest

from tests.lab import Lab

pytestmark = pytest.mark.subject

_IMPORTS = """
import torch
from edgeproof.cases import smoke
from edgeproof.cases.conditioning import condition
from edgeproof.plan.flow import Arithmetic
from edgeproof.worker.compare import compare
from edgeproof.worker.model import cloned, flat_outputs
from edgeproof.worker.reference import Reference

def conditioned(seed=0):
    torch.manual_seed(seed)
    model = smoke.mobilenet_v3_small()
    condition(model.module, cloned(model.conditioning))
    return model

def as_initialised(seed=0):
    torch.manual_seed(seed)
    return smoke.mobilenet_v3_small()

def rows(model, arithmetic, answer=None):
    reference = Reference(model, model.inputs)
    answers = [v for _, v in reference.outputs] if answer is None else [answer]
    return compare(
        answers, reference.outputs, reference.floors(arithmetic), point="example",
        dtype=getattr(torch, arithmetic.dtype), inputs=model.inputs, eager=reference.outputs,
        other_answers=reference.other_answers(),
    )
"""

_ARITHMETICS = [
    'Arithmetic(dtype="float32")',
    'Arithmetic(dtype="float16")',
    'Arithmetic(dtype="float16", biased=True)',
    'Arithmetic(dtype="bfloat16")',
]


@pytest.mark.parametrize("arithmetic", _ARITHMETICS)
def test_as_initialised_it_is_vacuous(lab: Lab, arithmetic: str) -> None:
    (row,) = lab.run(_IMPORTS + f"result = rows(as_initialised(), {arithmetic})")
    assert "faded" in row["witnesses"]


@pytest.mark.parametrize("arithmetic", _ARITHMETICS)
def test_conditioned_it_is_not(lab: Lab, arithmetic: str) -> None:
    (row,) = lab.run(_IMPORTS + f"result = rows(conditioned(), {arithmetic})")
    assert row["witnesses"] == []
    assert row["problem"] == ""


@pytest.mark.parametrize("arithmetic", _ARITHMETICS)
@pytest.mark.parametrize(
    "wrong",
    [
        "torch.zeros(1, 1000)",
        "-model()",
        "model().flip(1)",
        "model().roll(1, 1)",
        "model() * 2",
        "torch.full((1, 1000), float('nan'))",
        "model(((torch.randn(1, 3, 224, 224),), {}))",
    ],
)
def test_conditioned_it_tells_wrong_answers(lab: Lab, arithmetic: str, wrong: str) -> None:
    code = f"model = conditioned()\nanswer = {wrong}\nresult = rows(model, {arithmetic}, answer)"
    (row,) = lab.run(_IMPORTS + code)
    assert row["problem"] != ""


def test_every_activation_is_of_order_one(lab: Lab) -> None:
    sizes = lab.run(
        _IMPORTS
        + """
model, result = conditioned(), []
def note(layer, args, output):
    result.append(float(output.std()))
for layer in model.module.modules():
    if isinstance(layer, (torch.nn.Linear, torch.nn.Conv2d)):
        layer.register_forward_hook(note)
with torch.no_grad():
    model.module(*cloned(model.conditioning)[0])
"""
    )
    assert len(sizes) > 50
    assert all(0.9 < size < 1.1 for size in sizes)


def test_conditioning_leaves_no_hook_behind(lab: Lab) -> None:
    left = lab.run(
        _IMPORTS
        + """
model = conditioned()
result = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.module.modules())
"""
    )
    assert left == 0
