"""An int8 flow passes only when something was quantized, and what came of it is still the model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from tests.integration.conftest import HERE, MANY, SCHEMA, Ran, run_command

pytestmark = pytest.mark.subject

MODELS = HERE / "quantized_models.py"
FLOW = "xnnpack_int8_static"


@pytest.fixture(scope="module")
def quantized(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("quantized")
    report = folder / "report.json"
    return run_command(str(MANY), str(report), FLOW, "0", str(MODELS), report=report, cwd=folder)


def test_what_quantization_did_is_in_the_evidence(quantized: Ran) -> None:
    cell = quantized.cell("quantized_models.fine", FLOW)
    assert (cell["verdict"], cell["reason"]) == ("passed", "")
    assert cell["evidence"]["quantized_nodes"] >= 6
    assert cell["evidence"]["compared"] == {"points": ["example"], "outputs": 1}
    (row,) = cell["evidence"]["quantized"]
    assert 0 < row["error"] <= row["limit"] <= 0.5
    assert row["sqnr_db"] > 20
    jsonschema.validate(quantized.report, SCHEMA)


@pytest.mark.parametrize("name", ["nothing_to_quantize", "quantizer_does_nothing"])
def test_nothing_quantized_is_skipped_not_passed(quantized: Ran, name: str) -> None:
    cell = quantized.cell(f"quantized_models.{name}", FLOW)
    assert (cell["verdict"], cell["stage"]) == ("skipped", "quantize")
    assert (cell["cause"], cell["declared"]) == ("nothing_to_quantize", False)
    assert cell["reason"].startswith("nothing to quantize")
    assert quantized.code == 1


@pytest.mark.parametrize("name", ["quantizer_gives_zeros", "quantizer_turns_the_sign",
                                   "quantizer_forgets_the_input"])  # fmt: skip
def test_a_quantizer_that_ruins_the_model_is_caught(quantized: Ran, name: str) -> None:
    """The program agrees with its quantized module: only the float one can tell."""
    cell = quantized.cell(f"quantized_models.{name}", FLOW)
    assert (cell["verdict"], cell["stage"], cell["cause"]) == ("failed", "quantize", "mismatch")
    assert "the quantized module is not the module: output [0] at the example" in cell["reason"]
    assert "half the way to a wrong answer" in cell["reason"]
    assert "calibrate with inputs" in cell["mend"]


def test_nothing_to_quantize_can_be_declared_but_proves_nothing(
    edgeproof: Callable[..., Ran], tmp_path: Path
) -> None:
    asked = ("check", f"{MODELS}:nothing_to_quantize", "--declare-not-run", f"{FLOW}=only a sine")
    alone = edgeproof(*asked, "--flows", FLOW, prove=True)
    assert alone.code == 3
    beside = edgeproof(*asked, "--flows", f"portable_fp32,{FLOW}", prove=True)
    assert beside.code == 0, beside.out
    assert beside.cell("quantized_models.nothing_to_quantize", FLOW)["declared"] is True
    assert "skipped (declared)" in beside.out
