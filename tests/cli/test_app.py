from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

import pytest


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "edgeproof", *args], capture_output=True, text=True, check=False
    )


def test_help_answers_at_once() -> None:
    times = []
    for _ in range(5):
        start = time.perf_counter()
        done = run("--help")
        times.append(time.perf_counter() - start)
        assert done.returncode == 0
    assert "smoke" in done.stdout
    assert statistics.median(times) < 0.3


@pytest.mark.parametrize("command", ["smoke", "check", "stress", "doctor", "flows", "subjects"])
def test_every_command_has_help(command: str) -> None:
    assert run(command, "--help").returncode == 0


def test_the_host_never_imports_what_is_tested() -> None:
    """Rule 1, for every module but those for inside a subject: a torch on the path would be found."""
    code = """
import importlib, pkgutil, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        refused = "torch executorch torchvision torchao numpy coremltools coreai coreai_torch"
        if name.split(".")[0] in refused.split():
            raise AssertionError(f"the host imports {name}")
sys.meta_path.insert(0, Refuse())
import edgeproof
count = 0
inside = ("edgeproof.worker.", "edgeproof.coreai.")
def raise_again(name):
    if not name.startswith(inside):
        raise
for module in pkgutil.walk_packages(edgeproof.__path__, "edgeproof.", onerror=raise_again):
    if not module.name.startswith(inside) and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
        count += 1
assert count > 30, count
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_plan_is_standard_library_and_packaging_only() -> None:
    code = """
import pkgutil, importlib, sys
import edgeproof.plan
for module in pkgutil.iter_modules(edgeproof.plan.__path__, "edgeproof.plan."):
    importlib.import_module(module.name)
own = {name.split(".")[0] for name in sys.modules} - set(sys.stdlib_module_names) - {"__main__"}
print(*sorted(name for name in own if not name.startswith("_")))
"""
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    assert set(done.stdout.split()) <= {"edgeproof", "packaging"}, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("smoke", "--flows", "xnpack_fp32"), "did you mean xnnpack_fp32"),
        (("smoke", "--flows", ""), "there is no flow ''"),
        (("smoke", "--workers", "0"), "--workers"),
        (("smoke", "--python", "3.9"), "3.11"),
        (("nonsense",), "No such command"),
    ],
)
def test_wrong_use_ends_2_and_says_what_is_right(args: tuple[str, ...], said: str) -> None:
    done = run(*args)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
