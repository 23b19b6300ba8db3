from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True)
class Ran:
    """A finished edgeproof command."""

    code: int
    out: str
    report: dict[str, Any]


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """``edgeproof smoke`` over every flow, run once for all tests that look at it."""
    report = tmp_path_factory.mktemp("smoke") / "report.json"
    done = subprocess.run(
        [sys.executable, "-m", "edgeproof", "smoke", "--json", str(report)],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    return Ran(done.returncode, done.stdout + done.stderr, json.loads(report.read_text()))
