"""Workers that die or hang: one verdict with its evidence, and all other cells still run."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.conftest import (
    HERE,
    MANY,
    Ran,
    end_all,
    pids_noted,
    read_report,
    run_command,
    running,
)

pytestmark = [
    pytest.mark.subject,
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]

DEADLY = HERE / "deadly_models.py"

# Stage, signal, and a line that must be found in the Python stack.
DEATHS = {
    "segfault_in_forward": ("eager", "SIGSEGV", "in forward"),
    "segfault_in_factory": ("build", "SIGSEGV", "in segfault_in_factory"),
    "segfault_at_run": ("run", "SIGSEGV", "in <lambda>"),
    "segfault_with_child": ("build", "SIGSEGV", "in segfault_with_child"),
    "segfault_when_freed": ("compare", "SIGSEGV", "in __del__"),
    "aborts": ("build", "SIGABRT", "in aborts"),
    "killed": ("build", "SIGKILL", None),
    "leaves_quietly": ("build", "", None),
    "closes_all_files": ("build", "SIGKILL", None),
}
HANGS = {"loops": "in loops", "sleeps": "in sleeps", "sleeps_with_lock": "in sleeps_with_lock"}


@pytest.fixture(scope="module")
def notes_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("notes")
    yield folder
    end_all(pids_noted(folder))


def run_many(notes: Path, stage_timeout: str, *names: str) -> Ran:
    report = notes / f"report-{stage_timeout}.json"
    return run_command(
        *(str(MANY), str(report), "portable_fp32", stage_timeout, f"{DEADLY}:{','.join(names)}"),
        report=report,
        cwd=notes,
        env={"EDGEPROOF_TEST_NOTES": str(notes)},
    )


@pytest.fixture(scope="module")
def deaths(notes_of_all: Path) -> Ran:
    return run_many(notes_of_all, "0", *DEATHS, "fine")


@pytest.fixture(scope="module")
def hangs(notes_of_all: Path) -> Ran:
    # Long enough for the stages of the model that is fine.
    return run_many(notes_of_all, "8", *HANGS, "fine")


@pytest.mark.parametrize("name", DEATHS)
def test_a_worker_that_dies(deaths: Ran, name: str) -> None:
    stage, by, in_stack = DEATHS[name]
    cell = deaths.cell(f"deadly_models.{name}")
    assert (cell["verdict"], cell["stage"], cell["cause"]) == ("crashed", stage, "crashed")
    assert cell["crash"]["signal"] == by
    assert (f"killed by {by}" if by else "it left with exit code 0") in cell["reason"]
    assert cell["reason"] in deaths.out
    if in_stack is not None:
        assert in_stack in cell["crash"]["python_stack"]
        assert "deadly_models.py" in cell["crash"]["python_stack"]
        assert re.match(rf"{by}\(\d+\), PID: \d+", cell["crash"]["native_stack"])
        assert "frame #" in cell["crash"]["native_stack"]


def test_the_last_words_are_kept(deaths: Ran) -> None:
    assert deaths.cell("deadly_models.segfault_in_forward")["log"].endswith(
        "about to read from nowhere"
    )
    # Printed by C, whose own buffer would have died with the process.
    assert deaths.cell("deadly_models.segfault_in_factory")["log"].endswith(
        "from C, about to read from nowhere"
    )
    assert "  > from C, about to read from nowhere\n" in deaths.out


def test_a_crash_after_the_last_stage_belongs_to_its_cell(deaths: Ran) -> None:
    cell = deaths.cell("deadly_models.segfault_when_freed")
    assert cell["reason"].startswith("the worker died while cleaning up after its cell")
    assert [timed["stage"] for timed in cell["stages"]][-1] == "compare"


def test_the_other_cells_are_not_disturbed(deaths: Ran, hangs: Ran) -> None:
    for ran in (deaths, hangs):
        assert ran.code == 1
        assert ran.cell("deadly_models.fine")["verdict"] == "passed"
    assert deaths.report is not None
    assert deaths.report["ledger"]["verdicts"]["crashed"] == len(DEATHS)


@pytest.mark.parametrize("name", HANGS)
def test_a_worker_that_hangs(hangs: Ran, name: str) -> None:
    cell = hangs.cell(f"deadly_models.{name}")
    assert (cell["verdict"], cell["stage"], cell["cause"]) == ("timed_out", "build", "timed_out")
    assert cell["reason"] == "build took longer than 8 s"
    assert HANGS[name] in cell["crash"]["python_stack"]
    assert "frame #" in cell["crash"]["native_stack"]
    assert "--stage-timeout SECONDS allows more" in hangs.out


def test_what_a_dead_worker_started_is_ended(deaths: Ran, hangs: Ran, notes_of_all: Path) -> None:
    pids = pids_noted(notes_of_all)
    # One forked child, one child process, and the two workers that slept.
    assert len(pids) == 4
    assert not [pid for pid in pids if running(pid)]


def test_one_crash_through_the_command(edgeproof: Callable[..., Ran], notes: Path) -> None:
    """The second flow builds and runs the same model in a new worker."""
    ran = edgeproof(
        *("check", f"{DEADLY}:segfault_once", "--workers", "1"),
        *("--flows", "portable_fp32,xnnpack_fp32"),
        prove=True,
    )
    assert ran.code == 1
    crashed = ran.cell("deadly_models.segfault_once")
    assert (crashed["verdict"], crashed["stage"]) == ("crashed", "eager")
    passed = ran.cell("deadly_models.segfault_once", "xnnpack_fp32")
    assert passed["verdict"] == "passed"
    assert not [timed for timed in passed["stages"] if timed["shared"]]
    assert "gate: 1 of 2 cells are not good" in ran.out


def test_smoke_with_a_worker_that_is_shot(tmp_path: Path) -> None:
    """A real segmentation fault from outside, while XNNPACK lowers: the live display tells when."""
    report = tmp_path / "report.json"
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(
            sys.executable,
            [
                *(sys.executable, "-m", "edgeproof", "smoke", "--workers", "1"),
                *("--flows", "portable_fp32,xnnpack_fp32,coreml_fp32", "--json", str(report)),
            ],
            {**os.environ, "TERM": "xterm", "COLUMNS": "150"},
        )
    said = ""
    shot = False
    code: int | None = None
    until = time.monotonic() + 400
    while code is None and time.monotonic() < until:
        if select.select([terminal], [], [], 0.1)[0]:
            with suppress(OSError):
                said += os.read(terminal, 65536).decode(errors="replace")
        if not shot and re.search(r"xnnpack_fp32 smoke/mobilenet_v3_small[^\n]*lower", said):
            (worker,) = [
                int(child)
                for tasks in Path(f"/proc/{pid}/task").glob("*/children")
                for child in tasks.read_text().split()
            ]
            os.kill(worker, signal.SIGSEGV)
            shot = True
        done, status = os.waitpid(pid, os.WNOHANG)
        code = os.waitstatus_to_exitcode(status) if done else None
    os.close(terminal)
    assert shot
    assert code == 1
    written = read_report(report)
    assert written is not None
    portable, xnnpack, coreml = written["cells"]
    assert portable["verdict"] == "passed"
    assert (xnnpack["verdict"], xnnpack["stage"]) == ("crashed", "lower")
    assert xnnpack["crash"]["signal"] == "SIGSEGV"
    assert "to_edge_transform_and_lower" in xnnpack["crash"]["python_stack"]
    # A shot that hits malloc leaves the native handler no memory to work with: then there is no stack.
    hung = "its handler hung" in xnnpack["crash"]["how"]
    assert hung or "frame #" in xnnpack["crash"]["native_stack"]
    assert (coreml["verdict"], coreml["cause"]) == ("not_run", "cannot_run")
    assert coreml["declared"] is True
    assert written["gate"]["reasons"] == ["1 of 3 cells are not good"]
