"""The scripts that the workflows call: which wheel is taken, what the summary says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.tags import sys_tags

from tests.conftest import WheelMaker

ROOT = Path(__file__).parents[1]
HERE = str(next(sys_tags()))
OTHERS = ("cp310-cp310-win_amd64", "cp27-cp27mu-manylinux1_x86_64", "cp35-abi3-macosx_12_0_arm64")


def _run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / ".github" / script), *arguments],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_the_one_wheel_that_fits_is_taken(make_wheel: WheelMaker, tmp_path: Path) -> None:
    wheels = tmp_path / "my wheels"
    for tag in OTHERS:
        make_wheel(tag=tag, folder=wheels / "other")
    make_wheel(name="torch", tag=HERE, folder=wheels)
    right = make_wheel(tag=HERE, folder=wheels / "deep" / "er")

    done = _run("pick_wheel.py", str(wheels))

    assert done.stdout == f"{right.as_posix()}\n"
    assert (done.returncode, done.stderr) == (0, "")


def test_the_version_asked_for_is_taken(make_wheel: WheelMaker, tmp_path: Path) -> None:
    make_wheel(version="1.0", tag=HERE, folder=tmp_path / "w")
    right = make_wheel(version="2.0", tag=HERE, folder=tmp_path / "w")

    assert _run("pick_wheel.py", str(tmp_path / "w"), "2.0.0").stdout == f"{right.as_posix()}\n"


@pytest.mark.parametrize(
    ("wheels", "version", "said"),
    [
        ([], "", "no wheels of executorch fit"),
        ([("executorch", "1.0", OTHERS[0])], "", OTHERS[0]),
        ([("executorch", "1.0", HERE), ("executorch", "2.0", HERE)], "", "2 wheels"),
        ([("executorch", "1.0", HERE), ("executorch", "1.0", "py3-none-any")], "", "2 wheels"),
        ([("executorch", "1.0", HERE)], "2.0", "no wheels of executorch 2.0"),
        ([("executorch", "1.0", HERE)], "new", "not a version"),
        ([("executorch_nightly", "1.0", HERE)], "", "no wheels"),
    ],
)
def test_no_wheel_or_several_are_refused(
    wheels: list[tuple[str, str, str]],
    version: str,
    said: str,
    make_wheel: WheelMaker,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "w"
    folder.mkdir()
    for name, held, tag in wheels:
        make_wheel(name, held, tag=tag, folder=folder)

    done = _run("pick_wheel.py", str(folder), version)

    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_a_file_that_is_no_wheel_is_refused(make_wheel: WheelMaker, tmp_path: Path) -> None:
    make_wheel(tag=HERE, folder=tmp_path / "w")
    (tmp_path / "w" / "executorch.whl").touch()

    done = _run("pick_wheel.py", str(tmp_path / "w"))

    assert (done.returncode, done.stdout) == (2, "")
    assert "executorch.whl is not the name of a wheel" in done.stderr


@pytest.mark.parametrize("arguments", [(), ("no such folder",), ("a", "1", "b")])
def test_wrong_use_is_refused(arguments: tuple[str, ...]) -> None:
    assert _run("pick_wheel.py", *arguments).returncode == 2


def _report(**changed: Any) -> dict[str, Any]:
    cell = {"case": "smoke/mv3", "declared": False, "stage": None, "reason": ""}
    return {
        "command": "edgeproof smoke",
        "gate": {"exit_code": 1, "reasons": ["qnn_fp16 crashed"]},
        "ledger": {"asked": 3, "verdicts": {"passed": 1, "crashed": 1, "not_run": 1}},
        "broken_subjects": [],
        "cells": [
            {**cell, "flow": "portable_fp32", "verdict": "passed"},
            {**cell, "flow": "qnn_fp16", "verdict": "crashed", "stage": "load",
             "reason": "SIGSEGV | <in> QNN\nmore"},
            {**cell, "flow": "coreml_fp32", "verdict": "not_run", "declared": True,
             "reason": "no Core ML here"},
        ],
        **changed,
    }  # fmt: skip


def test_the_summary_tells_every_cell(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps(_report()))

    done = _run("summarize.py", str(tmp_path / "r.json"))

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "### The gate is broken (`edgeproof smoke`)",
        "",
        "- qnn_fp16 crashed",
        "",
        "| flow | case | verdict | why |",
        "| --- | --- | --- | --- |",
        "| portable_fp32 | smoke/mv3 | passed |  |",
        "| qnn_fp16 | smoke/mv3 | crashed at load | SIGSEGV \\| &lt;in> QNN |",
        "| coreml_fp32 | smoke/mv3 | not_run (declared) | no Core ML here |",
    ]


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{}",
        "[]",
        json.dumps(_report(cells=[])),
        json.dumps(_report(ledger={"asked": 4, "verdicts": {"passed": 3}})),
        json.dumps(_report(gate={})),
    ],
)
def test_no_report_is_no_summary(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "r.json").write_text(text)

    done = _run("summarize.py", str(tmp_path / "r.json"))

    assert (done.returncode, done.stdout) == (2, "")
    assert "no report" in done.stderr
