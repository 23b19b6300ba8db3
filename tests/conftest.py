from __future__ import annotations

import base64
import hashlib
import signal
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from edgeproof.plan.stack import Stack
from tests.lab import Lab

PLATFORMS = ("linux-x86_64", "linux-aarch64", "darwin-arm64", "windows-amd64")

WheelMaker = Callable[..., Path]


@pytest.fixture(scope="session", autouse=True)
def signals_as_at_a_terminal() -> None:
    """What runs under ``nohup`` or in a shell's background ignores these signals, and so would all it starts.

    What is handled is back at its default in a child; what is ignored stays ignored.
    """
    handlers = {"SIGINT": signal.default_int_handler, "SIGHUP": lambda *_: None}
    for name, handler in handlers.items():
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture
def make_wheel(tmp_path: Path) -> WheelMaker:
    """Builds real, installable wheels of a few lines."""

    def make(
        name: str = "executorch",
        version: str = "9.9.9",
        *,
        tag: str = "py3-none-any",
        files: Mapping[str, str] | None = None,
        requires: tuple[str, ...] = (),
        folder: Path | None = None,
        project: str | None = None,
    ) -> Path:
        base = f"{name}-{version}.dist-info"
        inside = dict(files or {f"{name}/__init__.py": f"version = {version!r}\n"})
        inside[f"{base}/METADATA"] = (
            f"Metadata-Version: 2.1\nName: {project or name}\nVersion: {version}\n"
            + "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
        )
        inside[f"{base}/WHEEL"] = (
            f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n"
        )
        record = []
        folder = folder or tmp_path / "wheels"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}-{version}-{tag}.whl"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for where, text in inside.items():
                archive.writestr(where, text)
                digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest())
                record.append(f"{where},sha256={digest.rstrip(b'=').decode()},{len(text)}")
            archive.writestr(f"{base}/RECORD", "\n".join([*record, f"{base}/RECORD,,"]) + "\n")
        return path

    return make


@pytest.fixture
def tiny_stack() -> Stack:
    """A stack of nothing but executorch."""
    return Stack(
        name="tiny",
        executorch="9.9.9",
        requires=(),
        pythons=("3.11", "3.12", "3.13"),
        platforms=PLATFORMS,
    )


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own, with a space in its path."""
    folder = tmp_path / "my cache"
    monkeypatch.setenv("EDGEPROOF_CACHE_DIR", str(folder))
    return folder


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """A Python in the base subject, for tests of what runs there."""
    made = Lab("base")
    yield made
    made.close()
