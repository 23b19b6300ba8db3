"""Stacks: the pinned packages that a family of flows needs, read from ``stacks.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

from packaging.version import Version

from edgeproof.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Stack:
    """The pinned packages of one family of flows, for one ExecuTorch release.

    ``requires`` are the packages beside executorch; ``own`` is the part of them that no other stack
    of the release needs, which is what a user's own environment may lack. ``env`` and ``links`` may
    name ``{folder}`` (a folder edgeproof makes for the subject) and ``{site}`` (its site-packages).
    ``suites`` are what upstream's test modules import beside that, installed apart from the subject.
    """

    name: str
    executorch: str
    requires: tuple[str, ...]
    own: tuple[str, ...] = ()
    pythons: tuple[str, ...]
    platforms: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    suites: tuple[str, ...] = field(default=(), compare=False)


@cache
def _table() -> dict[str, dict[str, Stack]]:
    text = resources.files("edgeproof.plan").joinpath("stacks.toml").read_text(encoding="utf-8")
    table: dict[str, dict[str, Stack]] = {}
    for release in tomllib.loads(text)["release"]:
        stacks = {}
        for name, entry in release["stacks"].items():
            own = tuple(entry.get("requires", ()))
            stacks[name] = Stack(
                name=name,
                executorch=release["executorch"],
                requires=(*release["requires"], *own),
                own=own,
                pythons=tuple(release["pythons"]),
                platforms=tuple(entry.get("platforms", release["platforms"])),
                env=entry.get("env", {}),
                links=entry.get("links", {}),
                suites=tuple(release["suites"]),
            )
        table[release["executorch"]] = stacks
    return table


def known_releases() -> tuple[str, ...]:
    """The ExecuTorch versions that have stacks, newest first."""
    return tuple(sorted(_table(), key=Version, reverse=True))


def stacks_for(executorch: str, *, nearest: bool = False) -> dict[str, Stack]:
    """The stacks of one ExecuTorch version.

    With ``nearest`` a version without stacks of its own (a nightly, a local build) gets those of the
    newest known release that is not newer, else the oldest known. Raises ``UsageError`` otherwise.
    """
    table = _table()
    if executorch in table:
        return table[executorch]
    releases = known_releases()
    if not nearest:
        raise UsageError(
            f"no stacks are known for executorch {executorch}",
            mend=f"known versions: {', '.join(releases)}; a wheel file of any version is taken too",
        )
    base = Version(Version(executorch).base_version)
    older = [r for r in releases if Version(r) <= base]
    return table[older[0] if older else releases[-1]]
