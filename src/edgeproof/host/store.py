"""The managed subjects on disk: one folder each, its manifest, and which request led to it.

A subject is the folder ``<stack>-<hash of its exact contents>`` and counts from the moment it is
renamed into place with its manifest inside. Whatever starts with a dot is work of this moment or
the leftover of a killed process; it is swept by whoever holds the lock next.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from edgeproof.errors import UsageError
from edgeproof.host import cache
from edgeproof.host.locked import Locked
from edgeproof.host.uv import cannot_write
from edgeproof.host.wheel import PROJECT
from edgeproof.plan.stack import known_releases, stacks_for
from edgeproof.plan.subject import Contents

MANIFEST = "subject.json"
SCRATCH = ".tmp-"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a subject was made to hold. ``made`` is an ISO time in UTC."""

    stack: str
    executorch: str
    sha256: str
    python: str
    made: str
    packages: tuple[Locked, ...]

    def write(self, folder: Path) -> None:
        """Put the manifest into ``folder``."""
        plain = {**vars(self), "packages": [package.to_json() for package in self.packages]}
        (folder / MANIFEST).write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Manifest | None:
        """The manifest of ``folder``, or ``None`` where there is none that can be read."""
        plain = read_json(folder / MANIFEST)
        try:
            packages = tuple(Locked.from_json(entry) for entry in plain.pop("packages"))
            return cls(packages=packages, **plain)
        except (KeyError, TypeError):
            return None


def short_hash(value: object) -> str:
    """Names a JSON value in 16 hexadecimal digits."""
    text = json.dumps(value, sort_keys=True, default=list)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file, empty where there is none."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return plain if isinstance(plain, dict) else {}


def folders() -> Iterator[Path]:
    """The folders of the managed subjects."""
    for path in sorted(cache.subjects().glob("*-*")):
        if not path.name.startswith(".") and path.is_dir():
            yield path


def python_in(folder: Path) -> Path:
    """The Python of the environment ``folder``."""
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def made_for(request: str) -> Path | None:
    """The folder that was made for a request before, if it is still there."""
    name = read_json(_request_file(request)).get("subject")
    folder = cache.subjects() / name if isinstance(name, str) and name else None
    return folder if folder is not None and (folder / MANIFEST).is_file() else None


def remember(request: str, folder: Path) -> None:
    """Note that ``request`` led to ``folder``, so that next time nothing needs to be resolved."""
    path = _request_file(request)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_text(json.dumps({"subject": folder.name}) + "\n", encoding="utf-8")
    fresh.replace(path)


def _request_file(request: str) -> Path:
    return cache.subjects() / ".requests" / f"{request}.json"


@contextmanager
def locked(on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the subjects folder alone, and sweep it. ``on_wait`` is called when another has it.

    The system frees the lock of a process that is killed.
    """
    try:
        cache.subjects().mkdir(parents=True, exist_ok=True)
        lock = FileLock(cache.subjects() / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            if on_wait is not None:
                on_wait()
            lock.acquire(poll_interval=0.1)
    except OSError as error:
        raise cannot_write(error) from error
    try:
        for leftover in cache.subjects().glob(f"{SCRATCH}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        yield
    finally:
        lock.release()


def discard(folder: Path) -> None:
    """Remove a subject: out of its place at once, then from the disk. Under the lock only."""
    aside = folder.with_name(f"{SCRATCH}gone-{folder.name}")
    folder.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def remove(stack: str) -> tuple[Path, ...]:
    """Remove the managed subjects of a stack, or of all with ``all``; returns what is gone.

    Raises ``UsageError`` for a name that no stack has: a typing error must not look like success.
    """
    require_stack(stack, "all")
    present = {folder: stack_of(folder) for folder in folders()}
    chosen = [folder for folder, name in present.items() if stack in ("all", name)]
    if chosen:
        with locked():
            for folder in chosen:
                if folder.exists():
                    discard(folder)
            for path in (cache.subjects() / ".requests").glob("*.json"):
                if made_for(path.stem) is None:
                    path.unlink(missing_ok=True)
    return tuple(chosen)


def require_stack(stack: str, *besides: str) -> None:
    """Raise ``UsageError`` for what is neither a stack of a release or a subject, nor in ``besides``."""
    known = {name for release in known_releases() for name in stacks_for(release)}
    known.update(stack_of(folder) for folder in folders())
    if stack not in {*known, *besides}:
        choices = ", ".join([*sorted(known), *besides])
        raise UsageError(f"there is no stack {stack!r}", mend=f"choose one of: {choices}")


def stack_of(folder: Path) -> str:
    """The stack that a subject's folder is named after."""
    return folder.name.rpartition("-")[0]


def disagreements(manifest: Manifest, contents: Contents) -> list[str]:
    """How a managed subject differs from what it was made to hold; empty when it does not."""
    said = []
    wanted = {package.name: package.version for package in manifest.packages}
    held: dict[str, str] = {canonicalize_name(n): v for n, v in contents.packages.items()}
    for name, version in sorted(wanted.items()):
        if name not in held:
            said.append(f"{name} {version} is missing")
        elif not same_version(held[name], version):
            said.append(f"{name} is {held[name]} instead of {version}")
    said.extend(f"{name} {held[name]} is not of the stack" for name in sorted(held.keys() - wanted))
    if not same_version(wanted.get(PROJECT, ""), manifest.executorch):
        said.append(f"it was not made for executorch {manifest.executorch}")
    if contents.changed_files:
        said.append(changed(contents.changed_files))
    return said


def changed(files: tuple[str, ...]) -> str:
    """Says which files of executorch differ from its wheel, the first few by name."""
    shown = ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
    return f"files of executorch differ from its wheel: {shown}"


def same_version(one: str, other: str) -> bool:
    """Whether two spellings name the same version."""
    try:
        return Version(one) == Version(other)
    except InvalidVersion:
        return one == other
