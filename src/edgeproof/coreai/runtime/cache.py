"""Specialized models on disk: made once for an asset, then loaded in milliseconds.

An entry is a folder named by what it was made of: the asset's hash, the version of Core AI, the machine. It
is written beside its place and moved there, so that it is seen whole or not at all, by any number of
threads and processes. The checksums of its files lie in it: an entry that was cut short or changed is made
anew. When the entries outgrow the limit those go that were not used for longest and that no one is loading.

What is made is loaded before it is moved to its place, so that whoever made it has it whatever becomes of the
entry. Whoever finds one holds a shared lock on its folder while loading; one that is gone by then is made.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import platform
import shutil
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
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
_LOCK = ".lock-"
# What reading finds in place of a file that is not what it was; of other errors the entry is not to blame.
_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EIO)
_CHUNK = 2**20
_Model = TypeVar("_Model")


@dataclass(frozen=True, kw_only=True)
class CacheStats:
    """What happened in this process since it started, over all cache folders.

    ``hits`` and ``misses`` add up to the models that were loaded from a cache; a ``damaged`` entry, one
    that was cut short or changed, is one of the misses. ``evicted`` entries were removed to keep to the
    limit.
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
        with contextlib.suppress(_NotThereError):
            return _loaded(entry, load)
        with self._writing():
            self.folder.mkdir(parents=True, exist_ok=True)
            # Of a few names, whatever number of assets come by: a lock's file cannot be removed safely.
            making = FileLock(self.folder / f"{_LOCK}{entry.name[0]}")
            making.acquire()
        try:
            try:
                return _loaded(entry, load)
            except _NotThereError as why:
                damaged = why.damaged
            model = self._add(entry, make, load)
        finally:
            making.release()
        _count(misses=1, damaged=int(damaged))
        with self._writing():
            self._evict(keep=entry)
        return model

    def _add(
        self, entry: Path, make: Callable[[Path], None], load: Callable[[Path], _Model]
    ) -> _Model:
        """Make the entry, load it, and put it in the place of one that is damaged, if any."""
        with self._writing():
            made = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=self.folder))
        try:
            with self._writing():
                (made / MODEL).mkdir()
                make(made / MODEL)
                _describe(made)
            try:
                model = load(made / MODEL)
            except OSError as fault:
                if fault.errno in _MISSING:
                    raise self._unwritable(fault) from fault
                raise
            with self._writing():
                _discard(entry)
                made.rename(entry)
        finally:
            shutil.rmtree(made, ignore_errors=True)
        return model

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as fault:
            raise self._unwritable(fault) from fault

    def _unwritable(self, fault: OSError) -> DelegateError:
        return DelegateError(
            f"the cache folder {self.folder} cannot be written to: {fault}",
            mend="free space there, or name another folder with coreai_cache_dir",
            code=Code.ACCESS_FAILED,
        )

    def _evict(self, *, keep: Path) -> None:
        with contextlib.suppress(Timeout), FileLock(self.folder / f"{_LOCK}evict", timeout=0):
            self._remove_stale()
            entries = sorted(_entries(self.folder), key=lambda found: found[0])
            size = sum(found[1] for found in entries)
            for _, bytes_, entry in entries:
                if size <= self.limit:
                    break
                if entry != keep and _discard_unused(entry):
                    size -= bytes_
                    _count(evicted=1)

    def _remove_stale(self) -> None:
        """Remove what processes that were killed have left half-made."""
        for left in self.folder.glob(f"{_TEMPORARY}*"):
            with contextlib.suppress(OSError):
                if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                    shutil.rmtree(left, ignore_errors=True)


def clear(folder: Path) -> None:
    """Take all entries of a cache away, each at once, as happens to them when the limit is reached.

    Those that are being loaded stay. Whoever asks for one that is gone makes it anew.
    """
    with contextlib.suppress(FileNotFoundError):
        for _, _, entry in _entries(folder):
            _discard_unused(entry)


class _NotThereError(Exception):
    """There is no entry that could be loaded; whether there was one that is ``damaged``."""

    def __init__(self, *, damaged: bool) -> None:
        super().__init__()
        self.damaged = damaged


def _loaded(entry: Path, load: Callable[[Path], _Model]) -> _Model:
    """The model of an entry, which no one evicts meanwhile. Raises ``_NotThereError``."""
    try:
        folder = os.open(entry, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as fault:
        if fault.errno not in _MISSING:
            raise
        raise _NotThereError(damaged=fault.errno != errno.ENOENT) from fault
    try:
        with contextlib.suppress(OSError):  # not every file system has locks; it is right without
            fcntl.flock(folder, fcntl.LOCK_SH)
        if not _is_whole(entry):
            raise _NotThereError(damaged=_is_at(entry, folder))
        try:
            model = load(entry / MODEL)
        except (OSError, MemoryError) as fault:
            there = _is_at(entry, folder)
            if there and getattr(fault, "errno", None) not in _MISSING:
                raise  # of the process or the machine: the entry is as it was written
            raise _NotThereError(damaged=there) from fault
        except Exception as fault:
            # It could be loaded when it was made. If it cannot be made anew either, it stays.
            raise _NotThereError(damaged=_is_at(entry, folder)) from fault
        with contextlib.suppress(OSError):
            os.utime(entry)
    finally:
        os.close(folder)
    _count(hits=1)
    return model


def _is_at(entry: Path, folder: int) -> bool:
    """Whether the entry is still the folder that was opened, and not gone or another."""
    try:
        return os.path.samestat(entry.stat(), os.fstat(folder))
    except OSError:
        return False


def _discard(entry: Path) -> bool:
    """Take an entry away at once, so that no one sees it half removed; whether it was there."""
    with contextlib.suppress(OSError):
        aside = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=entry.parent))
        try:
            entry.rename(aside / "entry")
            return True
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return False


def _discard_unused(entry: Path) -> bool:
    """Take an entry away unless someone is loading it; whether it was taken."""
    try:
        folder = os.open(entry, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        with contextlib.suppress(OSError):
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return _is_at(entry, folder) and _discard(entry)
    finally:
        os.close(folder)


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
    except OSError as fault:
        if fault.errno in _MISSING:
            return False
        raise
    except (ValueError, KeyError, TypeError, AttributeError):
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
