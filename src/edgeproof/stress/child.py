"""The process that is stressed: in the subject, without torch, one for each try.

It loads the libraries of the ExecuTorch that is installed, registers the delegates that Python brings, and
has the native driver do the rest. What it finds goes to its standard output, one JSON object a line; what
libraries print goes to standard error, and so do native stacks.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import importlib.util
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from edgeproof.stress.overlap import measure
from edgeproof.stress.plan import Mode, Program, Spec

BLOCKS = 20
_BLOCK_SECONDS = 0.005
_ALONE = 10
_ALONE_SECONDS = 5.0
_EVICT_AFTER = 2.0
"""A cache is emptied after so many times what it takes to fill it."""
# Driven as they are named, but for two: these differ in what goes on beside the threads.
_DRIVEN = {Mode.MIXED: "private", Mode.RELOAD: "private"}


def main(spec_file: str) -> None:
    """Do what the spec in the file asks for."""
    tell = _take_streams()
    _end_with_host()
    spec = Spec.from_json(json.loads(Path(spec_file).read_text(encoding="utf-8")))
    sys.path[:0] = spec.paths
    os.environ.update(spec.env)
    driver = _driver(spec)
    alone = [_alone(driver, spec, program) for program in spec.programs]
    tell({"event": "alone", "programs": alone})
    Path(spec.folder, "cache").mkdir(parents=True)
    for phase in spec.phases:
        tell({"event": "phase", "phase": phase, **_phase(driver, spec, alone)})
    tell({"event": "ended"})


def _take_streams() -> Callable[[dict[str, Any]], None]:
    """Keep standard output for what is told; everyone else's goes to standard error."""
    faulthandler.enable(all_threads=True)
    events = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)

    def tell(event: dict[str, Any]) -> None:
        events.write(json.dumps(event) + "\n")

    return tell


