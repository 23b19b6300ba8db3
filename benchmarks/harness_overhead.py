"""What edgeproof costs over a bare script: MobileNetV3 on xnnpack_fp32, process start to finish.

The bare script makes the calls a person would write down, in a fresh process of the same subject: build,
eager, export, lower, serialize, load, run, compare. edgeproof does these and prepares (reuses) the subject,
conditions the model, measures the noise floor and the delegated share, and writes the report. The two run in
turn; the ratio of each pair is printed, and their median must not be above 1.10.

    python benchmarks/harness_overhead.py [PAIRS]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from in_subject import python_of

LIMIT = 1.10

BARE = """
import torch
from torchvision.models import mobilenet_v3_small
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.runtime import Runtime
torch.manual_seed(0)
model, inputs = mobilenet_v3_small().eval(), (torch.randn(1, 3, 224, 224),)
with torch.no_grad():
    expected = model(*inputs)
program = torch.export.export(model, inputs)
edge = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
pte = edge.to_executorch().buffer
loaded = Runtime.get().load_program(pte)
answer = loaded.load_method("forward").execute(inputs)[0]
torch.testing.assert_close(answer, expected, rtol=1e-3, atol=1e-3)
"""


def seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    edgeproof = [sys.executable, "-m", "edgeproof"]
    bare = [python_of("base"), "-I", "-c", BARE]
    ours = [*edgeproof, "smoke", "--flows", "xnnpack_fp32"]
    seconds(bare), seconds(ours)  # files into memory, bytecode onto the disk
    ratios = []
    for _ in range(pairs):
        one, other = seconds(ours), seconds(bare)
        ratios.append(one / other)
        print(f"edgeproof {one:6.2f} s   bare script {other:6.2f} s   ratio {one / other:.3f}")
    median = statistics.median(ratios)
    print(f"median ratio {median:.3f} of {pairs} pairs (limit {LIMIT})")
    sys.exit(median > LIMIT)


if __name__ == "__main__":
    main()
