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
    assert least == {"torch.float32": 256, "torch.float16": 8, "torch.bfloat16": 8}


def test_what_no_limit_can_tell_is_a_witness(lab: Lab) -> None:
    found = run(
        lab,
        """
torch.manual_seed(0)
r = torch.randn(100)
tight = Floor(source="", rms_error=1e-6, required=1e-6, factor=8)
def same(reference, floor=tight, other=None, dtype=torch.float32):
    return told_apart(reference, floor, wrong_answers(reference, other), dtype=dtype)[1]
result = {
    "sound": same(r, other=r.flip(0)),
    "zeros": same(torch.zeros(5)),
    "stuck": same(r, other=r.clone()),
    "nearly_stuck": same(r, other=r * (1 + 1e-7)),
    "stuck_in_half": same(r, other=r * (1 + 1e-4), dtype=torch.float16),
    "false": same(torch.zeros(4, dtype=torch.bool), EXACT),
    "mixed": same(torch.tensor([True, False]), EXACT),
    "int_zero": same(torch.zeros(4, dtype=torch.int64), EXACT),
    "int": same(torch.arange(4), EXACT),
    "large_int": same(torch.tensor([2**53]), EXACT, other=torch.tensor([2**53 + 1])),
    "not_finite": same(torch.full((3,), torch.nan), other=torch.full((3,), torch.nan)),
}
""",
    )
    assert found == {
        "sound": [],
        "zeros": ["zeros", "negated"],
        "stuck": ["other_input"],
        "nearly_stuck": ["other_input"],
        "stuck_in_half": ["other_input"],
        "false": ["zeros"],
        "mixed": [],
        "int_zero": ["zeros", "negated"],
        "int": [],
        "large_int": [],
        "not_finite": ["negated", "other_input"],
    }


def test_a_limit_never_reaches_more_than_half_the_way_to_a_wrong_answer(lab: Lab) -> None:
    limits = run(
        lab,
        """
torch.manual_seed(0)
r = torch.randn(1000)
noisy = Floor(source="", rms_error=0.6, required=2.0, factor=3)
other = r.clone()
other[7] += 5  # stands out in one element only
result = {}
for name, given in (("none", None), ("one", other)):
    floor, same = told_apart(r, noisy, wrong_answers(r, given), dtype=torch.float32)
    result[name] = [floor.limit_rms, floor.limit, floor.nearest, same]
result["distance"] = error(other, r).required
""",
    )
    limit_rms, limit, nearest, same = limits["none"]
    assert (limit_rms, limit, nearest, same) == (pytest.approx(0.5), 6.0, "zeros", [])
    assert limits["one"][0] == pytest.approx(0.5)
    assert limits["one"][1] == pytest.approx(limits["distance"] / 2)
    assert limits["one"][2:] == ["other_input", []]


def test_a_reference_below_the_rounding_step_of_its_inputs_has_faded(lab: Lab) -> None:
    found = run(
        lab,
        """
r = torch.randn(100, generator=torch.Generator().manual_seed(0))
single, half = torch.float32, torch.float16
result = [faded(r * k, dtype=d, input_rms=i) for k, d, i in (
    (1, single, 1.0), (1e-9, single, 1.0), (1e-4, single, 1.0), (1e-4, half, 1.0), (1e-9, single, 1e-9),
    (1e-9, single, None))]
""",
    )
    assert found == [False, True, False, True, False, False]


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


def test_a_quantized_module_is_held_by_half_the_way_to_a_wrong_answer(lab: Lab) -> None:
    """Floats by their RMS error, integers by the share that differs; NaN must stay in place."""
    problems, limits = run(
        lab,
        """
from edgeproof.worker.compare import compare_quantized
x = torch.tensor([1.0, -2.0, 3.0, -4.0])
whole, nan = torch.tensor([1, 2, 3, 4]), torch.tensor([1.0, math.nan, 3.0, -4.0])
def problem(quantized, eager, other=()):
    (row,) = compare_quantized([("", quantized)], [("", eager)], point="example",
                               other_answers=list(other))
    return row
rows = [
    problem(x * 1.4, x), problem(x * 0.4, x), problem(-x, x), problem(x * 1.1, x, [x * 1.1]),
    problem(torch.tensor([1, 2, 9, 9]), whole), problem(torch.tensor([1, 9, 9, 9]), whole),
    problem(nan, nan), problem(x, nan), problem(x.double(), x), problem(x.flip(0)[:2], x),
]
result = [[bool(row["problem"]) for row in rows], [row.get("limit") for row in rows[:6]]]
""",
    )
    assert problems == [False, True, True, True, False, True, False, True, True, True]
    assert limits == pytest.approx([0.5, 0.5, 0.5, 0.05, 0.5, 0.5])
