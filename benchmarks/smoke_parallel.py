"""All flows of ``edgeproof smoke`` with two workers, against the same cells one after the other.

Both run on subjects that are made already, in turn; the ratio of each pair is printed, and their median
must not be above 0.65.

    python benchmarks/smoke_parallel.py [PAIRS]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

LIMIT = 0.65


def seconds(workers: int) -> float:
    command = [sys.executable, "-m", "edgeproof", "smoke", "--workers", str(workers)]
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    make = [sys.executable, "-m", "edgeproof", "subjects", "make"]
    subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
    ratios = []
    for _ in range(pairs):
        two, one = seconds(2), seconds(1)
        ratios.append(two / one)
        print(f"two workers {two:6.1f} s   one worker {one:6.1f} s   ratio {two / one:.3f}")
    median = statistics.median(ratios)
    print(f"median ratio {median:.3f} of {pairs} pairs (limit {LIMIT})")
    sys.exit(median > LIMIT)


if __name__ == "__main__":
    main()
