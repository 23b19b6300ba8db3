"""What the benchmarks that run in a subject have in common."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "src"


def python_of(stack: str) -> str:
    """The Python of a subject of ``stack``, which is made if it is not there."""
    edgeproof = [sys.executable, "-m", "edgeproof", "subjects"]
    subprocess.run([*edgeproof, "make", stack], check=True, stdout=subprocess.DEVNULL)
    path = subprocess.run([*edgeproof, "path", stack], check=True, capture_output=True, text=True)
    return path.stdout.strip()


def run_inside(stack: str, script: str) -> int:
    """Run ``script inside`` in a subject of ``stack`` and return its exit code.

    What the libraries log is shown only if the script itself came to grief.
    """
    environment = {**os.environ, "PYTHONPATH": str(SOURCES), "PYTHONWARNINGS": "ignore"}
    ended = subprocess.run(
        [python_of(stack), script, "inside"],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if ended.returncode not in (0, 1) or "Traceback" in ended.stderr:
        print(ended.stderr[-4000:], file=sys.stderr)
    return ended.returncode
