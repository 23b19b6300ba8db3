"""What ExecuTorch and our delegate cost over Core AI's own runtime, and what its cache saves.

In one process, in turn: a call through ExecuTorch's Python runtime against a call of coreai.runtime with the
same model (a small MLP, MobileNetV3-small); loading MobileNetV3 with its specialized model in the cache
against loading it into an empty cache; and, in processes of their own, the most memory that either load
takes, against the size of the model's weights. A ratio above its limit ends 1.

    python benchmarks/coreai_runtime.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from in_subject import run_inside

LIMITS = {"small MLP, call": 1.3, "MobileNetV3, call": 1.02, "MobileNetV3, warm load": 0.10}


def main() -> int:
    return run_inside("coreai", __file__)


def ratios(ours: Any, theirs: Any, *, calls: int, rounds: int = 7) -> tuple[float, float, float]:
    """Seconds of one call of either and the median of the ratios, measured in turn."""
    pairs = []
    for _ in range(rounds):
        pair = []
        for call in (ours, theirs):
            start = time.perf_counter()
            call(calls)
            pair.append((time.perf_counter() - start) / calls)
        pairs.append(pair)
    one, other = (statistics.median(pair[i] for pair in pairs) for i in range(2))
    return one, other, statistics.median(a / b for a, b in pairs)


def inside() -> int:
    import asyncio
    import tempfile

    import torch
    from coreai.runtime import AIModel, NDArray
    from executorch.runtime import Runtime
    from torchvision.models import mobilenet_v3_small

    from edgeproof.coreai import cache_stats, install_runtime, lower

    torch.manual_seed(0)
    layers = (torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
    models = {
        "small MLP": (torch.nn.Sequential(*layers).eval(), torch.randn(4, 64), 500),
        "MobileNetV3": (mobilenet_v3_small().eval(), torch.randn(1, 3, 224, 224), 3),
    }
    measured = {}
    for name, (module, image, calls) in models.items():
        cache = Path(tempfile.mkdtemp())
        install_runtime(cache_dir=cache)
        pte = lower(torch.export.export(module, (image,))).to_executorch().buffer
        program = Runtime.get().load_program(pte)
        method = program.load_method("forward")
        [folder] = cache.glob("*/model.aimodelx")
        function = asyncio.run(AIModel.load(folder)).load_function("main")
        [given], [answer] = function.desc.input_names, function.desc.output_names
        array = image.numpy()

        def through(count: int, method: Any = method, image: Any = image) -> None:
            for _ in range(count):
                method.execute((image,))

        def direct(
            count: int, function: Any = function, array: Any = array, names: Any = (given, answer)
        ) -> None:
            async def call() -> None:
                for _ in range(count):
                    (await function({names[0]: NDArray(array)}))[names[1]].numpy()

            asyncio.run(call())

        through(calls), direct(calls)
        one, other, ratio = ratios(through, direct, calls=calls)
        measured[f"{name}, call"] = ratio
        print(
            f"{name}, call: through ExecuTorch {one * 1e3:8.3f} ms   "
            f"coreai.runtime {other * 1e3:8.3f} ms   ratio {ratio:.3f}"
        )

    def load(count: int, *, cold: bool) -> None:
        for _ in range(count):
            if cold:
                install_runtime(cache_dir=tempfile.mkdtemp())
            Runtime.get().load_program(pte).load_method("forward")

    load(1, cold=True)
    before = cache_stats()
    warm, cold, ratio = ratios(
        lambda n: load(n, cold=False), lambda n: load(n, cold=True), calls=1, rounds=9
    )
    after = cache_stats()
    assert (after.hits - before.hits, after.misses - before.misses) == (9, 9)
    measured["MobileNetV3, warm load"] = ratio
    print(
        f"MobileNetV3, load: warm {warm * 1e3:.1f} ms   cold {cold * 1e3:.1f} ms   "
        f"ratio {ratio:.3f}"
    )
    with tempfile.TemporaryDirectory() as folder:
        path, cache = Path(folder) / "model.pte", Path(folder) / "cache"
        path.write_bytes(pte)
        weights = sum(p.nbytes for p in module.state_dict().values())
        for kind in ("cold", "warm"):
            peak = int(
                subprocess.run(
                    [sys.executable, __file__, "memory", str(path), str(cache)],
                    check=True,
                    capture_output=True,
                    text=True,
                ).stdout.split()[-1]
            )
            print(
                f"MobileNetV3, memory of a {kind} load: {peak / 1e6:.1f} MB at most, "
                f"{peak / weights:.2f} times its weights ({weights / 1e6:.1f} MB)"
            )
    over = [name for name, limit in LIMITS.items() if measured[name] > limit]
    for name in over:
        print(f"{name}: {measured[name]:.3f} is above its limit of {LIMITS[name]}")
    return 1 if over else 0


def memory(path: str, cache: str) -> None:
    """Print by how many bytes loading raises the most memory that this process ever held."""
    import torch
    from executorch.runtime import Runtime

    from edgeproof.coreai import install_runtime, lower

    install_runtime(cache_dir=cache)
    # Everything that a first load brings in once is in already: libraries, Core AI's contexts.
    small = lower(torch.export.export(torch.nn.ReLU(), (torch.randn(3),))).to_executorch().buffer
    Runtime.get().load_program(small).load_method("forward")
    program = Runtime.get().load_program(path)
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    method = program.load_method("forward")
    assert method is not None
    print(resident("VmHWM") - before)


def resident(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"/proc/self/status has no {name}")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments[:1] == ["inside"]:
        raise SystemExit(inside())
    if arguments[:1] == ["memory"]:
        memory(*arguments[1:])
    else:
        raise SystemExit(main())
