"""What is built on first use: once, kept, and with a clear word where it cannot be."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import edgeproof
from tests.lab import Lab

pytestmark = pytest.mark.subject

SOURCES = str(Path(edgeproof.__file__).parent.parent)


def ask(lab: Lab, code: str, cache: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    python = lab.run("import sys; result = sys.executable")
    environment = {**os.environ, "PYTHONPATH": SOURCES, "EDGEPROOF_CACHE_DIR": str(cache)}
    return subprocess.run(
        [python, "-c", code],
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


BUILD = """
import sys
from edgeproof.errors import EdgeproofError
from edgeproof.native import build
try:
    print(build.build("bridge"))
except EdgeproofError as fault:
    sys.exit(f"{fault.message} | {fault.mend}")
"""


def test_many_ask_at_once_and_one_builds(coreai_lab: Lab, tmp_path: Path) -> None:
    cache = tmp_path / "a cache"
    # A compiler that counts: g++ behind a script, which is part of the key like any other.
    counting = tmp_path / "counting"
    counting.write_text(
        f'#!/bin/sh\ncase "$1" in --version) ;; *) echo x >> "{tmp_path}/count" ;; esac\nexec c++ "$@"\n'
    )
    counting.chmod(0o755)
    python = coreai_lab.run("import sys; result = sys.executable")
    environment = {**os.environ, "PYTHONPATH": SOURCES, "EDGEPROOF_CACHE_DIR": str(cache)}
    environment["CXX"] = str(counting)
    started = [
        subprocess.Popen([python, "-c", BUILD], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    paths = {process.communicate()[0].strip() for process in started}
    assert len(paths) == 1
    [path] = paths
    assert Path(path).is_file()
    assert path.startswith(str(cache))
    assert (tmp_path / "count").read_text().count("x") == 1
    assert [p.name for p in Path(path).parent.iterdir() if p.name.startswith(".tmp")] == []


def test_a_compiler_of_several_words(coreai_lab: Lab, tmp_path: Path) -> None:
    """As ``ccache g++``, with flags, and with a blank in its path."""
    folder = tmp_path / "some tools"
    folder.mkdir()
    launcher = folder / "launcher"
    launcher.write_text(f'#!/bin/sh\necho "$@" >> "{tmp_path}/seen"\nexec "$@"\n')
    launcher.chmod(0o755)
    built = ask(
        coreai_lab, BUILD, tmp_path / "cache", CXX=f"'{launcher}' c++ -DSOME='a b' -fno-such-flag"
    )
    command = built.stderr.split("the command was: ")[1]
    assert command.startswith(f"'{launcher}' c++ '-DSOME=a b' -fno-such-flag ")
    built = ask(coreai_lab, BUILD, tmp_path / "cache", CXX=f"'{launcher}' c++ -O0")
    assert Path(built.stdout.strip()).is_file(), built.stderr
    assert "c++ -O0 " in (tmp_path / "seen").read_text()
    said = ask(coreai_lab, BUILD, tmp_path / "cache", CXX="c++ 'half").stderr
    assert "$CXX cannot be read as a command: No closing quotation" in said


def test_no_compiler(coreai_lab: Lab, tmp_path: Path) -> None:
    said = ask(coreai_lab, BUILD, tmp_path / "cache", PATH=str(tmp_path)).stderr
    assert "a C++ compiler is needed and none of c++, g++, clang++ was found" in said
    assert "apt-get install g++" in said


def test_a_python_without_headers(coreai_lab: Lab, tmp_path: Path) -> None:
    without = "import sysconfig; sysconfig.get_path = lambda name: '/nowhere'\n"
    said = ask(coreai_lab, without + BUILD, tmp_path / "cache").stderr
    assert "has no C headers (/nowhere/Python.h)" in said
    assert "apt-get install python3." in said


def test_a_compiler_that_fails_is_quoted_and_leaves_nothing(
    coreai_lab: Lab, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'fatal: no such header' >&2\nexit 1\n")
    broken.chmod(0o755)
    said = ask(coreai_lab, BUILD, tmp_path / "cache", CXX=str(broken)).stderr
    assert "bridge.cpp does not build against the executorch in" in said
    assert "fatal: no such header" in said
    assert list((tmp_path / "cache").rglob("*.so")) == []


def test_an_executorch_without_headers(coreai_lab: Lab, tmp_path: Path) -> None:
    package = tmp_path / "old" / "executorch"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    said = ask(
        coreai_lab, f"import sys; sys.path.insert(0, {str(package.parent)!r})\n" + BUILD, tmp_path
    ).stderr
    assert "has no lib/libexecutorch.so" in said
    assert "pip install 'executorch>=1.5'" in said


def test_a_folder_that_cannot_be_written_to(coreai_lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = ask(coreai_lab, BUILD, tmp_path / "file").stderr
    assert "cannot be written to" in said
    assert "EDGEPROOF_CACHE_DIR" in said


def test_the_module_takes_and_gives_tensors_in_any_order_of_dims(
    coreai_lab: Lab, tmp_path: Path
) -> None:
    off, strides = coreai_lab.run(
        f"""
