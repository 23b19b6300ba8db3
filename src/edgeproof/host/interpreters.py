"""Finds the Python interpreters that subjects are made from.

A name on ``PATH`` is no proof: version managers leave shims that end in an error. Every candidate
is run before it counts, and asked which interpreter it really is.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from packaging.version import InvalidVersion, Version

from edgeproof.errors import SubjectError, UsageError
from edgeproof.host.uv import UvFailed, run_uv

_ASK = """
import json, platform, sys, sysconfig
base = getattr(sys, "_base_executable", None) or sys.executable
print(json.dumps({
    "executable": base, "version": platform.python_version(),
    "implementation": sys.implementation.name,
    "gil": not sysconfig.get_config_var("Py_GIL_DISABLED"),
    "platform": f"{platform.system()}-{platform.machine()}".lower(),
}))
"""


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """An interpreter that answered: its base executable, not that of an environment."""

    path: Path
    version: str
    platform: str
    standard: bool

    @property
    def minor(self) -> str:
        """``3.11`` of ``3.11.7``."""
        return minor_of(self.version)


def minor_of(version: str) -> str:
    """``3.11`` of ``3.11.7``."""
    return ".".join(version.split(".")[:2])


@functools.cache
def ask(python: Path) -> Interpreter | None:
    """Run ``python`` and let it say what it is; ``None`` when it does not run or answer."""
    try:
        done = subprocess.run(
            [str(python), "-I", "-c", _ASK],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        answer = json.loads(done.stdout.strip().splitlines()[-1]) if done.returncode == 0 else None
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None
    if not isinstance(answer, dict):
        return None
    base = Path(answer["executable"])
    return Interpreter(
        path=base if base.exists() else python,
        version=answer["version"],
        platform=answer["platform"],
        # The wheels of the stacks are built for the standard CPython with its GIL.
        standard=answer["implementation"] == "cpython" and bool(answer["gil"]),
    )


def described(python: Path) -> Interpreter:
    """The same, where an interpreter that does not answer is an error."""
    interpreter = ask(python)
    if interpreter is None:
        raise SubjectError(
            f"{python} does not run as a Python",
            mend="name a working interpreter, or let edgeproof find one (leave the version out)",
        )
    return interpreter


def find_python(version: str | None, supported: tuple[str, ...], *, install: bool = True) -> Path:
    """The interpreter to make a subject from.

    ``version`` is a minor version such as ``3.12``. Without it: the version that runs edgeproof if
    ``supported``, else the newest supported one that is found. The last resort is ``uv python
    install``, which needs the network, unless ``install`` is false. Raises ``UsageError`` for a version
    that is not supported and ``SubjectError`` when none is found or can be installed.
    """
    newest_first = sorted(supported, key=Version, reverse=True)
    if version is not None:
        if version not in supported:
            raise UsageError(
                f"Python {version} is not supported by this stack",
                mend=f"choose one of: {', '.join(sorted(supported, key=Version))}",
            )
        wanted = [version]
    else:
        own = minor_of(sys.version.split()[0])
        wanted = [own, *(v for v in newest_first if v != own)] if own in supported else newest_first
    for minor in wanted:
        for candidate in _candidates(minor):
            found = ask(candidate)
            if found is not None and found.minor == minor and found.standard:
                return found.path
    return _install(wanted[0]) if install else _none_found(wanted[0])


def _candidates(minor: str) -> Iterator[Path]:
    """Where an interpreter of ``minor`` may be; the cheapest to look at first."""
    if minor_of(sys.version.split()[0]) == minor:
        yield Path(getattr(sys, "_base_executable", None) or sys.executable)
    name = f"python{minor}.exe" if os.name == "nt" else f"python{minor}"
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if folder and (path := Path(folder) / name).is_file():
            yield path
    pyenv = os.environ.get("PYENV_ROOT")
    versions = (Path(pyenv) if pyenv else Path.home() / ".pyenv") / "versions"
    for folder_path in sorted(versions.glob(f"{minor}.*"), key=_patch, reverse=True):
        path = folder_path / "bin" / name
        if path.is_file():
            yield path
    found = _uv_find(minor)
    if found is not None:
        yield found


def _patch(folder: Path) -> Version:
    try:
        return Version(folder.name)
    except InvalidVersion:  # 3.13.0t, 3.12-dev
        return Version("0")


def _uv_find(minor: str) -> Path | None:
    try:
        lines = run_uv(["python", "find", "--no-python-downloads", "--system", minor])
    except UvFailed:
        return None
    paths = [Path(line.strip()) for line in lines if line.strip()]
    return next((path for path in reversed(paths) if path.is_file()), None)


def _install(minor: str) -> Path:
    reason = ""
    try:
        run_uv(["python", "install", minor])
        found = _uv_find(minor)
        if found is not None and (interpreter := ask(found)) is not None:
            return interpreter.path
    except UvFailed as failed:
        reason = f", and uv could not download one ({failed.cause()})"
    return _none_found(minor, reason)


def _none_found(minor: str, reason: str = "") -> NoReturn:
    raise SubjectError(
        f"no working Python {minor} was found on this machine{reason}",
        mend=f"install Python {minor} so that python{minor} is on PATH, or, with network access, "
        f"run: uv python install {minor}",
    )
