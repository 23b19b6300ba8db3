"""The worker's conversation with the host, and the evidence it leaves when it dies."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import json
import math
import os
import queue
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

from edgeproof.plan.case import Case
from edgeproof.plan.flow import Flow
from edgeproof.plan.stage import Stage


class Streams:
    """The process's standard streams, kept for the protocol and replaced for everyone else."""

    def __init__(self, log: Path) -> None:
        sys.stdout.flush()
        self._requests = os.fdopen(os.dup(0), "r", encoding="utf-8")
        self._events = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        self.redirect(log)
        _unbuffer_c_streams()

    @property
    def requests(self) -> TextIO:
        """What the host asks for, a JSON object a line."""
        return self._requests

    def tell(self, event: dict[str, Any]) -> None:
        """Send one event. The host being gone ends the worker: there is no one to work for."""
        try:
            self._events.write(json.dumps(_finite(event)) + "\n")
            self._events.flush()
        except OSError:
            _leave_with_children()

    def redirect(self, log: Path) -> None:
        """Send everything printed from now on, by Python or by native code, to ``log``."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # code under test may have put anything there
                stream.flush()
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.close(file)
        sys.stdout = open(1, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115


def _unbuffer_c_streams() -> None:
    """Make native code's ``printf`` reach the log line by line, so that a crash loses none of it."""
    if os.name != "posix":
        return
    line_buffered = 1
    name = "__stdoutp" if sys.platform == "darwin" else "stdout"
    c = ctypes.CDLL(None)
    with contextlib.suppress(AttributeError, ValueError):
        c.setvbuf(ctypes.c_void_p.in_dll(c, name), None, line_buffered, 0)


