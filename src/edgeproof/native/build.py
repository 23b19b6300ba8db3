"""Builds a C++ extension of this package against the executorch that is installed, once.

The headers and ``libexecutorch`` come with the executorch wheel, pybind11's headers with torch. What was
built is kept under a key of everything that went into it: the source, the compiler, the Python ABI and
the wheel's own list of hashes. There is no stable ABI: another wheel is another build.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.machinery
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from filelock import FileLock

from edgeproof.errors import SubjectError

CACHE_VARIABLE = "EDGEPROOF_CACHE_DIR"
SANITIZER_VARIABLE = "EDGEPROOF_SANITIZER"
_COMPILERS = ("c++", "g++", "clang++")
_BUILD_SECONDS = 300


class NativeBuildError(SubjectError):
    """The extension cannot be built here; ``mend`` says what to install."""

    def __str__(self) -> str:
        return f"{self.message}\n{self.mend}" if self.mend else self.message


@dataclass(frozen=True, kw_only=True)
class Executorch:
    """Where an installed executorch keeps what C++ is built against."""

    package: Path
    identity: str

    @property
    def library(self) -> Path:
        """The runtime, which the Python bindings use too: registering there reaches them."""
        suffix = "dylib" if sys.platform == "darwin" else "so"
        return self.package / "lib" / f"libexecutorch.{suffix}"

    @property
    def headers(self) -> Path:
        """The folder that holds ``executorch/runtime/...``."""
        return self.package / "include"


def cache_folder() -> Path:
    """The folder of what edgeproof makes for use inside a subject.

    ``$EDGEPROOF_CACHE_DIR`` wins, as on the host, which passes it on to its workers.
    """
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    if sys.platform == "darwin":
        base = "~/Library/Caches"
    return Path(base).expanduser().absolute() / "edgeproof"


def installed_executorch() -> Executorch:
    """The executorch that ``import executorch`` finds here.

    Raises ``NativeBuildError`` when there is none, or one without its C++ headers and library.
    """
    spec = importlib.util.find_spec("executorch")
    if spec is None or not spec.submodule_search_locations:
        raise NativeBuildError(
            "there is no executorch to build against", mend="install it: pip install executorch"
        )
    package = Path(next(iter(spec.submodule_search_locations)))
    found = Executorch(package=package, identity=_identity(package))
    needed = (found.library, found.headers / "executorch/runtime/backend/interface.h")
    missing = [str(path.relative_to(package)) for path in needed if not path.is_file()]
    if missing:
        raise NativeBuildError(
            f"the executorch in {package} has no {' and no '.join(missing)}, so that nothing can be "
            "built against it",
            mend="install a wheel of executorch 1.5 or newer: pip install 'executorch>=1.5'",
        )
    return found


def _identity(package: Path) -> str:
    """What tells this executorch from any other: its wheel's RECORD, which holds a hash of each file."""
    records = sorted(package.parent.glob("executorch-*.dist-info/RECORD"))
    if records:
        return hashlib.sha256(records[0].read_bytes()).hexdigest()
    library = Executorch(package=package, identity="").library
    return hashlib.sha256(library.read_bytes()).hexdigest() if library.is_file() else ""


def load(name: str) -> ModuleType:
    """The extension ``name``, built when it was not yet.

    Raises ``NativeBuildError``.
    """
    path = build(name)
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    try:
        loader.exec_module(module)
    except ImportError as fault:
        raise NativeBuildError(
            f"what was built does not load: {fault}", mend=f"remove {path.parent} and try again"
        ) from fault
    return module


def build(name: str) -> Path:
    """The shared library of ``native/<name>.cpp``, built when it was not yet.

    Where ``$EDGEPROOF_SANITIZER`` is ``thread`` or ``address`` it is built with that sanitizer, and loads
    only in a process that was started with its runtime (``sanitizer_libraries``). Any number of processes
    may ask at once: one builds, the others wait for it. Raises ``NativeBuildError`` without a compiler,
    without headers, or when the compiler fails.
    """
    executorch = installed_executorch()
    arguments = _arguments(executorch, os.environ.get(SANITIZER_VARIABLE, ""))
    source = Path(__file__).with_name(f"{name}.cpp")
    compiler = _compiler()
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    key = hashlib.sha256(
        "\0".join(
            [
                hashlib.sha256(source.read_bytes()).hexdigest(),
                executorch.identity,
                str(executorch.package),  # it is linked in, as the place to find the library at
                _version(compiler),
                suffix,
                sys.version,
                *arguments,
            ]
        ).encode()
    ).hexdigest()[:20]
    folder = cache_folder() / "native" / f"{name}-{key}"
    target = folder / f"{name}{suffix}"
    if target.is_file():
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            if not target.is_file():
                _compile(compiler, arguments, source, target, executorch)
    except OSError as fault:
        raise NativeBuildError(
            f"{folder} cannot be written to: {fault}",
            mend=f"free space there, or name another folder in ${CACHE_VARIABLE}",
        ) from fault
    return target


