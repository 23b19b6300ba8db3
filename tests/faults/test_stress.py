"""Faults of a delegate under threads: each must be caught, with its cause."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from edgeproof.plan.stage import Verdict
from edgeproof.stress.judge import judge
from edgeproof.stress.plan import Load, Mode, Program, Spec
from edgeproof.stress.runner import Child, Told
from tests.lab import Lab

pytestmark = pytest.mark.subject

_MAKE = """
import numpy, torch
from executorch.exir import to_edge_transform_and_lower
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult

class FaultyBackend(BackendDetails):
    @staticmethod
    def preprocess(program, specs):
        return PreprocessResult(processed_bytes=b"2x")

class All(Partitioner):
    def partition(self, program):
        spec = DelegationSpec("FaultyBackend", [])
        for node in program.graph.nodes:
            if node.op == "call_function":
                node.meta["delegation_tag"] = "all"
        return PartitionResult(tagged_exported_program=program, partition_tags={"all": spec})

class Twice(torch.nn.Module):
    def forward(self, x):
        return x + x

x = torch.arange(64.0)
edge = to_edge_transform_and_lower(torch.export.export(Twice(), (x,)), partitioner=[All()])
open(FOLDER + "/program.pte", "wb").write(edge.to_executorch().buffer)
inputs = {f"{turn}_0": (x + turn).numpy() for turn in range(64)}
numpy.savez(FOLDER + "/inputs.npz", **inputs)
numpy.savez(FOLDER + "/answers.npz", **{name: 2 * given for name, given in inputs.items()})
result = None
"""


@pytest.fixture(scope="module")
def lab() -> Any:
    made = Lab("base")
    yield made
    made.close()


@pytest.fixture(scope="module")
def program(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder = tmp_path_factory.mktemp("program")
    lab.run(_MAKE.replace("FOLDER", repr(str(folder))))
    return Program(
        flow="faulty",
        folder=str(folder),
        turns=64,
        outputs=1,
        delegate="FaultyBackend",
        delegates=1,
        installs="stress_backend:install",
        cache_option="cache_dir",
        cache_stats="stress_backend:cache_stats",
    )


LOAD = Load(threads=8, iterations=20)


def stressed(
    lab: Lab,
    program: Program,
    folder: Path,
    fault: str,
    *,
    load: Load = LOAD,
    mode: Mode = Mode.PRIVATE,
    limit: float | None = None,
) -> tuple[Any, Told]:
    spec = Spec(
        mode=mode,
        programs=(program,),
        load=load,
        seed=0,
        folder=str(folder / "child"),
        paths=(str(Path(__file__).parent),),
        env={"FAULT": fault},
    )
    told = Child(lab.subject, spec, limit=limit, stop=threading.Event()).go()
    return judge(spec, told, serial={}), told


@pytest.mark.parametrize(
    "mode", [Mode.PRIVATE, Mode.SHARED_PROGRAM, Mode.SHARED_METHOD, Mode.CHURN]
)
def test_without_a_fault_it_passes(lab: Lab, program: Program, tmp_path: Path, mode: Mode) -> None:
    finding, told = stressed(lab, program, tmp_path, "", mode=mode)
    assert finding.verdict is Verdict.PASSED, finding
    assert set(told.phases) == {"cold", "warm"}


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("race", "wrong_output"),
        ("torn_cache", "load_failed"),
        ("descriptors", "leak"),
        ("global_lock", "no_overlap"),
        ("compiles_again", "cache_missed"),
    ],
)
def test_a_fault_is_caught(
    lab: Lab, program: Program, tmp_path: Path, fault: str, cause: str
) -> None:
    if fault == "torn_cache":  # it counts nothing
        program = Program(**{**vars(program), "cache_stats": ""})
    finding, _ = stressed(lab, program, tmp_path, fault)
    assert (finding.verdict, finding.cause) == (Verdict.FAILED, cause), finding


def test_a_leak_of_one_kilobyte_is_caught(lab: Lab, program: Program, tmp_path: Path) -> None:
    finding, _ = stressed(lab, program, tmp_path, "leak", load=Load(threads=8, iterations=60))
    assert (finding.verdict, finding.cause) == (Verdict.FAILED, "leak"), finding
    assert "heap grew by 1" in finding.reason


def test_a_deadlock_is_ended_with_the_stacks_of_all_threads(
    lab: Lab, program: Program, tmp_path: Path
) -> None:
    finding, told = stressed(lab, program, tmp_path, "deadlock", limit=5)
    assert (finding.verdict, finding.cause) == (Verdict.TIMED_OUT, "hung")
    assert told.crash is not None
    assert told.crash["native_stack"].count("[native stack") >= 8
    assert "executorch" in told.crash["native_stack"]
    assert "stress_backend.py" in told.crash["python_stack"]


def test_a_crash_in_destroy_is_named_with_its_stack(
    lab: Lab, program: Program, tmp_path: Path
) -> None:
    finding, told = stressed(lab, program, tmp_path, "crash_in_destroy")
    assert (finding.verdict, finding.cause) == (Verdict.CRASHED, "crashed")
    assert "SIGSEGV" in finding.reason
    assert "cold phase" in finding.reason
    assert told.crash is not None
    assert "__del__" in told.crash["python_stack"]
    assert "signal 11" in told.crash["native_stack"]
    assert "driver.cpython" in told.crash["native_stack"]
