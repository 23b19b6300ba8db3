"""What a stack wants around its packages: folders of links, and environment variables."""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from edgeproof.errors import SubjectError
from edgeproof.plan.stack import Stack


def worker_environment(
    stack: Stack, *, folder: Path, site: Path, present: Mapping[str, str]
) -> dict[str, str]:
    """The variables of ``stack`` to start its workers with, beside those of the user.

    A variable whose name ends in ``PATH`` is put before the user's ``present`` value: the stack's
    libraries win, and what the user needs stays reachable.
    """
    made = {}
    for name, template in stack.env.items():
        value = _fill(template, folder, site)
        if name.endswith("PATH"):
            ours = value.split(os.pathsep)
            theirs = [p for p in present.get(name, "").split(os.pathsep) if p and p not in ours]
            value = os.pathsep.join([*ours, *theirs])
        made[name] = value
    return made


def make_links(stack: Stack, *, folder: Path, site: Path) -> tuple[str, ...]:
    """Make the folders of links that ``stack`` wants; returns what it found nothing to link for.

    Repeating it changes nothing when all is in place, and a folder is only ever seen whole: it is
    filled beside its place and moved there. Where links are not permitted, files are copied.
    """
    missing = []
    for where, pattern in stack.links.items():
        target = Path(_fill(where, folder, site))
        matches = glob.glob(_fill(pattern, folder, site, glob.escape))  # noqa: PTH207 - absolute
        sources = sorted(Path(match) for match in matches)
        if not sources:
            shutil.rmtree(target, ignore_errors=True)  # of packages that were there once
            missing.append(pattern.replace("{site}/", "").replace("{folder}/", ""))
        elif not _in_place(target, sources):
            _put(target, sources)
    return tuple(missing)


def nothing_to_link(stack: Stack, patterns: tuple[str, ...]) -> SubjectError:
    """The error for a managed subject whose packages lack what the stack links to."""
    return SubjectError(
        f"the packages of stack {stack.name} hold no {', '.join(patterns)}",
        mend="the stack's pins and its links disagree: report it as a fault of edgeproof",
    )


def _fill(template: str, folder: Path, site: Path, quote: Callable[[str], str] = str) -> str:
    return template.replace("{folder}", quote(str(folder))).replace("{site}", quote(str(site)))


def _in_place(target: Path, sources: list[Path]) -> bool:
    if not target.is_dir() or {path.name for path in target.iterdir()} != {s.name for s in sources}:
        return False
    for source in sources:
        link = target / source.name
        if link.is_symlink():
            if link.readlink() != source or not source.exists():
                return False
        elif not link.is_file() or link.stat().st_size != source.stat().st_size:
            return False
    return True


def _put(target: Path, sources: list[Path]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".tmp-", dir=target.parent))
    try:
        full = made / "full"
        full.mkdir()
        for source in sources:
            try:
                (full / source.name).symlink_to(source)
            except (OSError, NotImplementedError):
                shutil.copy2(source, full / source.name)
        for _ in range(3):
            try:
                full.rename(target)
                return
            except OSError:
                # Something else is there: an outdated folder, or another edgeproof was quicker.
                if _in_place(target, sources):
                    return
                aside = Path(tempfile.mkdtemp(dir=made)) / target.name
                if target.exists():
                    target.rename(aside)
        full.rename(target)
    finally:
        shutil.rmtree(made, ignore_errors=True)
