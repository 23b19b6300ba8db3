"""What ``--executorch VERSION|WHEEL_FILE`` names, checked before anything is made from it."""

from __future__ import annotations

import hashlib
import os
import re
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from edgeproof.errors import SubjectError, UsageError
from edgeproof.given import given_path
from edgeproof.host.interpreters import Interpreter
from edgeproof.plan.stack import Stack, known_releases, stacks_for

PROJECT = "executorch"


@dataclass(frozen=True, kw_only=True)
class ExecutorchChoice:
    """The executorch under test: a released version, or a wheel file with its SHA-256."""

    version: str
    wheel: Path | None = None
    sha256: str | None = None

    @property
    def requirement(self) -> str:
        """The same as pip and uv spell it."""
        if self.wheel is None:
            return f"{PROJECT}=={self.version}"
        return f"{PROJECT} @ {self.wheel.as_uri()}"

    def stacks(self) -> dict[str, Stack]:
        """The stacks to test it in: its own, and for a wheel file else those of the nearest release.

        Raises ``UsageError`` for a released version that has none.
        """
        return stacks_for(self.version, nearest=self.wheel is not None)

    def require_fit(self, interpreter: Interpreter) -> None:
        """Refuse a wheel file that was built for another Python or platform.

        Raises ``SubjectError``; a released version is left to uv, which knows all of its wheels.
        """
        if self.wheel is None:
            return
        tags = parse_wheel_filename(self.wheel.name)[3]
        if best(tags, interpreter) is not None:
            return
        platforms = {tag.platform for tag in supported_tags(interpreter)}
        if any(tag.platform in platforms for tag in tags):
            raise SubjectError(
                f"{self.wheel.name} is for {_spell({t.interpreter for t in tags})}, "
                f"the subject's Python is {interpreter.minor}",
                mend="choose the Python it was built for with --python, or another wheel",
            )
        raise SubjectError(
            f"{self.wheel.name} is for {_spell({t.platform for t in tags})}, "
            f"this machine is {interpreter.platform}",
            mend="take the wheel that was built for this platform",
        )


def supported_tags(interpreter: Interpreter) -> list[Tag]:
    """The wheel tags ``interpreter`` takes on this machine, best first.

    Told from its version alone: it is not the Python that runs edgeproof, and has no ``packaging``.
    """
    major, minor = (int(part) for part in interpreter.minor.split("."))
    short = f"cp{major}{minor}"
    return [
        *cpython_tags((major, minor), abis=[short]),
        *compatible_tags((major, minor), interpreter=short),
    ]


def best(tags: Iterable[Tag], interpreter: Interpreter) -> int | None:
    """How well a wheel with ``tags`` fits, 0 being best; ``None`` when it does not."""
    ranks = {tag: rank for rank, tag in enumerate(supported_tags(interpreter))}
    fitting = [ranks[tag] for tag in tags if tag in ranks]
    return min(fitting, default=None)


def parse_choice(text: str | None) -> ExecutorchChoice:
    """Read ``VERSION|WHEEL_FILE``; without it, the newest release that has stacks.

    What ends in ``.whl``, has a path separator or is a file is a wheel file, and is read to its
    end: a half-copied wheel would otherwise show up as a strange failure of the backend. Raises
    ``UsageError`` for what is not there, no version or not executorch, and ``SubjectError`` for a
    wheel that is damaged.
    """
    if text is None:
        return ExecutorchChoice(version=known_releases()[0])
    separators = {os.sep, os.altsep or os.sep}
    if text.endswith(".whl") or separators & set(text) or given_path(text).is_file():
        return _wheel_file(given_path(text))
    try:
        return ExecutorchChoice(version=str(Version(text)))
    except InvalidVersion:
        raise UsageError(
            f"{text!r} is neither a version of executorch nor a wheel file",
            mend=f"name a version such as {known_releases()[0]}, or the path of a .whl file",
        ) from None


def _wheel_file(path: Path) -> ExecutorchChoice:
    if not path.exists():
        raise UsageError(f"there is no file {path}", mend="check the path of the wheel file")
    if not path.is_file():
        raise UsageError(f"{path} is not a file", mend="name the wheel file itself, not its folder")
    try:
        name, version, _, _ = parse_wheel_filename(path.name)
    except InvalidWheelFilename:
        raise UsageError(
            f"{path.name} is not the name of a wheel, which tells version, Python and platform",
            mend="keep the name the build gave it: executorch-VERSION-PYTHON-ABI-PLATFORM.whl",
        ) from None
    if name != PROJECT:
        raise _other_project(path, name)
    named, held = _metadata(path)
    if canonicalize_name(named) != PROJECT:
        raise _other_project(path, named)
    if held != str(version):
        raise SubjectError(
            f"{path.name} holds executorch {held}, not the {version} of its name",
            mend="keep the name the build gave it",
        )
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return ExecutorchChoice(version=held, wheel=path, sha256=sha256)


def _metadata(path: Path) -> tuple[str, str]:
    """Project and version of a wheel, all of its files read against their CRCs on the way."""
    try:
        with zipfile.ZipFile(path) as archive:
            bad = archive.testzip()
            if bad is not None:
                raise _damaged(path, f"{bad} fails its checksum")
            found = [n for n in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", n)]
            if len(found) != 1:
                raise UsageError(
                    f"{path.name} is not a wheel: it has {len(found)} .dist-info/METADATA",
                    mend="name a wheel as a build makes it",
                )
            fields = HeaderParser().parsestr(archive.read(found[0]).decode("utf-8"))
    except (zipfile.BadZipFile, zlib.error, EOFError, UnicodeDecodeError, NotImplementedError,
            RuntimeError, ValueError) as error:  # fmt: skip
        raise _damaged(path, str(error)) from error
    except OSError as error:
        raise SubjectError(
            f"{path} cannot be read: {error.strerror or error}", mend="check its permissions"
        ) from error
    try:
        return fields["Name"] or "", str(Version(fields["Version"] or ""))
    except InvalidVersion:
        raise _damaged(path, f"its version is {fields['Version']!r}") from None


def _damaged(path: Path, how: str) -> SubjectError:
    return SubjectError(
        f"the wheel file {path} is corrupt or truncated: {how}",
        mend="copy, download or build it again",
    )


def _other_project(path: Path, name: str) -> UsageError:
    return UsageError(
        f"{path.name} is a wheel of {name or 'nothing'}, not of executorch",
        mend="name a wheel of executorch; other packages come from the stack",
    )


def _spell(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
