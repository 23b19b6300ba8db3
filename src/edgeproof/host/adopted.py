"""Environments of the user as subjects: ``--subject current|PATH``.

Nothing is installed into them: they are taken as found, and what differs is said.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from edgeproof.errors import SubjectError
from edgeproof.given import given_path
from edgeproof.host import cache, store, templates
from edgeproof.host.interpreters import minor_of
from edgeproof.host.readback import ReadBack, read_back
from edgeproof.host.uv import cannot_write
from edgeproof.host.wheel import PROJECT
from edgeproof.plan.flow import Flow
from edgeproof.plan.stack import Stack
from edgeproof.plan.subject import Subject

CURRENT = "current"


def adopt(which: str, stack: Stack) -> Subject:
    """Take an environment of the user as it is.

    ``which`` is ``current`` (the active virtual or conda environment, else the one that runs
    edgeproof), an environment's folder, or a Python executable. Where it differs from ``stack`` the
    subject's notes say so; whether that matters is for the cells to show. Raises ``SubjectError``
    when it is not there, is not a Python, or holds no executorch.
    """
    python = _python(which)
    found = read_back(python, isolated=False)
    contents = found.contents
    if contents.executorch is None:
        pins = shlex.join([f"{PROJECT}=={stack.executorch}", *stack.requires])
        raise SubjectError(
            f"there is no executorch in the environment of {python}",
            mend=f"install it there (uv pip install --python {shlex.quote(str(python))} {pins}), "
            "or leave --subject out to let edgeproof make an environment",
        )
    key = store.short_hash(str(python))
    folder, site = cache.adopted() / key / stack.name, Path(contents.site)
    try:
        missing = templates.make_links(stack, folder=folder, site=site)
    except OSError as error:
        raise cannot_write(error) from error
    return Subject(
        stack=stack.name,
        python=python,
        env=templates.worker_environment(stack, folder=folder, site=site, present=os.environ),
        managed=False,
        contents=contents,
        notes=(*_notes(stack, found), *(f"it holds no {pattern}" for pattern in missing)),
        lacks=_lacks(stack, contents.packages),
    )


def mend(subject: Subject, flow: Flow, problem: str) -> str:
    """The command after which a flow that cannot work in ``subject`` for this problem should."""
    if any(name in problem for name in flow.libraries):
        return flow.libraries_mend
    if subject.managed:
        return f"edgeproof subjects remove {subject.stack}, then run again"
    if cache.subjects() in subject.python.parents:
        return (
            f"this is edgeproof's own environment for another stack: edgeproof subjects make "
            f"{subject.stack}, and leave --subject out"
        )
    if not subject.lacks:
        return "the stack's pins are all there: the message above names what fails to import"
    pins = shlex.join(subject.lacks)
    return f"{sys.executable} -m uv pip install --python {shlex.quote(str(subject.python))} {pins}"


def _lacks(stack: Stack, packages: Mapping[str, str]) -> tuple[str, ...]:
    """The pins of the stack that the packages do not fulfil, executorch left out."""
    held = {canonicalize_name(name): version for name, version in packages.items()}
    return tuple(
        pin
        for pin in stack.requires
        if (version := held.get(canonicalize_name(Requirement(pin).name))) is None
        or not _satisfies(version, Requirement(pin))
    )


def _python(which: str) -> Path:
    if which == CURRENT:
        named = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX") or sys.prefix
    else:
        named = which
    # Not resolved: the Python of an environment is a link to the interpreter that made it.
    path = given_path(named)
    if not path.exists():
        raise SubjectError(
            f"there is no environment at {path}",
            mend="name an environment's folder, its Python executable, or: current",
        )
    if path.is_file():
        return path
    for name in ("bin/python", "bin/python3", "Scripts/python.exe", "python.exe"):
        if (path / name).exists():
            return path / name
    raise SubjectError(
        f"{path} is a folder without a Python in it",
        mend="name an environment's folder (the one that holds bin/python), or a Python executable",
    )


def _notes(stack: Stack, found: ReadBack) -> tuple[str, ...]:
    contents = found.contents
    held = {canonicalize_name(name): version for name, version in contents.packages.items()}
    notes = []
    for pin in (f"{PROJECT}=={stack.executorch}", *stack.requires):
        requirement = Requirement(pin)
        wanted = str(requirement.specifier).removeprefix("==")
        version = held.get(canonicalize_name(requirement.name))
        if version is None:
            notes.append(f"{requirement.name} is missing, the stack names {wanted}")
        elif not _satisfies(version, requirement):
            notes.append(f"{requirement.name} {version}, the stack names {wanted}")
    if minor_of(contents.python) not in stack.pythons:
        notes.append(f"Python {contents.python}, the stack names {', '.join(stack.pythons)}")
    platform = f"{contents.system}-{contents.machine}".lower()
    if platform not in stack.platforms:
        notes.append(f"{platform}, the stack names {', '.join(stack.platforms)}")
    if found.editable:
        notes.append("executorch is an editable install: its files are not held to any wheel")
    if contents.changed_files:
        notes.append(store.changed(contents.changed_files))
    return tuple(notes)


def _satisfies(version: str, requirement: Requirement) -> bool:
    """Whether a pin holds. A local build (``+cpu``) is another build than the one that is named."""
    try:
        local = Version(version).local
    except InvalidVersion:
        return False
    exact = str(requirement.specifier)
    if local is not None and exact.startswith("==") and "+" not in exact:
        return False
    return requirement.specifier.contains(version, prereleases=True)
