"""Managed subjects, with real uv, real environments and tiny real wheels."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock
from uv import find_uv_bin

from edgeproof.errors import ExitCode, SubjectError, UsageError
from edgeproof.host import subjects
from edgeproof.host.interpreters import find_python
from edgeproof.host.wheel import ExecutorchChoice, parse_choice
from edgeproof.plan.stack import Stack
from edgeproof.plan.subject import Subject
from tests.conftest import WheelMaker

PREPARE = """
import sys
from pathlib import Path
from edgeproof.host import subjects
from edgeproof.host.interpreters import find_python
from edgeproof.host.wheel import parse_choice
from edgeproof.plan.stack import Stack
stack = Stack(name="tiny", executorch="9.9.9", requires=(), pythons=("3.11", "3.12", "3.13"),
              platforms=("linux-x86_64", "linux-aarch64", "darwin-arm64", "windows-amd64"))
subject = subjects.prepare(stack, parse_choice(sys.argv[1]), find_python(None, stack.pythons),
                           on_progress=lambda line: print(line, flush=True))
print("subject", subject.python, flush=True)
"""


@pytest.fixture
def python(tiny_stack: Stack) -> Path:
    return find_python(None, tiny_stack.pythons)


@pytest.fixture
def choice(make_wheel: WheelMaker) -> ExecutorchChoice:
    return parse_choice(str(make_wheel()))


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny wheels need no registry: a test that asks one is a slow test."""
    monkeypatch.setenv("UV_OFFLINE", "1")


def prepared(
    stack: Stack, choice: ExecutorchChoice, python: Path, said: list[str] | None = None
) -> Subject:
    return subjects.prepare(
        stack, choice, python, on_progress=(said if said is not None else []).append
    )


def there_is(stack: Stack, choice: ExecutorchChoice, python: Path) -> Subject:
    """As ``doctor`` and ``subjects path`` look: nothing may be made."""
    return subjects.prepare(stack, choice, python, on_progress=pytest.fail, build=False)


def left_over(cache: Path) -> list[str]:
    """What is in the subjects folder beside subjects, the lock and the requests."""
    folder = cache / "subjects"
    if not folder.exists():
        return []
    whole = {".lock", ".requests"}
    return [p.name for p in folder.iterdir() if p.name not in whole and p.name.startswith(".")]


