"""Core AI inside ExecuTorch's Python runtime: ``install_runtime()`` and what can be asked of it."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from edgeproof.coreai.runtime import turns
from edgeproof.coreai.runtime.cache import Cache, CacheStats, cache_stats
from edgeproof.coreai.runtime.delegate import Backend, default_folder
from edgeproof.coreai.runtime.errors import DelegateError

__all__ = [
    "CacheStats",
    "DelegateError",
    "cache_at",
    "cache_stats",
    "install_runtime",
    "last_error",
]

BACKEND = "CoreAIBackend"
_lock = threading.Lock()
_backend: Backend | None = None


def install_runtime(
    *, cache_dir: str | os.PathLike[str] | None = None, cache_limit: int | None = None
) -> None:
    """Register ``CoreAIBackend`` with the ExecuTorch runtime of this process.

    Programs with parts for Core AI then load and run through ``executorch.runtime.Runtime`` like any other.
    ``cache_dir`` is where specialized models are kept (a folder below edgeproof's own cache unless given),
    at most ``cache_limit`` bytes of them (8 GiB unless given). Asked again it changes these two; models
    that are loaded already stay as they are. Does nothing else where a CoreAIBackend that is not ours is
    registered already, as in Apple's own builds.

    It changes two things for the whole process. Calls of one program from several threads take turns
    (``runtime.turns``). And ExecuTorch's log goes to the process's standard error, not through
    ``sys.stderr``, where it would come back to a thread that has gone on: in the same form, which names
    no level, and with the same levels left out, those that the wheel was built without.

    Raises ``edgeproof.native.build.NativeBuildError`` where the C++ half cannot be built.
    """
    global _backend
    with _lock:
        if _backend is None:
            from edgeproof.native import build

            build.installed_executorch()
            # The bindings bring the library that the bridge registers with.
            from executorch.extension.pybindings import portable_lib
            from executorch.runtime import Runtime

            if Runtime.get().backend_registry.is_available(BACKEND):
                return
            backend = Backend(Cache(default_folder()))
            error = build.load("bridge").register_backend(BACKEND, backend)
            if error:
                raise RuntimeError(f"ExecuTorch did not take {BACKEND}: error {error:#x}")
            turns.install(portable_lib)
            _backend = backend
        if cache_dir is not None or cache_limit is not None:
            folder = _backend.cache.folder if cache_dir is None else Path(cache_dir).expanduser()
            limit = _backend.cache.limit if cache_limit is None else cache_limit
            _backend.cache = Cache(folder.absolute(), limit=limit)


@contextlib.contextmanager
def cache_at(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Keep specialized models in ``folder`` meanwhile, and then where they were kept before."""
    install_runtime()
    before = _backend.cache if _backend is not None else None
    install_runtime(cache_dir=folder)
    try:
        yield
    finally:
        if _backend is not None and before is not None:
            _backend.cache = before


def last_error() -> str:
    """What the delegate said last when it failed; ExecuTorch itself passes on an error code alone."""
    return _backend.last_error if _backend is not None else ""