def _end_with_host() -> None:
    """End when the host does: it holds the other end of standard input."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _driver(spec: Spec) -> Any:
    import executorch

    from edgeproof.native import build

    driver = build.load("driver")
    driver.write_native_stacks(signal.SIGUSR2)
    _find_openvino()
    folder = Path(next(iter(executorch.__path__))) / "lib"
    # As the Python bindings have them. One that lacks what its backend needs is missed by who needs it.
    for library in sorted(folder.glob("libexecutorch*.so")):
        with contextlib.suppress(OSError):
            ctypes.CDLL(str(library))
    for installs in dict.fromkeys(p.installs for p in spec.programs if p.installs):
        _function(installs)()
    return driver


def _find_openvino() -> None:
    """Name OpenVINO's library, as executorch's Python bindings do when they are imported: its delegate
    is not available otherwise."""
    found = importlib.util.find_spec("openvino")
    for folder in (found and found.submodule_search_locations) or ():
        for library in sorted(Path(folder, "libs").glob("libopenvino_c.so*"))[:1]:
            os.environ.setdefault("OPENVINO_LIB_PATH", str(library))


def _function(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def _programs(spec: Spec, programs: Sequence[Program], cache: Path) -> list[tuple[Any, ...]]:
    return [
        (
            str(Path(program.folder) / "program.pte"),
            "forward",
            program.delegate,
            {program.cache_option: str(cache)} if program.cache_option else {},
            _arrays(program, "inputs"),
            _arrays(program, "answers"),
            _tolerances(program),
        )
        for program in programs
    ]


def _tolerances(program: Program) -> list[float]:
    """How far off each output may be, absolute."""
    most = [0.0] * program.outputs
    for answers in _arrays(program, "answers") if program.unstable else ():
        for n, answer in enumerate(answers):
            if answer.size and answer.dtype.kind == "f":
                most[n] = max(most[n], float(abs(answer).max()) * program.unstable)
    return most


def _arrays(program: Program, which: str) -> list[list[Any]]:
    """For each turn, the arrays in their order."""
    import numpy

    with numpy.load(Path(program.folder) / f"{which}.npz") as held:
        found: list[list[Any]] = [[] for _ in range(program.turns)]
        orders = program.orders.get(which)
        for name in sorted(held.files, key=lambda name: [int(n) for n in name.split("_")]):
            turn, position = (int(n) for n in name.split("_"))
            array = held[name]
            found[turn].append(
                array.transpose(numpy.argsort(orders[position])) if orders else array
            )
    return found


def _alone(driver: Any, spec: Spec, program: Program) -> dict[str, Any]:
    """What one thread needs, in seconds: the first load, and the shortest of those after it."""
    folder = Path(spec.folder, f"alone-{program.flow}")
    folder.mkdir(parents=True)
    stressed = driver.Driver(_programs(spec, [program], folder))
    first = stressed.run("private", 1, 1, 1, spec.seed)
    took = max(first["seconds"], 1e-6)
    times = max(1, min(_ALONE, int(_ALONE_SECONDS / took)))
    again = stressed.run("private", 1, times, 1, spec.seed)
    return {
        "flow": program.flow,
        "failed": first["failed"] + again["failed"],
        "failures": [*first["failures"], *again["failures"]],
        "first_load": _shortest(first["loads"]),
        "load": _shortest(again["loads"]),
        "run": _shortest(again["runs"]),
    }


def _shortest(spans: Sequence[Sequence[tuple[int, int]]]) -> float | None:
    times = [end - begin for calls in spans for begin, end in calls]
    return min(times) * 1e-9 if times else None


def _phase(driver: Any, spec: Spec, alone: Sequence[dict[str, Any]]) -> dict[str, Any]:
    cache = Path(spec.folder, "cache")
    before, stats = _size(cache), _stats(spec)
    stressed = driver.Driver(_programs(spec, spec.programs, cache))
    filled_in = max(a["first_load"] or 0 for a in alone)
    reloading = spec.mode is Mode.RELOAD
    with _evicting(spec, cache, filled_in) if reloading else contextlib.nullcontext():
        found = stressed.run(
            _DRIVEN.get(spec.mode, spec.mode.value),
            spec.load.threads,
            spec.load.iterations,
            _blocks(spec, alone),
            spec.seed,
        )
    after = _stats(spec)
    times = {
        kind: [alone[t % len(alone)][kind] for t in range(spec.load.threads)]
        for kind in ("load", "run")
    }
    return {
        "seconds": round(found["seconds"], 4),
        "iterations": spec.load.threads * spec.load.iterations,
        "failed": found["failed"],
        "failures": found["failures"],
        "outputs_checked": found["outputs_checked"],
        "load": measure(found["loads"], times["load"]).to_json(),
        "run": measure(found["runs"], times["run"]).to_json(),
        "samples": found["samples"],
        "cache": {
            "bytes": [before, _size(cache)],
            **{
                name: {kind: after[name][kind] - stats[name][kind] for kind in after[name]}
                for name in after
            },
        },
    }


def _blocks(spec: Spec, alone: Sequence[dict[str, Any]]) -> int:
    """In how many blocks the iterations are done, with a look at memory in between.

    No block is so short that threads end before others were woken: they would not overlap.
    """
    shortest = min((a["load"] or 0) + (a["run"] or 0) for a in alone)
    work = shortest * spec.load.threads * spec.load.iterations
    return max(1, min(BLOCKS, int(work / _BLOCK_SECONDS)))


def _stats(spec: Spec) -> dict[str, dict[str, int]]:
    """Hits and misses so far, for each flow whose delegate has a cache."""
    found = {}
    for program in spec.programs:
        if program.cache_stats:
            stats = _function(program.cache_stats)()
            found[program.flow] = {"hits": stats.hits, "misses": stats.misses}
    return found


def _size(folder: Path) -> int:
    size = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # taken away meanwhile
            size += path.stat().st_size if path.is_file() else 0
    return size


@contextlib.contextmanager
def _evicting(spec: Spec, cache: Path, filled_in: float) -> Iterator[None]:
    """Take the cache's entries away, again and again, while the others use it.

    ``filled_in`` is how many seconds it takes one thread to fill it.
    """
    stop = threading.Event()
    clear = [_function(p.cache_clear) for p in spec.programs if p.cache_clear]

    def evict() -> None:
        while not stop.wait(_EVICT_AFTER * filled_in):
            for take_away in clear:
                take_away(cache)

    thread = threading.Thread(target=evict)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
