"""Ctrl-C, SIGTERM and worse in the middle of a run: nothing is left over, what was done is kept."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.conftest import (
    HERE,
    end_all,
    pids_noted,
    read_report,
    running,
    wait_for,
)

pytestmark = [
    pytest.mark.subject,
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]

DEADLY = HERE / "deadly_models.py"


@pytest.fixture(autouse=True)
def nothing_stays(notes: Path) -> Iterator[None]:
    yield
    end_all(pids_noted(notes))


def command(model: str, flows: str, report: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "edgeproof", "check", f"{DEADLY}:{model}"),
        *("--flows", flows, "--workers", "1", "--json", str(report)),
    ]


def workers_of(host: int) -> list[int]:
    """The child processes of edgeproof, whatever they are."""
    children = []
    for tasks in Path(f"/proc/{host}/task").glob("*/children"):
        with suppress(OSError):
            children += [int(pid) for pid in tasks.read_text().split()]
    return children


def assert_kept(report_path: Path) -> None:
    report = read_report(report_path)
    assert report is not None
    first, second = report["cells"]
    assert (first["flow"], first["verdict"]) == ("portable_fp32", "passed")
    assert (second["flow"], second["verdict"]) == ("xnnpack_fp32", "not_run")
    assert (second["cause"], second["declared"]) == ("interrupted", False)
    assert report["interrupted"] is True
    assert report["gate"]["exit_code"] == 130
    assert report["gate"]["reasons"][0] == "the run was interrupted"


@pytest.mark.parametrize(
    "signals", [(signal.SIGINT,), (signal.SIGTERM, signal.SIGINT), (signal.SIGHUP,)]
)
def test_a_signal_to_edgeproof_alone(
    signals: tuple[signal.Signals, ...], notes: Path, tmp_path: Path
) -> None:
    """Alone, as a CI sends it; some send a second one before the first had its effect."""
    report = tmp_path / "report.json"
    host = subprocess.Popen(
        command("second_flow_hangs", "portable_fp32,xnnpack_fp32", report),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_for((notes / "sleeping").exists, seconds=120, why="the second flow never hung")
    pids = [*pids_noted(notes), *workers_of(host.pid)]
    assert len(set(pids)) == 2
    began = time.monotonic()
    for number in signals:
        host.send_signal(number)
        time.sleep(0.05)
    out, err = host.communicate(timeout=60)
    assert time.monotonic() - began < 10
    assert host.returncode == 130
    assert "Traceback" not in err
    assert "1 passed, 1 not_run" in out
    assert "the run was interrupted before it ended" in out
    assert not [pid for pid in pids if running(pid)]
    assert_kept(report)


def test_control_c_at_a_terminal(notes: Path, tmp_path: Path) -> None:
    """The terminal sends SIGINT to every process in its foreground group, edgeproof's uv included."""
    report = tmp_path / "report.json"
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(
            sys.executable,
            command("second_flow_hangs", "portable_fp32,xnnpack_fp32", report),
            {**os.environ, "TERM": "xterm", "COLUMNS": "120"},
        )
    said = b""
    sent = False
    code: int | None = None
    pids: list[int] = []
    until = time.monotonic() + 150
    while code is None and time.monotonic() < until:
        if select.select([terminal], [], [], 0.1)[0]:
            with suppress(OSError):
                said += os.read(terminal, 65536)
        if not sent and (notes / "sleeping").exists():
            pids = [*pids_noted(notes), *workers_of(pid)]
            os.write(terminal, b"\x03")
            sent = True
        done, status = os.waitpid(pid, os.WNOHANG)
        code = os.waitstatus_to_exitcode(status) if done else None
    with suppress(OSError):
        said += os.read(terminal, 65536)
    os.close(terminal)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.decode(errors="replace"))
    assert code == 130, text
    assert len(set(pids)) == 2
    assert not [pid for pid in pids if running(pid)]
    assert "Traceback" not in text
    assert "gate: the run was interrupted" in text
    assert_kept(report)


def test_a_terminal_that_is_closed(notes: Path, tmp_path: Path) -> None:
    """It sends SIGHUP and takes nothing more: the report is written, the workers end."""
    report = tmp_path / "report.json"
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(
            sys.executable,
            command("second_flow_hangs", "portable_fp32,xnnpack_fp32", report),
            {**os.environ, "TERM": "xterm", "COLUMNS": "120"},
        )
    said = b""
    until = time.monotonic() + 120
    while not (notes / "sleeping").exists() and time.monotonic() < until:
        if select.select([terminal], [], [], 0.1)[0]:
            said += os.read(terminal, 65536)
    pids = [*pids_noted(notes), *workers_of(pid)]
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 130, said
    assert not [pid for pid in pids if running(pid)]
    assert_kept(report)


def test_workers_do_not_outlive_a_killed_edgeproof(notes: Path, tmp_path: Path) -> None:
    """One worker sleeps with a child of its own, the other one where no Python thread can run."""
    host = subprocess.Popen(
        [
            *(sys.executable, str(HERE / "many.py"), str(tmp_path / "report.json")),
            *("portable_fp32", "0", f"{DEADLY}:sleeps,sleeps_with_lock"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def both_sleep() -> bool:
        return (notes / "sleeping").exists() and (notes / "sleeping-with-lock").exists()

    wait_for(both_sleep, seconds=120, why="the workers never came to their models")
    pids = pids_noted(notes)
    assert len(pids) == 3
    assert set(workers_of(host.pid)) < set(pids)
    host.kill()
    host.wait(10)
    wait_for(lambda: not any(running(pid) for pid in pids), seconds=10, why="something outlived it")


def test_a_reader_that_goes_away_does_not_take_the_report_with_it(
    notes: Path, tmp_path: Path, edgeproof: Callable[..., object]
) -> None:
    """``edgeproof check ... | head -1``: the terminal is gone, the run is not."""
    report = tmp_path / "report.json"
    host = subprocess.Popen(
        command("fine", "portable_fp32", report), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert host.stdout is not None
    host.stdout.close()
    _, err = host.communicate(timeout=120)
    assert b"Traceback" not in err
    assert host.returncode == 0
    written = read_report(report)
    assert written is not None
    assert written["cells"][0]["verdict"] == "passed"
