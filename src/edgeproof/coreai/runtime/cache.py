"""Specialized models on disk: made once for an asset, then loaded in milliseconds.

An entry is a folder named by what it was made of: the asset's hash, the version of Core AI, the machine. It
is written beside its place and moved there, so that it is seen whole or not at all, by any number of
threads and processes. The checksums of its files lie in it: an entry that was cut short or changed is made
anew. When the entries outgrow the limit those go that were not used for longest.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shutil
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TypeVar

from filelock import FileLock, Timeout

from edgeproof.coreai.runtime.errors import Code, DelegateError

MODEL = "model.aimodelx"
DEFAULT_LIMIT = 8 * 2**30
_ENTRY = "entry.json"
_LAYOUT = "1"
_TEMPORARY = ".tmp-"
_STALE_SECONDS = 24 * 3600
_TRIES = 3
_CHUNK = 2**20
_Model = TypeVar("_Model")


@dataclass(frozen=True, kw_only=True)
class CacheStats:
    """What happened in this process since it started, over all cache folders.

    ``hits`` and ``misses`` add up to the models that were loaded from a cache; a ``damaged`` entry is one
    of the misses. ``evicted`` entries were removed to keep to the limit.
    """

    hits: int = 0
    misses: int = 0
    damaged: int = 0
    evicted: int = 0


_stats = CacheStats()
_stats_lock = threading.Lock()


def cache_stats() -> CacheStats:
    """How the caches of specialized models were used by this process so far."""
    return _stats


def _count(**more: int) -> None:
    global _stats
    with _stats_lock:
        _stats = replace(_stats, **{name: getattr(_stats, name) + n for name, n in more.items()})


def entry_key(asset_hash: str) -> str:
    """The name of an asset's entry for this Core AI on this machine."""
    parts = (
        _LAYOUT,
        asset_hash,
        metadata.version("coreai-core"),
        platform.system(),
        platform.machine(),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]


class Cache:
    """The entries below one folder, kept to ``limit`` bytes."""

    def __init__(self, folder: Path, *, limit: int = DEFAULT_LIMIT) -> None:
        self.folder = folder
        self.limit = limit

    def load(
        self, asset_hash: str, make: Callable[[Path], None], load: Callable[[Path], _Model]
    ) -> _Model:
        """Load an asset's specialized model, after ``make`` has made it where it is not there yet.

        ``make`` writes the model into the folder it is given, ``load`` reads it from one. Raises
        ``DelegateError`` when the folder cannot be written to; what ``make`` raises is passed on.
        """
        entry = self.folder / entry_key(asset_hash)
        damaged = made = False
        for last in (False,) * (_TRIES - 1) + (True,):
            if _is_whole(entry):
                try:
                    model = load(entry / MODEL)
                except Exception:
                    # Its bytes are right and yet it does not load: if making it anew does not
                    # help either, that is what the caller has to know.
                    if made and (last or _is_whole(entry)):
                        raise
                    damaged = True
                    self._discard(entry)
                else:
                    with contextlib.suppress(OSError):
                        os.utime(entry)
                    _count(misses=1, damaged=int(damaged)) if made else _count(hits=1)
                    return model
            elif entry.exists():
                damaged = True
            made = self._add(entry, make) or made
        raise DelegateError(
            f"the cache entry {entry} vanishes or changes as soon as it is made",
            mend="something else cleans that folder: name another one with coreai_cache_dir",
            code=Code.ACCESS_FAILED,
        )

    def _add(self, entry: Path, make: Callable[[Path], None]) -> bool:
        """Make the entry if no one else has by the time it is our turn; whether it was us."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self.folder / f".{entry.name}.lock"):
                if _is_whole(entry):
                    return False
                self._discard(entry)
                made = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=self.folder))
                try:
                    (made / MODEL).mkdir()
                    make(made / MODEL)
                    _describe(made)
                    made.rename(entry)
                finally:
                    shutil.rmtree(made, ignore_errors=True)
            self._evict(keep=entry)
        except OSError as fault:
            raise DelegateError(
                f"the cache folder {self.folder} cannot be written to: {fault}",
                mend="free space there, or name another folder with coreai_cache_dir",
                code=Code.ACCESS_FAILED,
            ) from fault
        return True

    def _discard(self, entry: Path) -> None:
        """Take an entry away at once, so that no one sees it half removed."""
        with contextlib.suppress(OSError):
            aside = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=self.folder))
            try:
                entry.rename(aside / "entry")
            finally:
                shutil.rmtree(aside, ignore_errors=True)

    def _evict(self, *, keep: Path) -> None:
        with contextlib.suppress(Timeout), FileLock(self.folder / ".evict.lock", timeout=0):
            self._remove_stale()
            entries = sorted(_entries(self.folder), key=lambda found: found[0])
            size = sum(found[1] for found in entries)
            for _, bytes_, entry in entries:
                if size <= self.limit:
                    break
                if entry != keep:
                    self._discard(entry)
                    size -= bytes_
                    _count(evicted=1)

    def _remove_stale(self) -> None:
        """Remove what processes that were killed have left half-made."""
        for left in self.folder.glob(f"{_TEMPORARY}*"):
            with contextlib.suppress(OSError):
                if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                    shutil.rmtree(left, ignore_errors=True)


def _entries(folder: Path) -> list[tuple[float, int, Path]]:
    """When each entry was used last, its bytes, and where it is."""
    found = []
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            if not path.name.startswith(".") and path.is_dir():
                size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
                found.append((path.stat().st_mtime, size, path))
    return found


def _describe(entry: Path) -> None:
    files = {
        path.relative_to(entry).as_posix(): _checksum(path)
        for path in sorted((entry / MODEL).rglob("*"))
        if path.is_file()
    }
    (entry / _ENTRY).write_text(json.dumps({"files": files}), encoding="utf-8")


def _is_whole(entry: Path) -> bool:
    """Whether all files of the entry are there and are what they were when they were written."""
    try:
        files = json.loads((entry / _ENTRY).read_text(encoding="utf-8"))["files"]
        return bool(files) and all(
            _checksum(entry / name) == checksum for name, checksum in files.items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _checksum(path: Path) -> list[int]:
    """Size and CRC-32: enough against damage, and three times as fast as a cryptographic hash."""
    size = checksum = 0
    with path.open("rb", buffering=0) as file:
        buffer = memoryview(bytearray(_CHUNK))
        while count := file.readinto(buffer):
            checksum = zlib.crc32(buffer[:count], checksum)
            size += count
    return [size, checksum]