def _compiler() -> tuple[str, ...]:
    """The compiler and what $CXX gives it as arguments: ``ccache g++``, or flags."""
    try:
        named = shlex.split(os.environ.get("CXX", ""))
    except ValueError as fault:
        raise NativeBuildError(
            f"$CXX cannot be read as a command: {fault}", mend="quote it as for a shell"
        ) from fault
    candidates = named[:1] or _COMPILERS
    for candidate in candidates:
        found = shutil.which(candidate)
        if found:
            return (found, *named[1:])
    what = (
        f"{named[0]!r}, which $CXX names, was not found"
        if named
        else f"none of {', '.join(_COMPILERS)} was found"
    )
    raise NativeBuildError(
        f"a C++ compiler is needed and {what}",
        mend="install one: apt-get install g++ (Debian, Ubuntu), dnf install gcc-c++ (Fedora), "
        "xcode-select --install (macOS)",
    )


def _version(compiler: Sequence[str]) -> str:
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        asked = subprocess.run(
            [*compiler, "--version"], capture_output=True, text=True, timeout=30, check=False
        )
        return f"{shlex.join(compiler)} {asked.stdout}"
    return shlex.join(compiler)


def sanitizer_libraries(sanitizer: str) -> list[Path]:
    """The shared libraries that a process must be started with, as ``LD_PRELOAD``, for the ``sanitizer``.

    After the sanitizer's own comes that of C++: AddressSanitizer looks for its functions when the process
    begins, long before Python loads the first library that would bring them. Raises ``NativeBuildError``
    where the compiler brings none.
    """
    name = {"thread": "libtsan.so", "address": "libasan.so"}[sanitizer]
    runtime, cpp = _library(name), _library("libstdc++.so.6")
    if runtime is None:
        raise NativeBuildError(
            f"{shlex.join(_compiler())} brings no {name}, without which --sanitize {sanitizer} cannot work",
            mend="install GCC with its sanitizers: apt-get install g++ (Debian, Ubuntu)",
        )
    return [runtime, *([cpp] if cpp else [])]


def _library(name: str) -> Path | None:
    """A library that the compiler brings."""
    asked = subprocess.run(
        [*_compiler(), f"-print-file-name={name}"], capture_output=True, text=True, check=False
    )
    found = Path(asked.stdout.strip() or name)
    return found.resolve() if found.is_absolute() else None


def _arguments(executorch: Executorch, sanitizer: str) -> Sequence[str]:
    includes = [
        executorch.headers,
        executorch.headers / "executorch/runtime/core/portable_type/c10",
        _python_headers(),
    ]
    lib = executorch.library.parent
    platform = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
    return [
        *("-O2", "-std=c++17", "-shared", "-fPIC", "-fvisibility=hidden"),
        *((f"-fsanitize={sanitizer}", "-g", "-fno-omit-frame-pointer") if sanitizer else ()),
        "-DC10_USING_CUSTOM_GENERATED_MACROS",
        *(f"-I{folder}" for folder in includes),
        # After all else: torch brings a c10 of its own, and it is only wanted for pybind11.
        *("-idirafter", str(_torch_headers())),
        *(f"-L{lib}", "-lexecutorch", f"-Wl,-rpath,{lib}"),
        *platform,
    ]


def _python_headers() -> Path:
    folder = Path(sysconfig.get_path("include"))
    if not (folder / "Python.h").is_file():
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise NativeBuildError(
            f"the Python {version} here has no C headers ({folder / 'Python.h'})",
            mend=f"install them: apt-get install python{version}-dev (Debian, Ubuntu), dnf install "
            f"python{version}-devel (Fedora)",
        )
    return folder


def _torch_headers() -> Path:
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise NativeBuildError(
            "pybind11's headers come with torch, and there is no torch here",
            mend="install torch beside executorch",
        )
    folder = Path(next(iter(spec.submodule_search_locations))) / "include"
    if not (folder / "pybind11" / "pybind11.h").is_file():
        raise NativeBuildError(
            f"the torch in {folder.parent} brings no headers of pybind11",
            mend="install torch from its wheel, which has them",
        )
    return folder


def _compile(
    compiler: Sequence[str],
    arguments: Sequence[str],
    source: Path,
    target: Path,
    executorch: Executorch,
) -> None:
    made = Path(tempfile.mkdtemp(prefix=".tmp-", dir=target.parent))
    try:
        out = made / target.name
        # Libraries after what needs them: linkers read from left to right.
        command = [*compiler, str(source), "-o", str(out), *arguments]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_BUILD_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as fault:
            raise NativeBuildError(f"{shlex.join(compiler)} did not finish: {fault}") from fault
        if done.returncode != 0 or not out.is_file():
            said = "\n".join(done.stderr.strip().splitlines()[:30]) or f"exit {done.returncode}"
            raise NativeBuildError(
                f"{source.name} does not build against the executorch in {executorch.package}:\n{said}",
                mend=f"the command was: {shlex.join(command)}",
            )
        out.replace(target)
    finally:
        shutil.rmtree(made, ignore_errors=True)
