"""Models that users have, proved for real; and wrong answers, which must be caught."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from edgeproof.cli.listings import path
from tests.integration.conftest import HERE, MANY, Ran, run_command

pytestmark = pytest.mark.subject

FLOWS = ("portable_fp32", "xnnpack_fp32")
SOUND = HERE / "sound_models.py"
WRONG = HERE / "wrong_models.py"

# Where ExecuTorch 1.5.1 itself does something else than the module: stage, cause, and what is said.
LIMITS_OF_EXECUTORCH = {
    # The initial value of a buffer that is written to is not stored: it starts from whatever is there.
    "mutable_buffer": ("compare", "mismatch", "is too far off"),
    "mutable_buffer_dynamic": ("compare", "mismatch", "is too far off"),
    # What is written to an input comes out as one more output; the input is left as it is.
    "writes_to_input": ("compare", "mismatch", "the module writes to its input x"),
    # Without an upper bound the example's size is taken for one.
    "dynamic_automatic": ("run", "raised", "at the largest input, of shape [(6, 4)]"),
    # The Python bindings refuse other strides.
    "not_contiguous": ("run", "raised", "should be contiguous or channels-last"),
}

BOUNDS = {
    "dynamic_batch": ([3, 3], [2, 3], [7, 3]),
    "dynamic_from_one": ([3, 3], [1, 3], [7, 3]),
    "dynamic_automatic_bounded": ([3, 3], [2, 3], [8, 3]),
    "counter_from_zero_dynamic": ([3, 3], [2, 3], [7, 3]),
    "dynamic_derived": ([2, 3], [2, 2], [2, 5]),
    "scalar_and_dynamic": ([3, 3], [2, 3], [7, 3]),
}


def factories(file: Path) -> list[str]:
    text = file.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("def ")]
    return [line.removeprefix("def ").partition("(")[0] for line in lines if line[4] != "_"]


SAVE = """
import sys, torch
from torch.export import Dim
torch.manual_seed(0)
x = torch.randn(3, 4)
module = torch.nn.Linear(4, 3).eval()
program = torch.export.export(module, (x,), dynamic_shapes=({0: Dim("batch", min=2, max=7)},))
torch.export.save(program, sys.argv[1] + "/saved_dynamic.pt2")
torch.export.save(torch.export.export(module, (x,)), sys.argv[1] + "/saved.pt2")
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of programs as ``torch.export.save`` writes them, and what may become of one."""
    import subprocess

    folder = tmp_path_factory.mktemp("saved")
    python = path("base", executorch=None, python=None)
    subprocess.run([python, "-W", "ignore", "-c", SAVE, folder], check=True, capture_output=True)
    whole = (folder / "saved.pt2").read_bytes()
    (folder / "truncated.pt2").write_bytes(whole[: len(whole) // 2])
    (folder / "garbage.pt2").write_bytes(b"this is no program\n" * 100)
    (folder / "empty.pt2").write_bytes(b"")
    return folder


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory, saved: Path) -> Ran:
    folder = tmp_path_factory.mktemp("sound")
    report = folder / "report.json"
    programs = [str(path) for path in sorted(saved.iterdir())]
    return run_command(
        *(str(MANY), str(report), ",".join(FLOWS), "0", str(SOUND), *programs),
        report=report,
        cwd=folder,
    )


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("wrong")
    report = folder / "report.json"
    return run_command(
        str(MANY), str(report), "portable_fp32", "0", str(WRONG), report=report, cwd=folder
    )


@pytest.fixture(scope="module")
def wrong_quantized(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("wrong")
    report = folder / "report.json"
    return run_command(
        *(str(MANY), str(report), "xnnpack_int8_static", "0"),
        *(f"{WRONG}:{','.join(WRONG_QUANTIZED)}", f"{SOUND}:images,counter_from_zero"),
        report=report,
        cwd=folder,
    )


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("name", factories(SOUND))
def test_a_sound_model(sound: Ran, name: str, flow: str) -> None:
    cell = sound.cell(f"sound_models.{name}", flow)
    if name in LIMITS_OF_EXECUTORCH:
        stage, cause, said = LIMITS_OF_EXECUTORCH[name]
        assert (cell["verdict"], cell["stage"], cell["cause"]) == ("failed", stage, cause)
        assert said in cell["reason"]
        return
    assert (cell["verdict"], cell["reason"]) == ("passed", "")
    assert cell["log"] == ""
    if flow == "xnnpack_fp32":
        assert cell["evidence"]["delegated_nodes"] > 0


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("name", BOUNDS)
def test_dynamic_dimensions_are_tried_at_their_bounds(sound: Ran, name: str, flow: str) -> None:
    rows = sound.cell(f"sound_models.{name}", flow)["evidence"]["outputs"]
    assert [row["point"] for row in rows] == ["example", "smallest", "largest"]
    assert tuple(row["shape"] for row in rows) == BOUNDS[name]


def test_every_output_is_compared_by_its_own_name(sound: Ran) -> None:
    rows = sound.cell("sound_models.nested_outputs")["evidence"]["outputs"]
    assert [row["output"] for row in rows] == [
        "['second'][0]",
        "['second'][1][0]",
        "['first']['deep']",
        "['first']['tanh']",
    ]
    rows = sound.cell("sound_models.integers_and_booleans")["evidence"]["outputs"]
    assert [row["dtype"] for row in rows] == ["float32", "int64", "bool", "int32"]
    assert [row["exact"] for row in rows] == [False, True, True, True]


@pytest.mark.parametrize("flow", FLOWS)
def test_a_saved_program(sound: Ran, flow: str) -> None:
    assert sound.cell("saved", flow)["verdict"] == "passed"
    dynamic = sound.cell("saved_dynamic", flow)
    assert dynamic["verdict"] == "passed"
    assert [row["shape"] for row in dynamic["evidence"]["outputs"]] == [[3, 3], [2, 3], [7, 3]]


@pytest.mark.parametrize("name", ["truncated", "garbage", "empty"])
def test_a_file_that_is_no_saved_program(sound: Ran, name: str) -> None:
    cell = sound.cell(name)
    assert (cell["verdict"], cell["stage"], cell["cause"]) == ("failed", "build", "raised")
    assert f"{name}.pt2 cannot be loaded as an exported program" in cell["reason"]
    assert "torch.export.save" in cell["reason"]


@pytest.mark.parametrize("name", factories(WRONG))
def test_a_wrong_answer_is_caught(wrong: Ran, name: str) -> None:
    cell = wrong.cell(f"wrong_models.{name}")
    assert (cell["verdict"], cell["stage"], cell["cause"]) == ("failed", "compare", "mismatch")
    assert WHAT_IS_WRONG[name] in cell["reason"]


WHAT_IS_WRONG = {
    "float_slightly_off": "output [0] at the example input is too far off",
    "float_one_element_off": "is too far off",
    "float_wrong_sign": "is too far off",
    "float_zeros": "is too far off",
    "integer_off_by_one": "output [1] at the example input",
    "boolean_one_flipped": "output [1] at the example input 1 of 256 values differ",
    "wrong_shape": "has shape (192,), must have (64, 3)",
    "wrong_dtype": "has dtype torch.float64, must have torch.float32",
    "missing_output": "the program has 1 outputs, the module 2",
    "extra_output": "the program has 3 outputs, the module 2",
    "swapped_outputs": "output [0] at the example input is too far off",
    "nan_elsewhere": "has NaN or Inf at other places",
    "nan_missing": "has NaN or Inf at other places",
    "infinity_for_nan": "has NaN or Inf at other places",
    "wrong_number": "output [1] at the example input is 4, must be 3",
    "wrong_at_other_sizes": "output [0] at the smallest input is too far off",
    "float_a_fifth_off": "is too far off",
}

WRONG_QUANTIZED = (
    "float_slightly_off",
    "float_a_fifth_off",
    "wrong_shape",
    "missing_output",
    "extra_output",
    "swapped_outputs",
    "nan_missing",
    "integer_off_by_one",
    "wrong_at_other_sizes",
)


@pytest.mark.parametrize("name", WRONG_QUANTIZED)
def test_a_wrong_answer_does_not_pass_for_quantization_noise(
    wrong_quantized: Ran, name: str
) -> None:
    """The quantized module is made of the exported one and has its faults: the module itself has not."""
    cell = wrong_quantized.cell(f"wrong_models.{name}", "xnnpack_int8_static")
    assert (cell["verdict"], cell["stage"], cell["cause"]) == ("failed", "export", "mismatch")
    assert "the exported float model is not the module: output" in cell["reason"]


@pytest.mark.parametrize("name", ["images", "counter_from_zero"])
def test_a_sound_model_quantized(wrong_quantized: Ran, name: str) -> None:
    """Calibrated on several inputs, after which a module that counts must count from its start."""
    cell = wrong_quantized.cell(f"sound_models.{name}", "xnnpack_int8_static")
    assert (cell["verdict"], cell["reason"]) == ("passed", "")
    assert cell["evidence"]["exported"][0]["problem"] == ""


def test_one_model_through_the_command(edgeproof: Callable[..., Ran], tmp_path: Path) -> None:
    """Its file has a name that torch imports, and imports a module beside it."""
    folder = tmp_path / "my models"
    folder.mkdir()
    (folder / "beside.py").write_text("import torch\nlayer = torch.nn.Linear(4, 3)\n")
    (folder / "copy.py").write_text(
        "import beside, torch\ndef build():\n    return beside.layer, torch.randn(2, 4)\n"
    )
    ran = edgeproof("check", "my models/copy.py:build", "--flows", "xnnpack_fp32", prove=True)
    assert ran.code == 0, ran.out
    assert "gate: holds" in ran.out
    cell = ran.cell("copy.build", "xnnpack_fp32")
    assert cell["reproduce"] == ("edgeproof check 'my models/copy.py:build' --flows xnnpack_fp32")
