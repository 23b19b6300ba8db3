"""Stress for real, on the delegates of the wheel and on ours."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from jsonschema import validate

from tests.integration.conftest import SCHEMA, Ran, run_command

pytestmark = [
    pytest.mark.subject,
    pytest.mark.skipif(sys.platform != "linux", reason="the driver is built and run on Linux"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler"),
]


@pytest.fixture
def stress(tmp_path: Path) -> Callable[..., Ran]:
    report = tmp_path / "report.json"

    def run(*arguments: str) -> Ran:
        ran = run_command(
            *("-m", "edgeproof", "stress", "--json", str(report), "--reduce-seconds", "0"),
            *arguments, report=report, cwd=tmp_path,
        )  # fmt: skip
        assert ran.report is not None
        validate(ran.report, SCHEMA)
        return ran

    return run


@pytest.mark.parametrize("flow", ["xnnpack_fp32", "openvino_fp32", "coreai_fp16"])
def test_two_phases_of_many_threads(stress: Callable[..., Ran], flow: str) -> None:
    ran = stress("--flow", flow, "--threads", "4", "--iterations", "20")
    assert ran.code == 0, ran.out
    phases = ran.cell("stress/residual_mlp", flow)["evidence"]["stress"]["phases"]
    assert list(phases) == ["cold", "warm"]
    for phase in phases.values():
        assert phase["iterations"] == phase["outputs_checked"] == 80
        assert phase["failed"] == 0
        assert phase["load"]["most_at_once"] >= 2
    if flow.startswith("coreai"):
        assert phases["warm"]["cache"][flow] == {"hits": 160, "misses": 0}


def test_one_thread_proves_nothing(stress: Callable[..., Ran]) -> None:
    ran = stress("--flow", "xnnpack_fp32", "--threads", "1", "--iterations", "3")
    assert ran.code == 3
    assert "no_overlap" in json.dumps(ran.report)


def test_a_program_that_is_wrong_is_not_stressed(
    stress: Callable[..., Ran], tmp_path: Path
) -> None:
    model = tmp_path / "model.py"
    model.write_text(
        "import torch\n"
        "class Wrong(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x + 1 if torch.compiler.is_exporting() else x\n"
        "def build():\n"
        "    return Wrong(), (torch.randn(4, 4),)\n"
    )
    ran = stress("--flow", "xnnpack_fp32", "--case", f"{model}:build", "--iterations", "3")
    cell = ran.cell("model.build", "xnnpack_fp32")
    assert (cell["verdict"], cell["stage"]) == ("failed", "compare")
    assert ran.code != 0