def test_a_subject_runs_and_holds_exactly_its_executorch(
    own_cache: Path, tiny_stack: Stack, choice: ExecutorchChoice, python: Path
) -> None:
    subject = prepared(tiny_stack, choice, python)
    said = subprocess.run(
        [subject.python, "-I", "-c", "import executorch; print(executorch.version)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == "9.9.9"
    assert subject.managed
    assert subject.contents.packages == {"executorch": "9.9.9"}
    assert subject.contents.wheel_sha256 == choice.sha256
    assert subject.id == f"tiny/executorch-9.9.9/py3.{sys.version_info.minor}"
    assert subject.python.is_relative_to(own_cache)
    manifest = json.loads((subject.python.parent.parent / "subject.json").read_text())
    assert manifest["packages"] == [
        {"name": "executorch", "version": "9.9.9", "sha256": [choice.sha256]}
    ]
    assert left_over(own_cache) == []


def test_what_the_machine_is_comes_with_the_contents(
    own_cache: Path, tiny_stack: Stack, choice: ExecutorchChoice, python: Path
) -> None:
    contents = prepared(tiny_stack, choice, python).contents
    assert contents.python.startswith(f"{sys.version_info.major}.{sys.version_info.minor}.")
    assert (contents.implementation, contents.changed_files) == ("CPython", ())
    assert contents.cpus >= 1
    assert contents.cpu
    assert contents.os
    if sys.platform == "linux":
        assert contents.memory_bytes > 1 << 28
        assert contents.cpu_flags
        assert contents.system == "Linux"
    json.dumps(contents.to_json())


def test_the_second_time_nothing_is_built(
    own_cache: Path, tiny_stack: Stack, choice: ExecutorchChoice, python: Path
) -> None:
    said: list[str] = []
    first = prepared(tiny_stack, choice, python, said)
    assert any("installing 1 package" in line for line in said)
    said.clear()
    began = time.monotonic()
    assert prepared(tiny_stack, choice, python, said) == first
    assert time.monotonic() - began < 1.5
    assert said == []


def test_another_build_of_the_same_version_is_another_subject(
    own_cache: Path, tiny_stack: Stack, choice: ExecutorchChoice, python: Path,
    make_wheel: WheelMaker,
) -> None:  # fmt: skip
    first = prepared(tiny_stack, choice, python)
    other = parse_choice(str(make_wheel(files={"executorch/__init__.py": "version = 'other'\n"})))
    second = prepared(tiny_stack, other, python)
    assert second.contents.wheel_sha256 == other.sha256
    assert second.python != first.python
    assert len(subjects.listing()) == 2


def test_looking_finds_what_a_run_would_use_and_makes_nothing(
    own_cache: Path, tiny_stack: Stack, choice: ExecutorchChoice, python: Path,
    make_wheel: WheelMaker,
) -> None:  # fmt: skip
    with pytest.raises(SubjectError, match=r"no subject of stack tiny with executorch 9\.9\.9 on"):
        there_is(tiny_stack, choice, python)
    assert not own_cache.exists()
    first = prepared(tiny_stack, choice, python)
    assert there_is(tiny_stack, choice, python) == first
    folder = make_wheel(files={"executorch/__init__.py": "version = 'other'\n"}).parent
    other = parse_choice(str(next(folder.glob("*.whl"))))
    # The same version and Python, but another wheel, and then other pins: not what such a run uses.
    for stack, asked in ((tiny_stack, other), (replace(tiny_stack, requires=("x==1",)), choice)):
        with pytest.raises(SubjectError) as caught:
            there_is(stack, asked, python)
        assert caught.value.mend == f"edgeproof subjects make tiny --executorch {asked.wheel}"
    assert len(subjects.listing()) == 1


def test_a_wheel_in_the_stack_of_another_release_is_noted(
    own_cache: Path, tiny_stack: Stack, choice: ExecutorchChoice, python: Path
) -> None:
    assert prepared(tiny_stack, choice, python).notes == ()
    nearest = replace(tiny_stack, executorch="9.9.8")
    assert prepared(nearest, choice, python).notes == (
        "executorch 9.9.9 has no stack of its own: the packages are those of 9.9.8",
    )


def test_two_processes_at_once_share_one_build(own_cache: Path, choice: ExecutorchChoice) -> None:
    assert choice.wheel is not None
    running = [
        subprocess.Popen(
            [sys.executable, "-c", PREPARE, str(choice.wheel)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert len({output.splitlines()[-1] for output in outputs}) == 1
    assert sum("installing" in output for output in outputs) == 1
    assert len(subjects.listing()) == 1


def test_who_waits_for_another_build_says_so(
    own_cache: Path, choice: ExecutorchChoice, tmp_path: Path
) -> None:
    (own_cache / "subjects").mkdir(parents=True)
    with FileLock(own_cache / "subjects" / ".lock"):
        process = subprocess.Popen(
            [sys.executable, "-c", PREPARE, str(choice.wheel)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        line = process.stdout.readline()
    assert "waiting for another edgeproof" in line
    with process.stdout:
        assert process.stdout.read().splitlines()[-1].startswith("subject ")
    assert process.wait() == 0


@pytest.mark.parametrize("step", ["resolving", "installing", "checking"])
def test_a_killed_build_leaves_nothing_that_counts(
    own_cache: Path, tiny_stack: Stack, choice: ExecutorchChoice, python: Path, step: str
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PREPARE, str(choice.wheel)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            if step in line:
                process.send_signal(signal.SIGKILL)
                break
    assert process.wait() == -signal.SIGKILL
    assert left_over(own_cache), "the build was to be killed in the middle"
    assert subjects.listing() == ()
    with pytest.raises(SubjectError, match="no subject of stack tiny"):
        there_is(tiny_stack, choice, python)
    subject = prepared(tiny_stack, choice, python)
    assert subject.contents.executorch == "9.9.9"
    assert left_over(own_cache) == []


def test_an_extra_package_is_refused(
    own_cache: Path, tiny_stack: Stack, choice: ExecutorchChoice, python: Path,
    make_wheel: WheelMaker,
) -> None:  # fmt: skip
    subject = prepared(tiny_stack, choice, python)
    extra = make_wheel("intruder", "1.0")
    subprocess.run(
        [find_uv_bin(), "pip", "install", "-q", "--python", subject.python, extra], check=True
    )
    with pytest.raises(
        SubjectError, match=r"does not hold what its stack names: intruder 1\.0 is not of the stack"
    ) as caught:
        prepared(tiny_stack, choice, python)
    assert caught.value.mend == "edgeproof subjects remove tiny"
    assert [listed.state for listed in subjects.listing()] == ["broken"]


@pytest.mark.parametrize("how", ["edited", "removed"])
def test_a_changed_file_of_executorch_is_refused_until_it_is_made_again(
    own_cache: Path, tiny_stack: Stack, choice: ExecutorchChoice, python: Path, how: str
) -> None:
    subject = prepared(tiny_stack, choice, python)
    file = Path(subject.contents.site) / "executorch" / "__init__.py"
    if how == "edited":  # in place: uv's cache must not share the file
        with file.open("a") as stream:
            stream.write("# patched\n")
    else:
        file.unlink()
    with pytest.raises(
        SubjectError, match=r"files of executorch differ from its wheel: executorch/__init__\.py"
    ):
        prepared(tiny_stack, choice, python)
    assert subjects.remove("tiny") == (subject.python.parent.parent,)
    assert subjects.listing() == ()
    assert prepared(tiny_stack, choice, python).contents.changed_files == ()


def test_a_wheel_that_does_not_hold_to_its_own_record_is_not_used(
    own_cache: Path, tiny_stack: Stack, python: Path, make_wheel: WheelMaker, tmp_path: Path
) -> None:
    path = make_wheel()
    wrong = tmp_path / "wrong" / path.name
    wrong.parent.mkdir()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(wrong, "w") as new:
        for name in old.namelist():
            text = old.read(name)
            new.writestr(name, text + b"# more\n" if name.endswith("__init__.py") else text)
    with pytest.raises(SubjectError, match="executorch") as caught:
        prepared(tiny_stack, parse_choice(str(wrong)), python)
    assert caught.value.exit_code == ExitCode.SUBJECT
    assert subjects.listing() == ()


def test_a_wheel_that_changes_while_it_is_used_is_refused(
    own_cache: Path, tiny_stack: Stack, choice: ExecutorchChoice, python: Path,
    make_wheel: WheelMaker,
) -> None:  # fmt: skip
    make_wheel(files={"executorch/__init__.py": "version = 'written over'\n"})
    with pytest.raises(SubjectError, match="is not what was resolved"):
        prepared(tiny_stack, choice, python)
    assert subjects.listing() == ()


@pytest.mark.parametrize("kind", ["wheel file", "released version"])
def test_a_wheel_that_changes_between_resolve_and_install_is_refused(
    own_cache: Path, tiny_stack: Stack, python: Path, make_wheel: WheelMaker, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, kind: str,
) -> None:  # fmt: skip
    path = make_wheel()
    monkeypatch.setenv("UV_FIND_LINKS", str(path.parent))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))

    def swap(line: str) -> None:
        if "installing" in line:
            shutil.rmtree(tmp_path / "uv")  # else uv takes the right wheel from its cache
            make_wheel(files={"executorch/__init__.py": "version = 'swapped'\n"})

    choice = parse_choice(str(path) if kind == "wheel file" else "9.9.9")
    with pytest.raises(SubjectError, match="its hash differs"):
        subjects.prepare(tiny_stack, choice, python, on_progress=swap)
    assert subjects.listing() == ()


def test_a_released_version_comes_from_the_registry_the_user_set(
    own_cache: Path, tiny_stack: Stack, python: Path, make_wheel: WheelMaker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    folder = make_wheel(requires=("companion>=1",)).parent
    make_wheel("companion", "1.5")
    make_wheel("companion", "2.0b1")
    monkeypatch.setenv("UV_FIND_LINKS", folder.name)  # relative, as in a CI file
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_PRERELEASE", "allow")  # would change what the stack is
    monkeypatch.chdir(folder.parent)
    subject = prepared(tiny_stack, parse_choice("9.9.9"), python)
    assert subject.contents.packages == {"executorch": "9.9.9", "companion": "1.5"}
    assert subject.contents.wheel_sha256 is not None
    shutil.rmtree(folder)
    assert prepared(tiny_stack, parse_choice("9.9.9"), python) == subject


def test_a_project_around_the_user_takes_no_part(
    own_cache: Path, tiny_stack: Stack, choice: ExecutorchChoice, python: Path,
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    project = '[tool.uv]\noverride-dependencies = ["executorch==1.0"]\n'
    (tmp_path / "pyproject.toml").write_text(project)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "none"))
    assert prepared(tiny_stack, choice, python).contents.executorch == "9.9.9"


def test_pins_that_contradict_are_told(
    own_cache: Path, tiny_stack: Stack, python: Path, make_wheel: WheelMaker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    folder = make_wheel(requires=("companion>=2",)).parent
    make_wheel("companion", "1.5")
    make_wheel("companion", "2.0")
    monkeypatch.setenv("UV_FIND_LINKS", str(folder))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.delenv("UV_OFFLINE")
    with pytest.raises(SubjectError, match="tiny: the packages asked for contradict each other"):
        prepared(replace(tiny_stack, requires=("companion==1.5",)), parse_choice("9.9.9"), python)
    with pytest.raises(SubjectError, match=r"the registry does not have it: .*companion"):
        prepared(replace(tiny_stack, requires=("companion==3.5",)), parse_choice("9.9.9"), python)


def test_a_version_without_a_wheel_for_this_machine_is_told(
    own_cache: Path, tiny_stack: Stack, python: Path, make_wheel: WheelMaker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("UV_FIND_LINKS", str(make_wheel(tag="cp39-cp39-win32").parent))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.delenv("UV_OFFLINE")
    with pytest.raises(SubjectError, match="no wheel for this platform and Python") as caught:
        prepared(tiny_stack, parse_choice("9.9.9"), python)
    assert "--python" in caught.value.mend


def test_no_network_is_told_without_the_address_of_the_registry(
    own_cache: Path, tiny_stack: Stack, python: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.delenv("UV_OFFLINE")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "empty"))
    began = time.monotonic()
    with pytest.raises(SubjectError, match="package registry cannot be reached") as caught:
        prepared(tiny_stack, parse_choice("1.5.1"), python)
    assert time.monotonic() - began < 30
    assert "network" in caught.value.mend
    assert "127.0.0.1" not in caught.value.message
    assert left_over(own_cache) == []


def test_offline_with_an_empty_cache_is_told(
    own_cache: Path, tiny_stack: Stack, python: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "empty"))
    with pytest.raises(SubjectError, match="uv is set to work offline") as caught:
        prepared(tiny_stack, parse_choice("1.5.1"), python)
    assert "UV_OFFLINE" in caught.value.mend


def test_a_full_disk_is_told_and_leaves_nothing_half_made(
    own_cache: Path, tiny_stack: Stack, choice: ExecutorchChoice, python: Path,
    make_wheel: WheelMaker,
) -> None:  # fmt: skip
    own_cache.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(own_cache)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("a small file system needs root and mount")
    try:
        # Kilobytes as a download, too much unpacked.
        big = make_wheel(version="9.9.10", files={"executorch/big.py": "x = 1\n" * 1_000_000})
        with pytest.raises(SubjectError, match="the disk is full") as caught:
            prepared(tiny_stack, parse_choice(str(big)), python)
        assert "No space left on device" in caught.value.message
        assert str(own_cache) in caught.value.message
        assert "EDGEPROOF_CACHE_DIR" in caught.value.mend
        assert left_over(own_cache) == []
        assert subjects.listing() == ()
        assert prepared(tiny_stack, choice, python).contents.executorch == "9.9.9"
        # Not even room for a folder or a file of our own.
        subjects.remove("all")
        with (own_cache / "fill").open("wb") as fill, suppress(OSError):
            while os.write(fill.fileno(), bytes(4096)):
                pass
        with pytest.raises(SubjectError, match="the disk is full"):
            prepared(tiny_stack, choice, python)
        assert left_over(own_cache) == []
    finally:
        subprocess.run(["umount", str(own_cache)], check=True)


def test_a_cache_folder_that_cannot_be_written_is_told(
    tiny_stack: Stack, choice: ExecutorchChoice, python: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EDGEPROOF_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(SubjectError, match="cannot write to the cache folder") as caught:
        prepared(tiny_stack, choice, python)
    assert "EDGEPROOF_CACHE_DIR" in caught.value.mend


def test_a_stack_for_other_machines_or_pythons_is_refused(
    own_cache: Path, tiny_stack: Stack, choice: ExecutorchChoice, python: Path
) -> None:
    with pytest.raises(SubjectError, match="stack tiny is not for ") as caught:
        prepared(replace(tiny_stack, platforms=("plan9-vax",)), choice, python)
    assert "plan9-vax" in caught.value.mend
    with pytest.raises(SubjectError, match=r"stack tiny is not for Python 3\."):
        prepared(replace(tiny_stack, pythons=("3.99",)), choice, python)
    assert not own_cache.exists()


def test_listing_and_removal(
    own_cache: Path, tiny_stack: Stack, choice: ExecutorchChoice, python: Path
) -> None:
    assert subjects.listing() == ()
    assert not own_cache.exists(), "looking makes nothing"
    subject = prepared(tiny_stack, choice, python)
    (listed,) = subjects.listing()
    assert (listed.stack, listed.executorch, listed.state) == ("tiny", "9.9.9", "ok")
    assert listed.python == subject.contents.python
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", listed.made)
    assert listed.size_bytes > 1000
    with pytest.raises(UsageError, match="there is no stack 'tinny'"):
        subjects.remove("tinny")
    assert subjects.remove("base") == ()
    assert subjects.remove("all") == (listed.path,)
    assert subjects.listing() == ()
    assert left_over(own_cache) == []


def test_a_subject_whose_interpreter_is_gone_is_refused_with_the_way_out(
    own_cache: Path, tiny_stack: Stack, choice: ExecutorchChoice, python: Path
) -> None:
    subject = prepared(tiny_stack, choice, python)
    subject.python.unlink()
    subject.python.symlink_to("/nowhere/python")
    with pytest.raises(SubjectError, match="there is no Python at") as caught:
        prepared(tiny_stack, choice, python)
    assert caught.value.mend == "edgeproof subjects remove tiny"


def test_links_and_variables_of_the_stack_surround_the_subject(
    own_cache: Path, tiny_stack: Stack, python: Path, make_wheel: WheelMaker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    files = {"executorch/__init__.py": "", "executorch/a.so": "a", "executorch/b.so": "b"}
    choice = parse_choice(str(make_wheel(files=files)))
    stack = replace(
        tiny_stack,
        links={"{folder}/lib/here": "{site}/executorch/*.so"},
        env={"SDK_ROOT": "{folder}", "LD_LIBRARY_PATH": "{folder}/lib/here:{site}/x.libs"},
    )
    monkeypatch.setenv("LD_LIBRARY_PATH", "/the/user's")
    subject = prepared(stack, choice, python)
    folder = Path(subject.env["SDK_ROOT"])
    assert folder == subject.python.parent.parent / "edgeproof"
    assert {p.name: p.read_text() for p in (folder / "lib" / "here").iterdir()} == {
        "a.so": "a",
        "b.so": "b",
    }
    assert subject.env["LD_LIBRARY_PATH"] == os.pathsep.join(
        [f"{folder}/lib/here", f"{subject.contents.site}/x.libs", "/the/user's"]
    )
    (folder / "lib" / "here" / "a.so").unlink()
    (folder / "lib" / "here" / "stray.so").write_text("")
    assert prepared(stack, choice, python) == subject
    assert {p.name for p in (folder / "lib" / "here").iterdir()} == {"a.so", "b.so"}
    monkeypatch.delenv("LD_LIBRARY_PATH")
    assert not prepared(stack, choice, python).env["LD_LIBRARY_PATH"].endswith(os.pathsep)


def test_links_to_nothing_are_refused(
    own_cache: Path, tiny_stack: Stack, choice: ExecutorchChoice, python: Path
) -> None:
    stack = replace(tiny_stack, links={"{folder}/lib": "{site}/absent/*.so"})
    with pytest.raises(SubjectError, match=r"the packages of stack tiny hold no absent/\*\.so"):
        prepared(stack, choice, python)


@pytest.mark.subject
def test_the_base_stack_imports_and_is_used_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("UV_OFFLINE")
    choice = parse_choice(None)
    stack = choice.stacks()["base"]
    python = find_python(None, stack.pythons)
    subject = prepared(stack, choice, python)
    for pin in stack.requires:
        name, _, version = pin.partition("==")
        assert subject.contents.packages[name] == version
    subprocess.run(
        [subject.python, "-I", "-c", "import torch, torchvision, executorch.exir"],
        check=True,
        capture_output=True,
    )
    began = time.monotonic()
    assert prepared(stack, choice, python).python == subject.python
    assert time.monotonic() - began < 1.5
