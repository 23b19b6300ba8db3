"""How much native threads overlap, against Python threads that do the same with the same program.

Both load the program, run it, look at the answer and drop it, again and again, over one inputs' answers; by
turns, in one process. ExecuTorch's Python bindings hold the interpreter's lock, so that Python threads prove
nothing about a delegate. Ends 1 when the native threads did not overlap more.

    python benchmarks/stress_overlap.py
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

from in_subject import run_inside

THREADS, ITERATIONS, ROUNDS = 4, 50, 5


def main() -> int:
    return run_inside("base", __file__)


def inside() -> int:
    import numpy
    import torch
    from executorch.exir import to_edge_transform_and_lower
    from executorch.runtime import Runtime

    from edgeproof.cases.stress import residual_mlp
    from edgeproof.native import build
    from edgeproof.stress.overlap import Overlap, measure

    torch.manual_seed(0)
    model = residual_mlp()
    exported = torch.export.export(model.module, model.args)
    pte = to_edge_transform_and_lower(exported).to_executorch().buffer
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.pte"
        path.write_bytes(pte)
        runtime = Runtime.get()
        [given] = model.args
        right = runtime.load_program(path).load_method("forward").execute((given,))[0].numpy()
        program = (str(path), "forward", "", {}, [[given.numpy()]], [[right.copy()]], [0.0])
        driver = build.load("driver").Driver([program])

        def by_native(threads: int) -> tuple[float, Any, Any]:
            told = driver.run("private", threads, ITERATIONS, 1, 0)
            assert told["failed"] == 0, told["failures"]
            return told["seconds"], told["loads"], told["runs"]

        def by_python(threads: int) -> tuple[float, Any, Any]:
            loads: list[list[tuple[int, int]]] = [[] for _ in range(threads)]
            runs: list[list[tuple[int, int]]] = [[] for _ in range(threads)]
            gate = threading.Barrier(threads + 1)

            def work(thread: int) -> None:
                gate.wait()
                for _ in range(ITERATIONS):
                    start = time.monotonic_ns()
                    loaded = runtime.load_program(path)
                    method = loaded.load_method("forward")
                    between = time.monotonic_ns()
                    [answer] = method.execute((given,))
                    loads[thread].append((start, between))
                    runs[thread].append((between, time.monotonic_ns()))
                    assert numpy.array_equal(answer.numpy(), right)
                    del answer, method, loaded

            running = [threading.Thread(target=work, args=(t,)) for t in range(threads)]
            for thread in running:
                thread.start()
            gate.wait()
            start = time.perf_counter()
            for thread in running:
                thread.join()
            return time.perf_counter() - start, loads, runs

        def looked_at(ran: tuple[float, Any, Any], alone: tuple[float, Any, Any]) -> Overlap:
            shortest = min(end - begin for calls in alone[2] for begin, end in calls) * 1e-9
            return measure(ran[2], [shortest] * THREADS)

        found: dict[str, list[tuple[float, Overlap]]] = {"native": [], "Python": []}
        for _ in range(ROUNDS):
            for name, go in (("native", by_native), ("Python", by_python)):
                alone = go(1)
                ran = go(THREADS)
                faster = THREADS * alone[0] / ran[0]
                found[name].append((faster, looked_at(ran, alone)))
    together = {}
    print(f"{THREADS} threads x {ITERATIONS}, {os.cpu_count()} cores, median of {ROUNDS} rounds")
    for name, rounds in found.items():
        together[name] = median(overlap.together or 0.0 for _, overlap in rounds)
        inside_at_once = median(o.overlapped / o.busy for _, o in rounds)
        print(
            f"{name:>6} threads: {100 * together[name]:5.1f} % of the runs waited for no other, "
            f"two or more were inside a run for {100 * inside_at_once:5.1f} % of the time, "
            f"{median(f for f, _ in rounds):.2f} times the work of one thread in the same time"
        )
    return int(together["native"] <= together["Python"])


if __name__ == "__main__":
    raise SystemExit(inside() if sys.argv[1:] == ["inside"] else main())
