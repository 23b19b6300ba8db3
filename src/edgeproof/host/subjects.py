"""Managed subjects: environments made by uv from pinned wheels, used again, always read back.

A subject holds the packages its stack resolves to, in their versions, and executorch's own files as its
wheel has them: that is proved on every use. (The files of the others are not: hashing gigabytes takes
longer than proving a cell.) Made once, it needs neither network nor a resolve again. Bytecode is left to
the first import: on two cores, compiling all of the base stack at build time costs 14 s and saves 7 s of
the first import of torch and exir.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import shlex
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from edgeproof.errors import SubjectError
from edgeproof.host import cache, store, templates
from edgeproof.host.adopted import adopt
from edgeproof.host.interpreters import Interpreter, described, minor_of
from edgeproof.host.locked import Locked, read_lock, requirements
from edgeproof.host.readback import read_back
from edgeproof.host.store import Manifest, remove
from edgeproof.host.uv import UvFailed, cannot_write, run_uv
from edgeproof.host.wheel import PROJECT, ExecutorchChoice, parse_choice
from edgeproof.plan.stack import Stack
from edgeproof.plan.subject import Contents, Subject

__all__ = ["Listed", "adopt", "listing", "prepare", "remove"]

Progress = Callable[[str], None]


def prepare(
    stack: Stack,
    choice: ExecutorchChoice,
    python: Path,
    *,
    on_progress: Progress,
    build: bool = True,
) -> Subject:
    """Make the subject of ``stack`` with this executorch on ``python``, or use the one there is.

    ``on_progress`` gets a line for each step that takes time. Raises ``SubjectError`` when the
    stack is not for this platform or Python, when uv fails (with cause and mend), and when what
    came of it is not what the stack names; without ``build`` also when there is none yet. Nothing
    half-made is ever used: a subject is built beside its place.
    """
    interpreter = described(python)
    _require_supported(stack, interpreter)
    choice.require_fit(interpreter)
    request = store.short_hash(
        [
            dataclasses.asdict(dataclasses.replace(stack, suites=())),  # those lie elsewhere
            choice.version,
            choice.sha256,
            str(interpreter.path.resolve()),
            interpreter.version,
            interpreter.platform,
        ]
    )
    try:
        folder = store.made_for(request)
        if folder is None and not build:
            raise _not_made(stack, choice, interpreter)
        if folder is None:
            with store.locked(
                lambda: on_progress(f"{stack.name}: waiting for another edgeproof to end its build")
            ):
                folder = store.made_for(request)
                if folder is None:
                    folder = _build(stack, choice, interpreter, on_progress)
                    store.remember(request, folder)
        return _open(stack, choice, folder)
    except UvFailed as failed:
        failure = failed.failure()
        raise SubjectError(f"{stack.name}: {failure.message}", mend=failure.mend) from failed
    except OSError as error:
        raise cannot_write(error) from error


def _not_made(stack: Stack, choice: ExecutorchChoice, interpreter: Interpreter) -> SubjectError:
    mend = ["edgeproof", "subjects", "make", stack.name]
    if choice != parse_choice(None):
        mend += ["--executorch", str(choice.wheel or choice.version)]
    if interpreter.minor != minor_of(platform.python_version()):
        mend += ["--python", interpreter.minor]
    return SubjectError(
        f"no subject of stack {stack.name} with executorch {choice.version} on Python "
        f"{interpreter.minor} was made yet",
        mend=shlex.join(mend),
    )


def _require_supported(stack: Stack, interpreter: Interpreter) -> None:
    if interpreter.platform not in stack.platforms:
        raise SubjectError(
            f"stack {stack.name} is not for {interpreter.platform}",
            mend=f"it runs on {', '.join(stack.platforms)}; leave its flows out on this machine",
        )
    if interpreter.minor not in stack.pythons:
        raise SubjectError(
            f"stack {stack.name} is not for Python {interpreter.minor}",
            mend=f"choose --python from: {', '.join(stack.pythons)}",
        )


def _build(
    stack: Stack, choice: ExecutorchChoice, interpreter: Interpreter, on_progress: Progress
) -> Path:
    scratch = Path(tempfile.mkdtemp(prefix=f"{store.SCRATCH}{stack.name}-", dir=cache.subjects()))
    try:
        on_progress(f"{stack.name}: resolving executorch {choice.version} and the stack's packages")
        packages, size = _resolve(stack, choice, interpreter, scratch)
        place = _place(stack, packages, interpreter)
        if Manifest.read(place) is not None:
            return place  # another request, the same contents
        made = scratch / "subject"
        run_uv(["venv", "--python", str(interpreter.path), "--relocatable", str(made)])
        count = f"{len(packages)} package{'s' if len(packages) != 1 else ''}"
        volume = f", {size / 1e9:.1f} GB of wheels" if size > 50e6 else ""
        on_progress(f"{stack.name}: installing {count}{volume}")
        listed = scratch / "requirements.txt"
        listed.write_text(requirements(packages, choice), encoding="utf-8")
        run_uv(
            [
                *("pip", "sync", "--python", str(store.python_in(made)), "--require-hashes"),
                *("--only-binary", ":all:", "--strict", str(listed)),
            ],
            on_line=lambda line: _downloads(stack, line, on_progress),
        )
        on_progress(f"{stack.name}: checking what was installed")
        manifest = Manifest(
            stack=stack.name,
            executorch=choice.version,
            sha256=next(p.sha256[0] for p in packages if p.name == PROJECT),
            python=interpreter.version,
            made=datetime.now(UTC).isoformat(timespec="seconds"),
            packages=packages,
        )
        contents = read_back(store.python_in(made), isolated=True).contents
        said = store.disagreements(manifest, contents)
        if said:
            raise SubjectError(
                f"the fresh subject of {stack.name} does not hold what its stack names: "
                + "; ".join(said),
                mend=f"uv's cache may be damaged: uv cache clean {PROJECT}, and try again",
            )
        _unshare(Path(contents.site) / PROJECT)
        manifest.write(made)
        if place.exists():  # lost its manifest: it counts for nothing
            store.discard(place)
        made.rename(place)
        return place
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _resolve(
    stack: Stack, choice: ExecutorchChoice, interpreter: Interpreter, scratch: Path
) -> tuple[tuple[Locked, ...], int]:
    asked = scratch / "requirements.in"
    asked.write_text("\n".join([choice.requirement, *stack.requires]) + "\n", encoding="utf-8")
    lock = scratch / "pylock.toml"
    run_uv(
        [
            *("pip", "compile", "--quiet", "--format", "pylock.toml", "--only-binary", ":all:"),
            *("--python", str(interpreter.path), "--output-file", str(lock), str(asked)),
        ]
    )
    return read_lock(lock, choice, interpreter)


def _place(stack: Stack, packages: tuple[Locked, ...], interpreter: Interpreter) -> Path:
    key = store.short_hash(
        [
            [package.to_json() for package in packages],
            str(interpreter.path.resolve()),
            interpreter.version,
            interpreter.platform,
        ]
    )
    return cache.subjects() / f"{stack.name}-{key}"


def _downloads(stack: Stack, line: str, on_progress: Progress) -> None:
    """uv says what it downloads: shown, because on a slow network it takes minutes."""
    if line.strip().startswith(("Downloading ", "Downloaded ")):
        on_progress(f"{stack.name}: {line.strip()[0].lower()}{line.strip()[1:]}")


def _unshare(package: Path) -> None:
    """Give the subject's executorch its own files.

    uv links files from its cache. Someone who edits the backend under test in place would edit the
    cache too, and get the edited file in every subject made from then on.
    """
    for folder, _, names in os.walk(package):
        for name in names:
            path = Path(folder) / name
            if path.lstat().st_nlink > 1:
                own = path.with_name(f"{name}.own")
                shutil.copy2(path, own)
                own.replace(path)


def _open(stack: Stack, choice: ExecutorchChoice, folder: Path) -> Subject:
    """Read a subject back, compare it with its manifest and make what surrounds it."""
    manifest = Manifest.read(folder)
    if manifest is None:
        raise SubjectError(f"{folder} has no readable manifest", mend=_again(stack))
    python = store.python_in(folder)
    try:
        contents = read_back(python, isolated=True).contents
    except SubjectError as error:
        raise SubjectError(error.message, mend=_again(stack)) from error
    said = store.disagreements(manifest, contents)
    if not store.same_version(contents.executorch or "", choice.version):
        said.append(f"executorch is {contents.executorch}, asked for was {choice.version}")
    if choice.sha256 not in (None, manifest.sha256):
        said.append("executorch is from another wheel file")
    if said:
        raise SubjectError(
            f"the subject {folder.name} does not hold what its stack names: {'; '.join(said)}",
            mend=_again(stack),
        )
    contents = dataclasses.replace(contents, wheel_sha256=manifest.sha256)
    around, site = folder / "edgeproof", Path(contents.site)
    missing = templates.make_links(stack, folder=around, site=site)
    if missing:
        raise templates.nothing_to_link(stack, missing)
    env = templates.worker_environment(stack, folder=around, site=site, present=os.environ)
    notes: tuple[str, ...] = ()
    if not store.same_version(stack.executorch, choice.version):
        notes = (
            f"executorch {choice.version} has no stack of its own: the packages are those of "
            f"{stack.executorch}",
        )
    return Subject(
        stack=stack.name, python=python, env=env, managed=True, contents=contents, notes=notes
    )


def _again(stack: Stack) -> str:
    return f"edgeproof subjects remove {stack.name}"


@dataclass(frozen=True, kw_only=True)
class Listed:
    """One managed subject as ``subjects list`` shows it. ``problems`` is empty when it is ok."""

    stack: str
    executorch: str
    python: str
    made: str
    size_bytes: int
    path: Path
    problems: tuple[str, ...]

    @property
    def state(self) -> str:
        """``ok`` or ``broken``."""
        return "broken" if self.problems else "ok"


def listing() -> tuple[Listed, ...]:
    """The managed subjects, each read back: what is shown as ok can be used."""
    return tuple(_listed(folder) for folder in store.folders())


def _listed(folder: Path) -> Listed:
    manifest = Manifest.read(folder)
    contents: Contents | None = None
    problems: tuple[str, ...] = ("no readable manifest",)
    if manifest is not None:
        try:
            contents = read_back(store.python_in(folder), isolated=True).contents
            problems = tuple(store.disagreements(manifest, contents))
        except SubjectError as error:
            problems = (error.message,)
    return Listed(
        stack=manifest.stack if manifest else store.stack_of(folder),
        executorch=manifest.executorch if manifest else "unknown",
        python=manifest.python if manifest else "unknown",
        made=manifest.made if manifest else "unknown",
        size_bytes=_size(folder),
        path=folder,
        problems=problems,
    )


def _size(folder: Path) -> int:
    """Bytes on disk, files that uv's cache shares included."""
    total = 0
    for inside, _, names in os.walk(folder):
        for name in names:
            total += os.lstat(os.path.join(inside, name)).st_size  # noqa: PTH118 - many
    return total
