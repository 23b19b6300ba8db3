from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
MANY = HERE / "many.py"
SCHEMA = json.loads((HERE.parents[1] / "docs" / "report-schema.json").read_text())


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What a command came to."""

    code: int
    out: str
    err: str
    report: Mapping[str, Any] | None

    def cell(self, case: str, flow: str = "portable_fp32") -> Mapping[str, Any]:
        """The one cell of a case and a flow; its case may be given without ``user/``."""
        assert self.report is not None, self.err
        wanted = {case, f"user/{case}"}
        found = [c for c in self.report["cells"] if c["case"] in wanted and c["flow"] == flow]
        assert len(found) == 1, (case, flow)
        cell: Mapping[str, Any] = found[0]
        return cell


def read_report(path: Path) -> Mapping[str, Any] | None:
    if not path.exists():
        return None
    report: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    asked, verdicts = report["ledger"]["asked"], report["ledger"]["verdicts"]
    assert asked == sum(verdicts.values()) == len(report["cells"])
    return report


def assert_no_fault_of_ours(ran: Ran) -> None:
    assert "fault of edgeproof" not in ran.err
    assert "Traceback" not in ran.err
    assert ran.code != 5


def run_command(
    *command: str, report: Path, cwd: Path, env: Mapping[str, str] | None = None
) -> Ran:
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        encoding="utf-8",
        timeout=600,
        check=False,
        cwd=cwd,
        env={**os.environ, **(env or {})},
    )
    ran = Ran(code=done.returncode, out=done.stdout, err=done.stderr, report=read_report(report))
    assert_no_fault_of_ours(ran)
    return ran


@pytest.fixture
def edgeproof(tmp_path: Path) -> Callable[..., Ran]:
    """The real command in a process of its own; ``prove=True`` has it write the JSON report."""

    def run(*arguments: str, prove: bool = False, env: Mapping[str, str] | None = None) -> Ran:
        report = tmp_path / "report.json"
        more = ("--json", str(report)) if prove else ()
        return run_command(
            "-m", "edgeproof", *arguments, *more, report=report, cwd=tmp_path, env=env
        )

    return run


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """``edgeproof smoke`` over every flow, run once for all tests that look at it."""
    folder = tmp_path_factory.mktemp("smoke")
    report = folder / "report.json"
    return run_command(
        *("-m", "edgeproof", "smoke", "--json", str(report)), report=report, cwd=folder
    )


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the models of ``deadly_models.py`` leave notes of what they do."""
    folder = tmp_path / "notes"
    folder.mkdir()
    monkeypatch.setenv("EDGEPROOF_TEST_NOTES", str(folder))
    return folder


def wait_for(what: Callable[[], bool], *, seconds: float, why: str) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, f"waited {seconds} s: {why}"
        time.sleep(0.05)


def running(pid: int) -> bool:
    """Whether a process is there and more than a zombie."""
    with suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        return stat.rpartition(")")[2].split()[0] not in "ZX"
    return False


def pids_noted(notes: Path) -> list[int]:
    return [int(note.read_text()) for note in notes.glob("pid-*") if note.read_text()]


def end_all(pids: list[int]) -> None:
    for pid in pids:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
