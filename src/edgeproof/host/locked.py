"""The exact packages of a subject: what uv resolved, with the SHA-256 of every wheel.

Resolved to ``pylock.toml`` (PEP 751), which carries versions and hashes, and installed from a list
of ``name==version --hash=...``: installing straight from the pylock makes uv 0.13 download every
wheel anew, 15 s for the base stack where the list takes 1 s from uv's cache.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from edgeproof.errors import SubjectError
from edgeproof.host.interpreters import Interpreter
from edgeproof.host.wheel import PROJECT, ExecutorchChoice, best


@dataclass(frozen=True, kw_only=True)
class Locked:
    """One package of a subject: any wheel with one of these hashes may be it, no other.

    For executorch there is exactly one: it is what is proved.
    """

    name: str
    version: str
    sha256: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        return {"name": self.name, "version": self.version, "sha256": list(self.sha256)}

    @classmethod
    def from_json(cls, entry: dict[str, Any]) -> Locked:
        """Read back what ``to_json`` made."""
        return cls(name=entry["name"], version=entry["version"], sha256=tuple(entry["sha256"]))


def read_lock(
    path: Path, choice: ExecutorchChoice, interpreter: Interpreter
) -> tuple[tuple[Locked, ...], int]:
    """The packages that uv resolved, and the bytes of their wheels where the registry tells.

    Raises ``SubjectError`` for a package without a SHA-256 and when executorch is not among them.
    """
    packages = []
    size = 0
    for package in tomllib.loads(path.read_text(encoding="utf-8")).get("packages", ()):
        name = canonicalize_name(package["name"])
        wheels = package.get("wheels") or [package.get("archive") or {}]
        if name == PROJECT:
            wheels = [_one(wheels, interpreter)]
        hashes = [wheel.get("hashes", {}).get("sha256") for wheel in wheels]
        if not all(hashes):
            raise SubjectError(
                f"{name} {package.get('version', '')} has no SHA-256 to hold it to",
                mend="use a package registry that tells the hashes of its files",
            )
        size += max(wheel.get("size", 0) for wheel in wheels)
        version = str(package["version"])
        packages.append(Locked(name=name, version=version, sha256=tuple(sorted(hashes))))
    subject = [package for package in packages if package.name == PROJECT]
    if not subject or (choice.sha256 is not None and subject[0].sha256 != (choice.sha256,)):
        raise SubjectError(
            f"executorch {choice.version} is not what was resolved",
            mend="if its wheel file is being written just now, try again when that is done",
        )
    return tuple(sorted(packages, key=lambda package: package.name)), size


def requirements(packages: Sequence[Locked], choice: ExecutorchChoice) -> str:
    """The packages as a requirements file with hashes, which uv then enforces."""
    lines = []
    for package in packages:
        exact = f"{package.name}=={package.version}"
        if package.name == PROJECT and choice.wheel is not None:
            exact = choice.requirement
        lines.append(" ".join([exact, *(f"--hash=sha256:{digest}" for digest in package.sha256)]))
    return "\n".join(lines) + "\n"


def _one(wheels: Sequence[dict[str, Any]], interpreter: Interpreter) -> dict[str, Any]:
    """The wheel among several of one version that fits best, which is the one to be installed."""
    ranked = []
    for wheel in wheels:
        address = wheel.get("name") or wheel.get("path") or urlsplit(wheel.get("url", "")).path
        try:
            tags = parse_wheel_filename(unquote(address.replace("\\", "/").rsplit("/", 1)[-1]))[3]
        except InvalidWheelFilename:
            continue
        rank = best(tags, interpreter)
        if rank is not None:
            ranked.append((rank, wheel))
    if not ranked:
        raise SubjectError(
            f"there is no wheel of executorch for Python {interpreter.minor} on "
            f"{interpreter.platform}",
            mend="choose another Python (--python), or a version that has one",
        )
    return min(ranked, key=lambda entry: entry[0])[1]
