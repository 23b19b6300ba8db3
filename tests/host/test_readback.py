from __future__ import annotations

import ast
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgeproof.errors import SubjectError
from edgeproof.host.interpreters import ask, find_python
from edgeproof.host.readback import SCRIPT, read_back


def test_the_script_uses_the_standard_library_only() -> None:
    imported = set()
    for node in ast.walk(ast.parse(SCRIPT.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
    assert imported <= sys.stdlib_module_names


@pytest.mark.parametrize("minor", ["3.10", "3.11", "3.12", "3.13"])
def test_it_answers_on_every_python_it_is_for(minor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    try:
        python = find_python(minor, (minor,))
    except SubjectError:
        pytest.skip(f"no Python {minor} here")
    contents = read_back(python, isolated=True).contents
    interpreter = ask(python)
    assert interpreter is not None
    assert contents.python == interpreter.version


def test_an_interpreter_that_hangs_is_given_up(tmp_path: Path) -> None:
    hanging = tmp_path / "python"
    hanging.write_text("#!/bin/sh\nexec sleep 60\n")
    hanging.chmod(0o755)
    began = time.monotonic()
    with pytest.raises(SubjectError, match=r"did not say within 0\.5 s"):
        read_back(hanging, isolated=True, timeout=0.5)
    assert time.monotonic() - began < 10


def test_a_missing_interpreter_is_told(tmp_path: Path) -> None:
    with pytest.raises(SubjectError, match="there is no Python at"):
        read_back(tmp_path / "python", isolated=True)


def test_what_an_environment_prints_at_start_is_no_answer(tmp_path: Path) -> None:
    folder = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "greet.pth").write_text("import sys; print('hello')\n")
    contents = read_back(folder / "bin" / "python", isolated=True).contents
    assert Path(contents.site) == site
    assert contents.packages == {}


def test_host_modules_shadow_nothing_of_the_standard_library_or_the_subject(tmp_path: Path) -> None:
    said = read_back(Path(sys.executable), isolated=False).contents
    assert "uv" in said.packages
