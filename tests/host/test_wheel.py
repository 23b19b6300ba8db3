from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

from edgeproof.errors import ExitCode, SubjectError, UsageError
from edgeproof.host.interpreters import Interpreter, described
from edgeproof.host.wheel import ExecutorchChoice, parse_choice
from edgeproof.plan.stack import known_releases
from tests.conftest import WheelMaker


@pytest.fixture
def here() -> Interpreter:
    return described(Path(sys.executable))


def test_without_a_choice_the_newest_known_release_is_meant() -> None:
    assert parse_choice(None) == ExecutorchChoice(version=known_releases()[0])


def test_a_version_is_taken_as_a_requirement() -> None:
    assert parse_choice("1.5.1").requirement == "executorch==1.5.1"


def test_a_wheel_of_a_nightly_gets_the_stacks_of_the_nearest_release(
    make_wheel: WheelMaker,
) -> None:
    choice = parse_choice(str(make_wheel(version="99.0.0.dev20300101")))
    assert choice.stacks()["base"].executorch == known_releases()[0]


def test_a_version_without_stacks_is_wrong_use() -> None:
    """Not proved in those of another release without a word."""
    with pytest.raises(UsageError, match=r"no stacks are known for executorch 0\.3\.0") as caught:
        parse_choice("0.3.0").stacks()
    assert known_releases()[0] in caught.value.mend


def test_a_wheel_file_is_known_by_version_and_hash(
    make_wheel: WheelMaker, here: Interpreter
) -> None:
    path = make_wheel(folder=None)
    choice = parse_choice(str(path))
    assert choice.version == "9.9.9"
    assert choice.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    choice.require_fit(here)


def test_a_relative_wheel_file_is_found(
    make_wheel: WheelMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_wheel()
    monkeypatch.chdir(path.parent)
    assert parse_choice(path.name).wheel == path


def test_a_missing_file_is_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file") as caught:
        parse_choice(str(tmp_path / "executorch-9.9.9-py3-none-any.whl"))
    assert caught.value.exit_code == ExitCode.USAGE


def test_a_folder_is_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a file"):
        parse_choice(f"{tmp_path}/")


@pytest.mark.parametrize("text", ["latest", "1.5.x", ""])
def test_what_is_no_version_is_wrong_use(text: str) -> None:
    with pytest.raises(UsageError, match="neither a version of executorch nor a wheel file"):
        parse_choice(text)


def test_the_wheel_of_another_project_is_wrong_use(make_wheel: WheelMaker) -> None:
    with pytest.raises(UsageError, match="is a wheel of torch, not of executorch"):
        parse_choice(str(make_wheel("torch")))


def test_another_project_under_the_name_of_executorch_is_wrong_use(make_wheel: WheelMaker) -> None:
    with pytest.raises(UsageError, match="is a wheel of impostor, not of executorch"):
        parse_choice(str(make_wheel(project="impostor")))


def test_a_renamed_wheel_is_wrong_use(make_wheel: WheelMaker) -> None:
    path = make_wheel()
    with pytest.raises(UsageError, match="is not the name of a wheel"):
        parse_choice(str(path.rename(path.with_name("executorch.whl"))))


def test_a_wheel_of_another_version_than_its_name_is_refused(make_wheel: WheelMaker) -> None:
    path = make_wheel()
    with pytest.raises(
        SubjectError, match=r"holds executorch 9\.9\.9, not the 9\.9\.8 of its name"
    ):
        parse_choice(str(path.rename(path.with_name("executorch-9.9.8-py3-none-any.whl"))))


def test_a_wheel_for_another_platform_is_refused(make_wheel: WheelMaker, here: Interpreter) -> None:
    other = "macosx_14_0_arm64" if sys.platform == "win32" else "win_amd64"
    short = f"cp{sys.version_info.major}{sys.version_info.minor}"
    path = make_wheel(tag=f"{short}-{short}-{other}")
    with pytest.raises(SubjectError, match=f"is for {other}, this machine is") as caught:
        parse_choice(str(path)).require_fit(here)
    assert caught.value.exit_code == ExitCode.SUBJECT


def test_a_wheel_for_another_python_is_refused(make_wheel: WheelMaker, here: Interpreter) -> None:
    path = make_wheel(tag="cp39-none-any")
    with pytest.raises(SubjectError, match="is for cp39, the subject's Python is 3") as caught:
        parse_choice(str(path)).require_fit(here)
    assert "--python" in caught.value.mend


def test_a_truncated_wheel_is_refused(make_wheel: WheelMaker) -> None:
    path = make_wheel()
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(SubjectError, match="corrupt or truncated") as caught:
        parse_choice(str(path))
    assert "again" in caught.value.mend


def test_a_flipped_byte_in_any_file_is_seen(make_wheel: WheelMaker) -> None:
    text = "".join(f"line {number}\n" for number in range(200))
    path = make_wheel(files={"executorch/__init__.py": text})
    whole = path.read_bytes()
    start = whole.index(b"executorch/__init__.py") + len("executorch/__init__.py")
    for offset in range(start, start + 400, 7):
        damaged = bytearray(whole)
        damaged[offset] ^= 0xFF
        path.write_bytes(damaged)
        with pytest.raises(SubjectError, match="corrupt or truncated"):
            parse_choice(str(path))
