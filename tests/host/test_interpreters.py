from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from edgeproof.errors import SubjectError, UsageError
from edgeproof.host.interpreters import ask, described, find_python

OWN = f"{sys.version_info.major}.{sys.version_info.minor}"


def test_the_python_that_runs_edgeproof_is_the_default() -> None:
    found = find_python(None, (OWN,))
    said = subprocess.run(
        [found, "-c", "import sys; print(sys.prefix == sys.base_prefix, *sys.version_info[:2])"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert said == ["True", str(sys.version_info.major), str(sys.version_info.minor)]


def test_an_unsupported_version_is_wrong_use_and_names_the_choices() -> None:
    with pytest.raises(UsageError, match=r"3\.9 is not supported") as caught:
        find_python("3.9", ("3.11", "3.12"))
    assert "3.11, 3.12" in caught.value.mend


def test_a_broken_shim_on_path_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim = tmp_path / "python3.12"
    shim.write_text("#!/bin/sh\necho 'shim: command not found' >&2\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert ask(shim) is None
    try:
        found = find_python("3.12", ("3.12",))
    except SubjectError as error:
        assert "no working Python 3.12" in error.message  # noqa: PT017 - a machine without it
    else:
        assert found != shim


def test_none_to_be_found_and_none_to_download_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    with pytest.raises(SubjectError, match=r"no working Python 3\.99 was found") as caught:
        find_python("3.99", ("3.99",))
    assert "uv python install 3.99" in caught.value.mend


def test_what_is_no_python_is_told(tmp_path: Path) -> None:
    text = tmp_path / "python"
    text.write_text("no program")
    text.chmod(0o755)
    with pytest.raises(SubjectError, match="does not run as a Python"):
        described(text)
