"""Subjects: the environments under test, and what was read back from each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What an environment really holds, read back by a script that ran inside it.

    ``wheel_sha256`` is the SHA-256 of the executorch wheel file it was installed from, or ``None``
    where the environment is the user's own and nothing recorded it. ``changed_files`` names files of
    the executorch package that differ from the wheel's own RECORD.
    """

    executorch: str | None
    wheel_sha256: str | None
    packages: Mapping[str, str]
    python: str
    implementation: str
    system: str
    machine: str
    os: str
    libc: str
    cpu: str
    cpu_flags: tuple[str, ...]
    cpus: int
    memory_bytes: int
    site: str
    changed_files: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One ExecuTorch wheel, one stack, one Python: what a worker is started in.

    ``managed`` subjects were made by edgeproof and run isolated from the user's own Python settings;
    the others are environments the user named, taken as found. ``notes`` say where such an
    environment differs from the stack, ``lacks`` are the stack's pins that it does not fulfil.
    """

    stack: str
    python: Path
    env: Mapping[str, str]
    managed: bool
    contents: Contents
    notes: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Names the subject in cells and reports, for example ``qnn/executorch-1.5.1/py3.11``."""
        minor = ".".join(self.contents.python.split(".")[:2])
        return f"{self.stack}/executorch-{self.contents.executorch}/py{minor}"
