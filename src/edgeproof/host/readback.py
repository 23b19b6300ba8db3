"""Reads back what an environment holds, by running ``inventory.py`` inside it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeproof.errors import SubjectError
from edgeproof.plan.subject import Contents

SCRIPT = Path(__file__).with_name("inventory.py")
TIMEOUT = 120.0


@dataclass(frozen=True, kw_only=True)
class ReadBack:
    """The contents of an environment, and whether its executorch is a checkout under edit."""

    contents: Contents
    editable: bool


def read_back(python: Path, *, isolated: bool, timeout: float = TIMEOUT) -> ReadBack:
    """Ask the environment of ``python`` what it holds.

    ``isolated`` keeps the user's own Python settings out (``PYTHONPATH``, the user's site), as
    managed subjects are run; an environment of the user is taken as found, with them. Raises
    ``SubjectError`` when the interpreter is missing, does not run or does not answer in ``timeout``
    seconds.
    """
    flags = ["-I"] if isolated else []
    try:
        done = subprocess.run(
            [str(python), *flags, str(SCRIPT)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
            check=False,
            env={**os.environ, "PYTHONIOENCODING": "utf-8", "PYTHONDONTWRITEBYTECODE": "1"},
        )
    except FileNotFoundError:
        raise SubjectError(
            f"there is no Python at {python}",
            mend="the interpreter it was made from may be gone; make the environment again",
        ) from None
    except subprocess.TimeoutExpired:
        raise SubjectError(
            f"{python} did not say within {timeout:g} s what it holds",
            mend=f"see whether it starts at all: {python} -I -c pass",
        ) from None
    except OSError as error:
        raise SubjectError(
            f"{python} cannot be run: {error.strerror or error}",
            mend="name the Python executable of an environment of this machine",
        ) from error
    if done.returncode != 0:
        last = "\n".join(done.stderr.strip().splitlines()[-3:]) or f"exit code {done.returncode}"
        raise SubjectError(
            f"{python} could not say what it holds: {last}",
            mend="edgeproof can look into environments of Python 3.10 and newer",
        )
    return _parse(python, done.stdout)


def _parse(python: Path, output: str) -> ReadBack:
    lines = output.strip().splitlines()
    try:
        # Start-up hooks of an environment may print; the answer is the last line.
        answer: dict[str, Any] = json.loads(lines[-1])
        return ReadBack(contents=_contents(answer), editable=bool(answer["editable"]))
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise SubjectError(
            f"{python} gave no readable answer about what it holds: {lines[-1:] or 'nothing'}",
            mend=f"is it a Python? try: {python} -I -c 'import sys; print(sys.version)'",
        ) from error


def _contents(answer: Mapping[str, Any]) -> Contents:
    plain = dict(answer)
    plain.pop("editable")
    plain["wheel_sha256"] = plain.pop("recorded_sha256")
    for name in ("cpu_flags", "changed_files"):
        plain[name] = tuple(plain[name])
    return Contents(**plain)
