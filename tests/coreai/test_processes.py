"""Many processes that load one model into one empty cache at the same moment."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

import edgeproof
from tests.coreai.test_runtime import SETUP
from tests.lab import Lab

pytestmark = pytest.mark.subject

# EDGEPROOF_TEST_PROCESSES=50 is what docs/results/coreai.md shows; each takes seconds to start.
COUNT = int(os.environ.get("EDGEPROOF_TEST_PROCESSES", "6"))

ONE = """
import json, os, sys, time, torch
from executorch.runtime import Runtime
from edgeproof.coreai import cache_stats, install_runtime
folder, number = sys.argv[1:]
install_runtime(cache_dir=folder + "/cache")
program = Runtime.get().load_program(folder + "/model.pte")
given, right = torch.load(folder + "/right.pt")
open(f"{folder}/ready-{number}", "w").close()
while not os.path.exists(folder + "/go"):
    time.sleep(0.001)
answer = program.load_method("forward").execute((given,))[0]
stats = cache_stats()
print(json.dumps([float((answer - right).abs().max()), stats.hits, stats.misses, stats.damaged]))
"""


def test_one_of_many_processes_specializes_and_all_are_right(
    coreai_lab: Lab, tmp_path: Path
) -> None:
    python = coreai_lab.run(
        SETUP
        + f"""
import sys
torch.manual_seed(0)
layers = [torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 10)]
module, x = torch.nn.Sequential(*layers).eval(), torch.randn(1, 3, 8, 8)
open({str(tmp_path / "model.pte")!r}, "wb").write(lowered(module, (x,)).to_executorch().buffer)
torch.save((x, module(x).detach()), {str(tmp_path / "right.pt")!r})
result = sys.executable
"""
    )
    sources = str(Path(edgeproof.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": sources, "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [python, "-c", ONE, str(tmp_path), str(number)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        for number in range(COUNT)
    ]
    try:
        end = time.monotonic() + 60 + 15 * COUNT
        while len(list(tmp_path.glob("ready-*"))) < COUNT:
            assert time.monotonic() < end
            assert all(process.poll() is None for process in processes)
            time.sleep(0.05)
        (tmp_path / "go").touch()
        answers = [json.loads(process.communicate()[0]) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    errors, hits, misses, damaged = zip(*answers, strict=True)
    assert max(errors) < 1e-5
    assert (sum(misses), sum(hits), sum(damaged)) == (1, COUNT - 1, 0)
    entries = [p for p in (tmp_path / "cache").iterdir() if not p.name.startswith(".")]
    assert len(entries) == 1
    print(f"{COUNT} processes: {sum(misses)} specialized, {sum(hits)} found it, all right")
