"""Our flows in ExecuTorch's own suites, run as a user would run them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import uv

import edgeproof
from tests.lab import Lab

pytestmark = pytest.mark.subject

SUITES = "executorch.backends.test.suite"


@pytest.fixture(scope="session")
def pytest_for_subject(tmp_path_factory: pytest.TempPathFactory, coreai_lab: Lab) -> Path:
    """A folder with pytest, since a subject holds what its stack names and nothing else."""
    python = coreai_lab.run("import sys; result = sys.executable")
    folder = tmp_path_factory.mktemp("pytest")
    wanted = ("pytest", "pytest-timeout", "pytest-json-report")
    install = [uv.find_uv_bin(), "pip", "install", "--quiet", "--python", python]
    subprocess.run([*install, "--target", str(folder), *wanted], check=True)
    return folder


def run(
    lab: Lab, tools: Path, folder: Path, suite: str, *arguments: str
) -> tuple[dict[str, str], dict[str, Any], int, str]:
    """The suite's outcomes by test, what it wrote down of each, the exit code and the output."""
    python = lab.run("import sys; result = sys.executable")
    sources = str(Path(edgeproof.__file__).parent.parent)
    report = folder / "report.json"
    command = [
        *(python, "-m", "pytest", "-c", "/dev/null", "-p", "edgeproof.coreai.upstream_suite"),
        *("--pyargs", *(f"{SUITES}.{part}" for part in suite.split()), "--timeout", "600", "-q"),
        *("--json-report", f"--json-report-file={report}"),
        *arguments,
    ]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([sources, str(tools)])},
        capture_output=True,
        text=True,
        check=False,
    )
    tests = json.loads(report.read_text())["tests"]
    outcomes = {test["nodeid"].split("::")[1]: test["outcome"] for test in tests}
    details = {
        test["nodeid"].split("::")[1]: test.get("metadata", {}).get("subtests", [])
        for test in tests
    }
    return outcomes, details, done.returncode, done.stdout


def test_what_the_released_lowering_gets_wrong_ours_gets_right(
    coreai_lab: Lab, pytest_for_subject: Path, tmp_path: Path
) -> None:
    operators = (
        "add",
        "sub",
        "amax",
        "mean",
        "squeeze",
        "avgpool2d",
        "convtranspose3d",
        "index_put",
    )
    names = (
        "test_add_f32_alpha or test_subtract_f32_alpha or test_amax_scalar or test_mean_basic or "
        "test_squeeze_no_effect or test_avgpool2d_ceil_mode or test_avgpool2d_count_include_pad or "
        "test_convtranspose3d_basic or test_index_put_accumulate"
    )
    outcomes, details, code, out = run(
        coreai_lab,
        pytest_for_subject,
        tmp_path,
        " ".join(f"operators.test_{operator}" for operator in operators),
        *("-m", "flow_coreai_fp32 or flow_coreai_upstream_fp32", "-k", names),
    )
    ours = {name: o for name, o in outcomes.items() if "[coreai_fp32" in name}
    released = {name: o for name, o in outcomes.items() if "[coreai_upstream_fp32" in name}
    assert len(ours) == len(released) == 9, out
    assert set(ours.values()) == {"passed"}, out
    assert set(released.values()) == {"failed"}
    assert code == 1
    for name in ours:
        assert all(subtest["Delegated"] == "True" for subtest in details[name]), name


@pytest.mark.parametrize("precision", ["fp16", "w8a8", "w8", "w4"])
def test_the_other_precisions(
    coreai_lab: Lab, pytest_for_subject: Path, tmp_path: Path, precision: str
) -> None:
    outcomes, _, code, out = run(
        coreai_lab,
        pytest_for_subject,
        tmp_path,
        "operators.test_linear operators.test_avgpool3d",
        *("-m", f"flow_coreai_{precision}", "-k", "test_linear_unbatched or test_avgpool3d_kernel"),
        "-rs",
    )
    passed = [name for name, outcome in outcomes.items() if outcome == "passed"]
    assert any("linear_unbatched" in name for name in passed), out
    assert code == 0
    if precision == "fp16":
        assert any("avgpool3d" in name for name in passed), out
    elif precision in ("w8", "w4"):
        assert "nothing to quantize" in out


def test_three_models_of_the_published_ledger(
    coreai_lab: Lab, pytest_for_subject: Path, tmp_path: Path
) -> None:
    """A sample of docs/results/coreai-models.json, which takes hours to make."""
    outcomes, _, code, out = run(
        coreai_lab,
        pytest_for_subject,
        tmp_path,
        "models.test_torchvision",  # test_torchaudio needs a wheel that the subject has not
        *("-m", "flow_coreai_fp32"),
        *("-k", "(squeezenet1_1 or mobilenet_v3_small or shufflenet_v2_x1_0) and static_shapes"),
    )
    assert len(outcomes) == 3, out
    assert set(outcomes.values()) == {"passed"}, out
    assert code == 0
