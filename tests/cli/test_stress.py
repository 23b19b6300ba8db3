"""What ``edgeproof stress`` refuses before anything is made."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def run(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "edgeproof", "stress", *args],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **env},
    )


@pytest.mark.parametrize(
    ("args", "env", "said"),
    [
        ((), {}, "--flow"),
        (("--flow", "nothing_*"), {}, "nothing_*"),
        (("--flow", "xnnpack_fp32", "--mode", "shared"), {}, "there is no mode 'shared'"),
        (("--flow", "xnnpack_fp32", "--mode", "unserialised"), {}, "there is no mode"),
        (("--flow", "xnnpack_fp32", "--mode", "mixed"), {}, "mixed takes the programs of several"),
        (("--flow", "xnnpack_fp32", "--case", "smoke/nothing"), {}, "there is no case 'smoke/nothing'"),
        (("--flow", "xnnpack_fp32", "--case", "nowhere.py:f"), {}, "nowhere.py"),
        (("--flow", "xnnpack_fp32", "--threads", "0"), {}, "--threads"),
        (("--flow", "xnnpack_fp32", "--iterations", "-1"), {}, "--iterations"),
        (("--flow", "xnnpack_fp32", "--sanitize", "memory"), {}, "--sanitize"),
        (("--flow", "xnnpack_fp32", "--reduce-seconds", "nan"), {}, "nan is not a number"),
        (("--flow", "xnnpack_fp32"), {"EDGEPROOF_STRESS_THREADS": "many"}, "STRESS_THREADS is 'many'"),
        (("--flow", "xnnpack_fp32"), {"EDGEPROOF_STRESS_ITERATIONS": "0"}, "STRESS_ITERATIONS is '0'"),
    ],
)  # fmt: skip
def test_wrong_use_is_refused(args: tuple[str, ...], env: dict[str, str], said: str) -> None:
    done = run(*args, **env)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
