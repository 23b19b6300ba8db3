"""Suites for real: bundles and cells alone agree, what is done is not run again, a killed run goes on."""

from __future__ import annotations

import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from jsonschema import validate

from tests.integration.conftest import SCHEMA, Ran, read_report, run_command

pytestmark = pytest.mark.subject

CASES = (
    *("operators/test_abs_*", "operators/test_ceil_*", "operators/test_clamp_*"),
    *("operators/test_add_*", "operators/test_amax_dim*", "operators/test_median_dim*"),
)
"""The medians fail: ExecuTorch has none."""


def arguments(*more: str, flow: str = "portable_fp32,xnnpack_fp32") -> list[str]:
    cases = [word for glob in CASES for word in ("--case", glob)]
    return ["-m", "edgeproof", "run", "--suite", "operators", "--flow", flow, *cases, *more]


def run(folder: Path, *more: str, name: str = "report.json") -> Ran:
    report = folder / name
    return run_command(*arguments("--json", str(report), *more), report=report, cwd=folder)


def cells(report: Mapping[str, Any] | None) -> dict[str, Mapping[str, Any]]:
    assert report is not None
    return {cell["id"]: cell for cell in report["cells"]}


def verdicts(report: Mapping[str, Any] | None) -> dict[str, tuple[str, str]]:
    return {key: (cell["verdict"], cell["cause"]) for key, cell in cells(report).items()}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run(tmp_path_factory.mktemp("run"))


def test_the_report_is_whole(ran: Ran) -> None:
    assert ran.report is not None
    validate(ran.report, SCHEMA)
    found = cells(ran.report)
    assert len(found) > 40
    assert {cell["verdict"] for cell in found.values()} >= {"passed", "failed"}
    assert any("bundle" in cell["evidence"] for cell in found.values())
    assert not any("bundle" in c["evidence"] for c in found.values() if c["verdict"] != "passed")
    assert ran.code == 1


def test_cells_alone_end_as_those_in_bundles(ran: Ran, tmp_path: Path) -> None:
    alone = run(tmp_path, "--exact")
    assert verdicts(alone.report) == verdicts(ran.report)
    assert not any("bundle" in cell["evidence"] for cell in cells(alone.report).values())


def test_what_did_not_change_is_taken_over(ran: Ran, tmp_path: Path) -> None:
    again = run(tmp_path, "--cached")
    assert verdicts(again.report) == verdicts(ran.report)
    assert all(cell["cached"] for cell in cells(again.report).values())
    assert "taken over" in again.out
    # What earlier runs of this test left behind is not to be found.
    seed = str(random.SystemRandom().randrange(2**31))
    other = run(tmp_path, "--cached", "--seed", seed, "--case", "operators/test_add_*")
    assert not any(cell["cached"] for cell in cells(other.report).values())


def test_a_run_that_was_killed_at_any_moment_goes_on(tmp_path: Path) -> None:
    """Ten times, by SIGKILL. What had a result then has the very same in the end."""
    whole = run(tmp_path, "--exact", name="whole.json")
    report = tmp_path / "report.json"
    partial = tmp_path / "report.json.partial"
    chance = random.Random(4)
    # Alone, the cells end one by one: the run cannot outpace ten kills a few results apart.
    command = arguments("--json", str(report), "--exact")
    done: dict[str, Any] = {}
    for _ in range(10):
        host = subprocess.Popen(
            [sys.executable, *command],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        more = len(done) + chance.randint(0, 4)
        until = time.monotonic() + 60
        while len(results(partial)) < more and host.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.1))
        host.send_signal(signal.SIGKILL)
        host.wait()
        assert not report.exists(), "it came to its end before it was killed"
        now = results(partial)
        assert {key: now[key] for key in done} == done
        done = now
        command = ["-m", "edgeproof", "run", "--resume", str(report)]
    assert 0 < len(done) < len(cells(whole.report))
    last = run_command(*command, report=report, cwd=tmp_path)
    assert verdicts(last.report) == verdicts(whole.report)
    kept = cells(last.report)
    assert {key: {**kept[key], **result} for key, result in done.items()} == {
        key: kept[key] for key in done
    }
    assert not partial.exists()
    assert last.report is not None
    assert last.report["command"] == (
        f"edgeproof {shlex.join(arguments('--json', str(report), '--exact')[2:])}"
    )
    assert run_command(*command, report=tmp_path / "none", cwd=tmp_path).code == 2


def results(partial: Path) -> dict[str, Any]:
    """The results in a journal, whose last line may be cut off."""
    text = partial.read_text(encoding="utf-8") if partial.exists() else ""
    lines = [json.loads(line) for line in text.rpartition("\n")[0].splitlines()]
    return {line["cell"]: line["result"] for line in lines if "cell" in line}


@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C as POSIX sends it")
def test_an_interrupted_run_says_how_to_go_on(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    host = subprocess.Popen(
        [sys.executable, *arguments("--json", str(report), flow="portable_fp32")],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 60
    while not results(tmp_path / "report.json.partial") and time.monotonic() < until:
        time.sleep(0.05)
    host.send_signal(signal.SIGINT)
    out, _ = host.communicate(timeout=60)
    assert host.returncode == 130
    assert f"to go on: edgeproof run --resume {report}" in out
    first = read_report(report)
    assert first is not None
    assert first["interrupted"]
    last = run_command(
        "-m", "edgeproof", "run", "--resume", str(report), report=report, cwd=tmp_path
    )
    assert last.report is not None
    assert not last.report["interrupted"]
    assert {c["cause"] for c in last.report["cells"]}.isdisjoint({"interrupted"})
