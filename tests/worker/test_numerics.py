from __future__ import annotations

import math

import pytest

from tests.lab import Lab

pytestmark = pytest.mark.subject

_IMPORTS = """
import math, torch
from edgeproof.worker.numerics import *
from edgeproof.worker.numerics import Error
def measured(answer, reference):
    e = error(torch.as_tensor(answer), torch.as_tensor(reference))
    return [e.rms_error, e.required, e.max_abs, e.max_rel, e.sqnr_db]
"""


def run(lab: Lab, code: str):
    return lab.run(_IMPORTS + code)


def test_errors_are_those_of_the_formulas(lab: Lab) -> None:
    # difference (0, 1), reference (3, 4): rms of the difference sqrt(.5), of the reference sqrt(12.5)
    rms_error, required, max_abs, max_rel, sqnr = run(lab, "result = measured([3., 5.], [3., 4.])")
    assert rms_error == pytest.approx(math.sqrt(0.5 / 12.5))
    assert required == pytest.approx(1 / (4 + math.sqrt(12.5)))
    assert max_abs == 1
    assert max_rel == pytest.approx(0.25)
    assert sqnr == pytest.approx(10 * math.log10(12.5 / 0.5))


def test_required_is_the_smallest_tolerance_that_torch_accepts(lab: Lab) -> None:
    accepted = run(
        lab,
        """
torch.manual_seed(0)
r = torch.randn(1000, dtype=torch.float64)
y = r + 1e-3 * torch.randn(1000, dtype=torch.float64)
t = error(y, r).required
s = float(r.square().mean().sqrt())
result = [torch.allclose(y, r, rtol=t * k, atol=t * s * k) for k in (1.0001, 0.9999)]
""",
    )
    assert accepted == [True, False]


def test_errors_do_not_depend_on_scale(lab: Lab) -> None:
    ones, tiny, huge = run(
        lab,
        """
y, r = torch.tensor([1.0, 2.5], dtype=torch.float64), torch.tensor([1.0, 2.0], dtype=torch.float64)
result = [measured(y * k, r * k) for k in (1, 1e-200, 1e200)]
""",
    )
    for other in (tiny, huge):
        assert other[:2] == pytest.approx(ones[:2])
        assert other[4] == pytest.approx(ones[4])


def test_equal_outputs_have_no_error_even_when_zero(lab: Lab) -> None:
    assert run(lab, "result = measured([0., 0.], [0., 0.])[:4]") == [0, 0, 0, 0]
    assert run(lab, "result = str(measured([2.], [2.])[4])") == "inf"


def test_anything_against_zeros_is_infinitely_far(lab: Lab) -> None:
    assert run(lab, "result = [str(v) for v in measured([1e-30, 0.], [0., 0.])[:2]]") == [
        "inf",
        "inf",
    ]


@pytest.mark.parametrize(
    ("answer", "reference", "agree"),
    [
        ("[nan, 1.]", "[nan, 1.]", True),
        ("[1., nan]", "[nan, 1.]", False),
        ("[inf, 1.]", "[inf, 1.]", True),
        ("[-inf, 1.]", "[inf, 1.]", False),
        ("[inf, 1.]", "[nan, 1.]", False),
        ("[1., 1.]", "[inf, 1.]", False),
        ("[inf, 1.]", "[1., 1.]", False),
        ("[inf, nan]", "[nan, inf]", False),
        ("[3., 1.]", "[1., 1.]", True),
    ],
)
def test_nan_and_inf_must_agree_in_place(
    lab: Lab, answer: str, reference: str, agree: bool
) -> None:
    code = f"""
from math import inf, nan
result = nonfinite_agree(torch.tensor({answer}), torch.tensor({reference}))
"""
    assert run(lab, code) is agree


def test_the_floor_of_a_lucky_output_is_some_rounding_steps(lab: Lab) -> None:
    least = run(
        lab,
        """
none = Error(rms_error=0.0, required=0.0, max_abs=0.0, max_rel=0.0)
result = {str(d): floor(none, d, source="") .limit_rms / torch.finfo(d).eps
          for d in (torch.float32, torch.float16, torch.bfloat16)}
""",
    )
    assert least == {"torch.float32": 128, "torch.float16": 8, "torch.bfloat16": 8}


def test_each_witness_is_found_where_it_belongs(lab: Lab) -> None:
    found = run(
        lab,
        """
torch.manual_seed(0)
r = torch.randn(100)
tight = Floor(source="", rms_error=1e-6, required=1e-6, factor=8)
loose = Floor(source="", rms_error=0.5, required=2.0, factor=8)
single = {"dtype": torch.float32}
result = {
    "sound": witnesses(r, tight, input_rms=1.0, other_answer=r.flip(0), **single),
    "loose": witnesses(r, loose, input_rms=1.0, other_answer=r.flip(0), **single),
    "zeros": witnesses(torch.zeros(5), tight, input_rms=1.0, **single),
    "stuck": witnesses(r, tight, input_rms=1.0, other_answer=r.clone(), **single),
    "faded": witnesses(r * 1e-9, tight, input_rms=1.0, other_answer=r.flip(0), **single),
    "faded_half": witnesses(r * 1e-4, tight, dtype=torch.float16, input_rms=1.0),
    "small_inputs": witnesses(r * 1e-9, tight, input_rms=1e-9, **single),
    "empty": witnesses(torch.zeros(0, 3), tight, input_rms=1.0, **single),
    "false": witnesses(torch.zeros(4, dtype=torch.bool), EXACT, **single),
    "mixed": witnesses(torch.tensor([True, False]), EXACT, **single),
    "int_zero": witnesses(torch.zeros(4, dtype=torch.int64), EXACT, **single),
    "int": witnesses(torch.arange(4), EXACT, **single),
    "not_finite": witnesses(torch.full((3,), torch.nan), tight, input_rms=1.0, **single),
}
""",
    )
    assert found["sound"] == []
    assert {"zeros", "negated", "other_input"} <= set(found["loose"])
    assert set(found["zeros"]) >= {"zeros", "negated"}
    assert found["stuck"] == ["other_input"]
    assert found["faded"] == ["faded"]
    assert found["faded_half"] == ["faded"]
    assert found["small_inputs"] == []
    assert found["empty"] == ["empty"]
    assert "zeros" in found["false"]
    assert found["mixed"] == []
    assert "zeros" in found["int_zero"]
    assert found["int"] == []
    assert found["not_finite"] != []


def test_rounding_up_never_lowers_a_value_and_moves_it_by_less_than_a_step(lab: Lab) -> None:
    lowered, moved = run(
        lab,
        """
from edgeproof.worker.rounding import RoundedUp
torch.manual_seed(0)
x = torch.randn(1000)
with RoundedUp(torch.float16):
    y = x * 1.0
result = [bool((y < x).any()), float(((y - x) / x.abs()).max())]
assert torch.equal(y.half().float(), y)
""",
    )
    assert lowered is False
    assert 0.0004 < moved <= 2**-10
