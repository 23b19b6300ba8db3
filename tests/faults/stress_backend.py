"""A delegate with faults to be switched on by ``$FAULT``, for the tests of ``edgeproof stress``.

It computes ``2 x``, slowly, without the interpreter's lock. What it "compiles" is a file in the cache
folder that holds the factor.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

FAULT = os.environ.get("FAULT", "")
_SECONDS = 0.002
_TEXT = "factor=" + "0" * 4000 + "2\n"

_stats = SimpleNamespace(hits=0, misses=0)
_lock = threading.Lock()
_everything = threading.Lock()
_first, _second = threading.Lock(), threading.Lock()
_scratch: Any = None
_kept: list[Any] = []
_destroyed = 0


def cache_stats() -> SimpleNamespace:
    return SimpleNamespace(**vars(_stats))


def install() -> None:
    from edgeproof.native import build

    assert build.load("bridge").register_backend("FaultyBackend", Backend()) == 0


def _locked() -> Any:
    return _everything if FAULT == "global_lock" else contextlib.nullcontext()


class Backend:
    def init(
        self, processed: bytes, specs: Any, data: Any, options: dict[str, Any], method: str
    ) -> Delegate:
        with _locked():
            time.sleep(_SECONDS)
            if FAULT == "leak":
                _kept.append(bytearray(1024))
            if FAULT == "descriptors":
                _kept.append(os.open(os.devnull, os.O_RDONLY))
            if FAULT == "deadlock":
                with _first:
                    time.sleep(_SECONDS)
                    with _second:
                        pass
            return Delegate(_compiled(Path(options["cache_dir"])))


def _compiled(folder: Path) -> int:
    entry = folder / "factor.txt"
    if FAULT == "torn_cache":
        if not entry.exists():
            with entry.open("w") as file:  # in place, for all to see
                for part in (_TEXT[:2000], _TEXT[2000:]):
                    file.write(part)
                    file.flush()
                    time.sleep(_SECONDS)
        text = entry.read_text()
        if not text.endswith("\n"):
            raise ValueError(f"the cache entry is cut short: {len(text)} bytes")
        return int(text.partition("=")[2])
    with _lock:
        if entry.exists() and FAULT != "compiles_again":
            _stats.hits += 1
        else:
            _stats.misses += 1
            made = folder / f"{threading.get_ident()}.tmp"
            made.write_text(_TEXT)
            made.replace(entry)
        return int(entry.read_text().partition("=")[2])


class Delegate:
    input_count = 1

    def __init__(self, factor: int) -> None:
        self._factor = factor

    def execute(self, inputs: list[Any], outputs: list[Any]) -> list[None]:
        global _scratch
        with _locked():
            (_, given), (_, answer) = inputs[0], outputs[0]
            if FAULT == "deadlock":
                with _second:
                    time.sleep(_SECONDS)
                    with _first:
                        pass
            if FAULT == "race":
                _scratch = given * self._factor
                time.sleep(_SECONDS)
                answer[...] = _scratch
            else:
                own = given * self._factor
                time.sleep(_SECONDS)
                answer[...] = own
            return [None]

    def __del__(self) -> None:
        global _destroyed
        _destroyed += 1
        if FAULT == "crash_in_destroy" and _destroyed == 30:
            ctypes.string_at(8)
