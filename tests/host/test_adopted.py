from __future__ import annotations

import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from uv import find_uv_bin

from edgeproof.errors import ExitCode, SubjectError
from edgeproof.flows.registry import all_flows
from edgeproof.host.adopted import mend
from edgeproof.host.subjects import adopt
from edgeproof.plan.stack import Stack
from tests.conftest import WheelMaker


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An empty virtual environment of a user."""
    folder = tmp_path / "user's env"
    subprocess.run([find_uv_bin(), "venv", "-q", "-p", sys.executable, folder], check=True)
    return folder


def install(environment: Path, *wheels: Path) -> None:
    python = environment / "bin" / "python"
    subprocess.run(
        [find_uv_bin(), "pip", "install", "-q", "--offline", "--python", python, *wheels],
        check=True,
    )


def test_an_environment_without_executorch_is_refused_with_the_command_that_mends_it(
    environment: Path, tiny_stack: Stack
) -> None:
    with pytest.raises(SubjectError, match="there is no executorch in the environment") as caught:
        adopt(str(environment), replace(tiny_stack, requires=("torch==2.13.0",)))
    assert caught.value.exit_code == ExitCode.SUBJECT
    assert "executorch==9.9.9 torch==2.13.0" in caught.value.mend


def test_what_is_not_there_or_no_python_is_refused(tmp_path: Path, tiny_stack: Stack) -> None:
    with pytest.raises(SubjectError, match="there is no environment at"):
        adopt(str(tmp_path / "nowhere"), tiny_stack)
    with pytest.raises(SubjectError, match="is a folder without a Python in it"):
        adopt(str(tmp_path), tiny_stack)
    text = tmp_path / "text"
    text.write_text("no program")
    with pytest.raises(SubjectError, match="cannot be run"):
        adopt(str(text), tiny_stack)
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexit 0\n")
    silent.chmod(0o755)
    with pytest.raises(SubjectError, match="no readable answer"):
        adopt(str(silent), tiny_stack)


@pytest.mark.parametrize("name", ["", "bin/python"])
def test_folder_and_executable_name_the_same_environment(
    own_cache: Path, environment: Path, tiny_stack: Stack, make_wheel: WheelMaker, name: str
) -> None:
    install(environment, make_wheel())
    subject = adopt(str(environment / name), tiny_stack)
    assert subject.python == environment / "bin" / "python"
    assert not subject.managed
    assert subject.contents.executorch == "9.9.9"
    assert subject.notes == ()
    assert not own_cache.exists()


def test_current_is_the_active_environment(
    environment: Path, tiny_stack: Stack, make_wheel: WheelMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(environment, make_wheel())
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setenv("CONDA_PREFIX", str(environment))
    assert adopt("current", tiny_stack).python == environment / "bin" / "python"
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    with pytest.raises(SubjectError, match="there is no executorch"):
        adopt("current", tiny_stack)
    monkeypatch.delenv("VIRTUAL_ENV")
    monkeypatch.delenv("CONDA_PREFIX")
    with pytest.raises(SubjectError) as caught:
        adopt("current", tiny_stack)
    assert sys.prefix in caught.value.message


def test_what_differs_from_the_stack_is_noted(
    environment: Path, tiny_stack: Stack, make_wheel: WheelMaker
) -> None:
    install(
        environment,
        make_wheel(version="9.9.8"),
        make_wheel("torch", "2.14.1"),
        make_wheel("torchvision", "0.28.0+cpu"),
        make_wheel("numpy", "2.4"),
    )
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "executorch" / "__init__.py").unlink()
    pins = ("torch==2.13.0", "torchvision==0.28.0", "onnxruntime-qnn==2.5.0", "numpy>=2.3")
    stack = replace(tiny_stack, requires=pins, pythons=("3.99",), platforms=("plan9-vax",))
    notes = adopt(str(environment), stack).notes
    assert notes[:4] == (
        "executorch 9.9.8, the stack names 9.9.9",
        "torch 2.14.1, the stack names 2.13.0",
        "torchvision 0.28.0+cpu, the stack names 0.28.0",
        "onnxruntime-qnn is missing, the stack names 2.5.0",
    )
    assert notes[4].startswith("Python 3.")
    assert notes[5].endswith("the stack names plan9-vax")
    assert notes[6:] == ("files of executorch differ from its wheel: executorch/__init__.py",)


def test_the_folder_for_links_lies_outside_of_the_users_environment(
    own_cache: Path, environment: Path, tiny_stack: Stack, make_wheel: WheelMaker
) -> None:
    install(environment, make_wheel())
    before = sorted(environment.rglob("*"))
    stack = replace(
        tiny_stack,
        links={"{folder}/lib": "{site}/executorch/*.py", "{folder}/no": "{site}/absent/*.so"},
        env={"SDK": "{folder}"},
    )
    subject = adopt(str(environment), stack)
    folder = Path(subject.env["SDK"])
    assert folder.is_relative_to(own_cache / "adopted")
    assert [path.name for path in (folder / "lib").iterdir()] == ["__init__.py"]
    assert subject.notes == ("it holds no absent/*.so",)
    assert sorted(environment.rglob("*")) == before


def test_the_environment_is_taken_with_the_users_own_settings(
    environment: Path, tiny_stack: Stack, make_wheel: WheelMaker, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    elsewhere = tmp_path / "elsewhere"
    subprocess.run(
        [find_uv_bin(), "pip", "install", "-q", "--offline", "-p", environment / "bin" / "python",
         "--target", elsewhere, make_wheel()],
        check=True,
    )  # fmt: skip
    monkeypatch.setenv("PYTHONPATH", str(elsewhere))
    assert adopt(str(environment), tiny_stack).contents.executorch == "9.9.9"


def test_an_editable_executorch_is_noted(
    environment: Path, tiny_stack: Stack, make_wheel: WheelMaker
) -> None:
    install(environment, make_wheel())
    (site,) = environment.glob("lib/python*/site-packages")
    direct = site / "executorch-9.9.9.dist-info" / "direct_url.json"
    direct.write_text('{"url": "file:///src", "dir_info": {"editable": true}}')
    assert "editable" in adopt(str(environment), tiny_stack).notes[0]


def test_the_mend_of_a_missing_library_is_the_systems_not_pips(
    environment: Path, own_cache: Path, tiny_stack: Stack, make_wheel: WheelMaker
) -> None:
    install(environment, make_wheel())
    subject = adopt(str(environment), replace(tiny_stack, requires=("absent==1.0",)))
    qnn = all_flows()["qnn_fp16"]
    assert "libatomic1" in mend(subject, qnn, "the system lacks libatomic.so.1: no such file")
    said = mend(subject, qnn, "import onnxruntime_qnn: ModuleNotFoundError")
    assert said.endswith("absent==1.0")
    assert f"uv pip install --python {shlex.quote(str(subject.python))}" in said


def test_a_subject_of_edgeproofs_own_is_not_to_be_changed(
    environment: Path, own_cache: Path, tiny_stack: Stack, make_wheel: WheelMaker
) -> None:
    install(environment, make_wheel())
    subject = adopt(str(environment), replace(tiny_stack, requires=("absent==1.0",)))
    inside = replace(subject, python=own_cache / "subjects" / "base-1" / "bin" / "python")
    said = mend(inside, all_flows()["qnn_fp16"], "import onnxruntime_qnn: ModuleNotFoundError")
    assert "install" not in said
    assert "edgeproof subjects make tiny" in said
