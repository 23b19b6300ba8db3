"""``doctor`` on environments of a user: what is missing, and the command that mends it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edgeproof.cli.listings import path
from tests.integration.conftest import Ran


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A virtual environment without packages, on the Python of the subjects."""
    folder = tmp_path / "my env"
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60
    )
    return folder


@pytest.fixture
def with_base(empty: Path) -> Path:
    """A user's environment with executorch and its torch, and nothing of QNN's or OpenVINO's."""
    base = path("base", executorch=None, python=None)
    (site,) = base.parent.parent.glob("lib/python3.*/site-packages")
    (mine,) = empty.glob("lib/python3.*/site-packages")
    (mine / "base.pth").write_text(f"{site}\n")
    return empty


@pytest.mark.subject
def test_packages_that_are_missing(edgeproof: Callable[..., Ran], with_base: Path) -> None:
    flows = "portable_fp32,openvino_fp32,qnn_fp16,coreml_fp32"
    ran = edgeproof("doctor", "--flows", flows, "--subject", str(with_base))
    assert ran.code == 1
    rows = [line.split() for line in ran.out.splitlines()]
    can = {row[0]: row[2:] for row in rows if row and row[0] in flows.split(",")}
    assert can["portable_fp32"] == ["yes", "yes"]
    assert can["coreml_fp32"][:2] == ["yes", "no:"]
    assert can["qnn_fp16"] == can["openvino_fp32"] == ["no", "no"]
    assert "qnn_fp16: import onnxruntime_qnn: ModuleNotFoundError" in ran.out
    lines = [line for line in ran.out.splitlines() if line.startswith("  mend: ")]
    assert len(lines) == 2
    python = f"'{with_base / 'bin' / 'python'}'"
    installing = f"  mend: {sys.executable} -m uv pip install --python {python} "
    assert f"{installing}onnxruntime-qnn==2.5.0" in lines
    assert f"{installing}openvino==2025.4.1 nncf==3.1.0" in lines


@pytest.mark.subject
def test_the_same_is_said_by_a_run(edgeproof: Callable[..., Ran], with_base: Path) -> None:
    model = Path(__file__).with_name("deadly_models.py")
    ran = edgeproof(
        *("check", f"{model}:fine", "--flows", "portable_fp32,qnn_fp16"),
        *("--subject", str(with_base), "--declare-not-run", "portable_fp32=never needed"),
        prove=True,
    )
    assert ran.code == 1
    assert ran.cell("deadly_models.fine")["verdict"] == "passed"
    cell = ran.cell("deadly_models.fine", "qnn_fp16")
    assert (cell["verdict"], cell["cause"], cell["declared"]) == ("not_run", "unavailable", False)
    assert "-m uv pip install --python" in cell["mend"]
    assert cell["mend"].endswith("onnxruntime-qnn==2.5.0")
    assert "onnxruntime-qnn is missing, the stack names 2.5.0" in ran.out


@pytest.mark.subject
def test_an_environment_of_our_own_for_another_stack(edgeproof: Callable[..., Ran]) -> None:
    base = path("base", executorch=None, python=None)
    ran = edgeproof("doctor", "--flows", "qnn_fp16", "--subject", str(base))
    assert ran.code == 1
    assert "edgeproof subjects make qnn, and leave --subject out" in ran.out


@pytest.mark.parametrize(
    "command", [("doctor",), ("smoke", "--flows", "portable_fp32")], ids=["doctor", "smoke"]
)
def test_an_environment_without_executorch(
    edgeproof: Callable[..., Ran], empty: Path, command: tuple[str, ...]
) -> None:
    ran = edgeproof(*command, "--subject", str(empty))
    assert ran.code == 4
    python = empty / "bin" / "python"
    assert f"there is no executorch in the environment of {python}" in ran.err
    assert f"mend: install it there (uv pip install --python '{python}' " in ran.err
    assert "executorch==1.5.1" in ran.err


@pytest.mark.parametrize("where", ["gone", "."])
def test_what_is_no_environment(edgeproof: Callable[..., Ran], where: str) -> None:
    ran = edgeproof("doctor", "--subject", where)
    assert ran.code == 4
    assert "mend: name an environment's folder" in ran.err


def test_subjects_that_were_not_made(edgeproof: Callable[..., Ran], own_cache: Path) -> None:
    """Nothing is installed by looking; the command that makes the subject is told."""
    ran = edgeproof("doctor", "--flows", "qnn_*,portable_fp32")
    assert ran.code == 1
    assert "qnn_fp16, qnn_8a8w: no subject of stack qnn" in ran.out
    assert "mend: edgeproof subjects make qnn" in ran.out
    assert not (own_cache / "subjects").exists()