import torch
from edgeproof.native import build
from executorch.runtime import Runtime
from executorch.exir import to_edge
module = torch.nn.GELU()
x = torch.randn(2, 3, 6, 5).to(memory_format=torch.channels_last)
edge = to_edge(torch.export.export(module, (x,)))
path = {str(tmp_path / "model.pte")!r}
open(path, "wb").write(edge.to_executorch().buffer)
[answer] = build.load("driver").Module(path, "", {{}}).execute("forward", [x.numpy()])
right = module(x).detach().numpy()
result = [float(abs(answer - right).max()), [list(answer.strides), list(right.strides)]]
"""
    )
    assert off < 1e-5
    assert strides[0] == strides[1]


def test_load_time_options_reach_the_delegate_through_the_module(
    coreai_lab: Lab, tmp_path: Path
) -> None:
    """ExecuTorch's own C++ Module carries them; its Python bindings have no way to."""
    result = coreai_lab.run(
        f"""
import os, tempfile, torch
from edgeproof.coreai import install_runtime, last_error, lower
from edgeproof.native import build
install_runtime(cache_dir=tempfile.mkdtemp())
module, x = torch.nn.Linear(4, 3).eval(), torch.randn(2, 4)
path = {str(tmp_path / "model.pte")!r}
open(path, "wb").write(lower(torch.export.export(module, (x,))).to_executorch().buffer)
Module = build.load("driver").Module
folder = {str(tmp_path / "cache")!r}
options = {{"coreai_cache_dir": folder, "coreai_share_multifunction_model": True}}
loaded = Module(path, "CoreAIBackend", options)
from edgeproof.coreai import cache_stats
[answer] = loaded.execute("forward", [x.numpy()])
counts = []
for more in (options, {{"coreai_cache_dir": folder}}):
    before = cache_stats().hits
    other = Module(path, "CoreAIBackend", more)
    other.load_method("forward")
    counts.append(cache_stats().hits - before)
assert counts == [0, 1], counts  # what is shared is not loaded again
result = [float(abs(answer - module(x).detach().numpy()).max())]
result.append(sum(not name.startswith(".") for name in os.listdir(folder)))
for wrong in ({{"coreai_compute_unit": "gpu"}}, {{"coreai_cache_dir": True}}, {{"coreai_other": 1}}):
    try:
        Module(path, "CoreAIBackend", wrong).load_method("forward")
        result.append("loaded")
    except RuntimeError as fault:
        result.append(last_error())
"""
    )
    off, entries, *refused = result
    assert off < 1e-6
    assert entries == 1
    assert "computes on the CPU alone" in refused[0]
    assert "option coreai_cache_dir is a str" in refused[1]
    assert "there is no option 'coreai_other'" in refused[2]