def _finite(value: Any) -> Any:
    """JSON has no infinity or NaN: they are told as strings, ``"inf"``, ``"-inf"`` and ``"nan"``."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def _read_requests(stream: TextIO, requests: queue.Queue[dict[str, Any]]) -> None:
    for line in stream:
        requests.put(json.loads(line))
    # End of file: the host died. Whatever the main thread is in the middle of, no one wants it.
    _leave_with_children()


def _leave_with_children() -> None:
    """End this process and what it started, which the host is not there to do any more."""
    if os.name == "posix" and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _end_with_host() -> None:
    """Start a process that ends this one, and all it started, when the host is gone.

    The thread that reads from the host sees that too, but cannot run while native code keeps the
    interpreter's lock, and compilers do so for minutes. It waits for the other end of the requests' pipe
    to be closed, without reading. Forked twice, so that it is no child that the code under test could
    wait for; the host ends it with the worker, since it is of the same process group.
    """
    if os.name != "posix" or os.getpgrp() != os.getpid():
        return
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    if os.fork():
        os._exit(0)
    os.close(1)
    os.close(2)
    hang_up = select.poll()
    hang_up.register(0, 0)
    hang_up.poll()
    os.killpg(0, signal.SIGKILL)


def serve(*, log: Path, crash_log: Path) -> None:
    """Answer the host until it says ``exit``."""
    _end_with_host()
    streams = Streams(log)
    crash_file = crash_log.open("w")
    faulthandler.enable(file=crash_file, all_threads=True)
    requests: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=_read_requests, args=(streams.requests, requests), daemon=True).start()
    start = time.perf_counter()
    import torch

    # Python's handler goes first and hands on to torch's, which writes the native frames. Torch's allocates
    # memory, so a crash inside malloc hangs in it: what Python's wrote tells the host that this is the end.
    faulthandler.disable()
    torch._C._set_print_stack_traces_on_fatal_signal(True)
    faulthandler.enable(file=crash_file, all_threads=True)
    streams.tell(
        {"event": "ready", "torch": torch.__version__, "seconds": time.perf_counter() - start}
    )
    prepared = _Shared()
    while (request := requests.get())["do"] != "exit":
        streams.redirect(Path(request["log"]))
        if request["do"] == "probe":
            streams.tell({"event": "probed", **probe(Flow(**_tuples(request["flow"])))})
        elif request["do"] == "list":
            streams.tell({"event": "listed", **_list(request["suite"])})
        elif request["do"] == "bundle":
            _run_bundle(request, streams, prepared)
            gc.collect()
        else:
            _run_cell(request, streams, prepared)
            # What the cell leaves behind is part of it: a destructor may crash as well.
            gc.collect()
        streams.redirect(log)
        if request["do"] in ("cell", "bundle"):
            streams.tell({"event": "idle", "cell": request["cell"]})


def _tuples(data: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}


def probe(flow: Flow) -> dict[str, Any]:
    """Whether the flow's libraries and modules load here and the runtime has its delegate.

    ``problem`` is empty when the flow can work; else it says what is in the way.
    """
    for name in flow.libraries:
        try:
            ctypes.CDLL(name)
        except OSError as fault:
            return {"problem": f"the system lacks {name}: {fault}"}
    for name in flow.imports:
        try:
            importlib.import_module(name)
        except Exception as fault:
            return {"problem": f"import {name}: {type(fault).__name__}: {fault}"}
    if flow.installs and flow.runs_here():
        try:
            _function(flow.installs)()
        except Exception as fault:
            return {"problem": f"{flow.installs}: {_sentence(fault)}"}
    if flow.delegate and flow.runs_here():
        from executorch.runtime import Runtime

        registry = Runtime.get().backend_registry
        if not registry.is_available(flow.delegate):
            names = ", ".join(sorted(registry.registered_backend_names)) or "none"
            return {
                "problem": f"{flow.delegate} is not available in the runtime (registered: {names})"
            }
    return {"problem": ""}


def _function(path: str) -> Callable[[], None]:
    module, _, name = path.partition(":")
    function: Callable[[], None] = getattr(importlib.import_module(module), name)
    return function


def _sentence(fault: BaseException) -> str:
    """The fault in a sentence; where it was raised, when it says nothing itself (a bare assert)."""
    said = "".join(traceback.format_exception_only(fault)).strip()
    frames = traceback.extract_tb(fault.__traceback__)
    if said == type(fault).__name__ and frames:
        last = frames[-1]
        said += f" in {last.name} ({last.filename}:{last.lineno}): {last.line}"
    return said[:2000]


class _Shared:
    """What cells of the same cases have in common; that of others is dropped as soon as these come."""

    def __init__(self) -> None:
        self._cases: dict[tuple[str, int], Any] = {}
        self.exports: Any = None

    def of(self, cases: Sequence[tuple[Case, int]]) -> list[Any]:
        """One ``Prepared`` for each case and seed."""
        from edgeproof.worker.bundle import Exports
        from edgeproof.worker.prepared import Prepared

        wanted = {(case.id, seed): case for case, seed in cases}
        if not wanted.keys() <= self._cases.keys():
            self._cases = {
                key: self._cases.get(key) or Prepared(case, key[1]) for key, case in wanted.items()
            }
            self.exports = Exports(unfit=self.exports.unfit if self.exports else {})
        return [self._cases[case.id, seed] for case, seed in cases]


def _list(suite: str) -> dict[str, Any]:
    """The cases of a suite as this environment has them; ``problem`` says why it cannot be listed."""
    from edgeproof.cases.suites import listed

    try:
        return {"problem": "", "cases": [case.to_json() for case in listed(suite)]}
    except Exception as fault:
        os.write(2, traceback.format_exc().encode(errors="replace"))
        return {"problem": _sentence(fault), "cases": []}


def _run_bundle(request: dict[str, Any], streams: Streams, shared: _Shared) -> None:
    """Prove of several cells in one flow what can be proved together."""
    flow = Flow(**_tuples(request["flow"]))
    name = request["cell"]

    def emit(event: dict[str, Any]) -> None:
        streams.tell({**event, "cell": name})

    emit({"event": "taken"})
    ended: dict[str, Any] = {"event": "bundle_ended", "proved": {}, "alone": {}}
    problem = probe(flow)["problem"]
    if problem:
        emit({**ended, "alone": {cell["cell"]: problem for cell in request["cells"]}})
        return
    from edgeproof.flows.registry import backend_of
    from edgeproof.worker.bundle import BundleRun
    from edgeproof.worker.fixed_costs import pay_once

    pay_once()
    cases = [(Case.from_json(cell["case"]), cell["seed"]) for cell in request["cells"]]
    members = dict(zip((cell["cell"] for cell in request["cells"]), shared.of(cases), strict=True))

    def reached(stage: Stage) -> None:
        emit({"event": "bundle_reached", "stage": stage.value})

    run = BundleRun(members, flow, backend_of(flow), shared.exports, reached)
    try:
        run.go()
    except BaseException as fault:
        # Code under test may raise anything. Its own run will tell who it was.
        os.write(2, traceback.format_exc().encode(errors="replace"))
        left = members.keys() - run.proved.keys() - run.alone.keys()
        run.alone.update(dict.fromkeys(left, _sentence(fault)))
    emit({**ended, "proved": run.proved, "alone": run.alone})


def _run_cell(request: dict[str, Any], streams: Streams, shared: _Shared) -> None:
    flow = Flow(**_tuples(request["flow"]))
    case = Case.from_json(request["case"])
    cell = request["cell"]

    def emit(event: dict[str, Any]) -> None:
        streams.tell({**event, "cell": cell})

    emit({"event": "taken"})
    start = time.perf_counter()
    problem = probe(flow)["problem"]
    emit({"event": "imported", "seconds": round(time.perf_counter() - start, 4)})
    if problem:
        emit({"event": "ended", "outcome": "unavailable", "problem": problem, "evidence": {}})
        return
    from edgeproof.worker.fixed_costs import pay_once
    from edgeproof.worker.stages import CellRun

    if not case.whole:  # what proves a whole model runs torch as it came
        pay_once()
    [prepared] = shared.of([(case, request["seed"])])
    run = CellRun(prepared, flow, emit, keep=request["keep"])
    outcome: dict[str, Any] = {"outcome": "done"}
    try:
        run.go()
    except SystemExit as fault:
        outcome = {"outcome": "raised", "problem": f"the code called sys.exit({fault.code!r})"}
    except BaseException as fault:
        # Also those that are no Exception: the user's code may raise KeyboardInterrupt or its own.
        said = traceback.format_exc()
        os.write(2, said.encode(errors="replace"))  # sys.stderr may not be ours any more
        outcome = {"outcome": "raised", "problem": _sentence(fault), "traceback": said[-8000:]}
    emit({"event": "ended", "stage": run.stage.value, "evidence": run.evidence, **outcome})
