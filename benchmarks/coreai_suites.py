"""Runs upstream's operator or model suite in our Core AI flows, and publishes the ledger.

Every case of every flow with its outcome, the reason where it did not pass, how many nodes were delegated,
versions, date and the command; and, where the flow of the wheel's own lowering is among them, whether ours
delegates no less over the cases which that one gets right. The models take half an hour a flow.

    python benchmarks/coreai_suites.py operators docs/results/coreai-operators.json fp32 upstream_fp32

A flow that was run before stays in the file until it is run again. Ends 1, and says why, when a case of ours
did not pass or was not skipped with a reason, when none passed, when pytest could not run them all, and when
ours delegates less than the released lowering.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import uv
from in_subject import SOURCES, python_of

SUITES = "executorch.backends.test.suite"
SECONDS = {"operators": 120, "models": 1200}
PACKAGES = (
    "executorch",
    "torch",
    "torchvision",
    "torchaudio",
    "coreai-core",
    "coreai-torch",
    "coreai-opt",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suite", choices=sorted(SECONDS))
    parser.add_argument("ledger", type=Path)
    parser.add_argument("flows", nargs="+", help="fp32, fp16, w8a8, w8, w4, or upstream_fp32 ...")
    parser.add_argument("--workers", default="2")
    parser.add_argument("-k", dest="chosen", default="")
    given = parser.parse_args()
    python = python_of("coreai")
    ledger = json.loads(given.ledger.read_text()) if given.ledger.exists() else {"flows": {}}
    with tempfile.TemporaryDirectory() as tools:
        wanted = ("pytest", "pytest-xdist", "pytest-timeout", "pytest-json-report")
        install = [uv.find_uv_bin(), "pip", "install", "--quiet", "--python", python]
        subprocess.run([*install, "--target", tools, *wanted], check=True)
        # The models' suite wants it; by itself, so that it brings no torch of its own.
        subprocess.run([*install, "--target", tools, "--no-deps", "torchaudio"], check=True)
        for flow in given.flows:
            found = run(python, tools, given.suite, flow, given.workers, given.chosen)
            ledger["suite"] = f"{SUITES}.{given.suite}"
            ledger["flows"][f"coreai_{flow}"] = found
            print(f"coreai_{flow}: {found['summary']} in {found['seconds']} s")
            given.ledger.parent.mkdir(parents=True, exist_ok=True)
            given.ledger.write_text(json.dumps(ledger, indent=1, sort_keys=True) + "\n")
    wrong = []
    for flow in given.flows:
        wrong += faults(f"coreai_{flow}", ledger["flows"][f"coreai_{flow}"])
    for line, less in compared(ledger["flows"]):
        print(line)
        wrong += [line] if less else []
    for line in wrong:
        print(f"WRONG: {line}", file=sys.stderr)
    return int(bool(wrong))


def faults(name: str, found: dict[str, Any]) -> list[str]:
    """Why a flow's run proves nothing or shows a fault of ours. The released lowering may fail cases."""
    wrong = []
    if found["exit_code"] not in (0, 1):
        wrong.append(f"{name}: pytest ended {found['exit_code']}: not every case was run")
    if not found["summary"].get("passed"):
        wrong.append(f"{name}: no case passed, of {len(found['cases'])}")
    for case, told in found["cases"].items():
        bad = told["outcome"] not in ("passed", "skipped")
        if bad and "upstream" not in name:
            wrong.append(f"{name}: {case}: {told['outcome']}: {told['reason']}")
        if told["outcome"] == "skipped" and not told["reason"]:
            wrong.append(f"{name}: {case}: skipped without a reason")
    return wrong


def run(
    python: str, tools: str, suite: str, flow: str, workers: str, chosen: str
) -> dict[str, Any]:
    """One flow through the suite, as its command line is documented."""
    arguments = [
        *("-c", "/dev/null", "-p", "edgeproof.coreai.upstream_suite"),
        *("--pyargs", f"{SUITES}.{suite}", "-m", f"flow_coreai_{flow}"),
        *("-n", workers, "--timeout", str(SECONDS[suite])),
        *(["-k", chosen] if chosen else []),
    ]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        start = time.monotonic()
        done = subprocess.run(
            [
                python,
                "-m",
                "pytest",
                *arguments,
                "-q",
                "--json-report",
                f"--json-report-file={report}",
            ],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCES), tools])},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        seconds = round(time.monotonic() - start)
        print((done.stdout.strip().splitlines() or ["pytest printed nothing"])[-1])
        if not report.exists():
            raise SystemExit(
                f"pytest ended {done.returncode} without a report:\n{done.stdout[-4000:]}"
            )
        tests = json.loads(report.read_text())["tests"]
    cases = {}
    for test in tests:
        nodes = sum(
            int(s.get("Delegated Nodes") or 0) for s in test.get("metadata", {}).get("subtests", [])
        )
        case = {"outcome": test["outcome"], "delegated_nodes": nodes}
        if test["outcome"] != "passed":
            case["reason"] = reason(test)
        file, _, name = test["nodeid"].rpartition("/")[2].partition("::")
        name = name.replace(f"coreai_{flow}-", "").replace(f"[coreai_{flow}]", "")
        cases[f"{file}::{name}"] = case
    summary: dict[str, int] = {}
    for case in cases.values():
        summary[case["outcome"]] = summary.get(case["outcome"], 0) + 1
    return {
        "command": " ".join(["python", "-m", "pytest", *arguments]),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "versions": versions(python, tools),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "seconds": seconds,
        "exit_code": done.returncode,
        "summary": summary,
        "cases_with_a_delegate": sum(case["delegated_nodes"] > 0 for case in cases.values()),
        "delegated_nodes": sum(case["delegated_nodes"] for case in cases.values()),
        "cases": cases,
    }


def reason(test: dict[str, Any]) -> str:
    """Why a test was skipped or failed: what the suite wrote down, else the last line of what was raised."""
    for subtest in test.get("metadata", {}).get("subtests", []):
        if subtest.get("Error"):
            return f"{subtest['Result Detail']}: {subtest['Error'].splitlines()[0]}"
    for phase in ("call", "setup"):
        said = str(test.get(phase, {}).get("longrepr", ""))
        if said.startswith("("):  # of a skipped test: the file, the line, and why
            said = ast.literal_eval(said)[2].removeprefix("Skipped: ")
        if said:
            return said.splitlines()[-1][-300:]
    return ""


def versions(python: str, tools: str) -> dict[str, str]:
    code = (
        "import json, sys; from importlib.metadata import version, PackageNotFoundError\n"
        "def v(n):\n try: return version(n)\n except PackageNotFoundError: return 'not there'\n"
        f"print(json.dumps({{n: v(n) for n in {PACKAGES!r}}} | {{'python': sys.version.split()[0]}}))"
    )
    environment = {**os.environ, "PYTHONPATH": tools}
    told = subprocess.run(
        [python, "-c", code], check=True, capture_output=True, text=True, env=environment
    )
    found: dict[str, str] = json.loads(told.stdout)
    return found


def compared(flows: dict[str, Any]) -> list[tuple[str, bool]]:
    """Ours beside the released lowering, over the cases that the released one gets right; whether ours
    delegates less."""
    lines = []
    for name, ours in flows.items():
        released = flows.get(name.replace("coreai_", "coreai_upstream_", 1))
        if released is None:
            continue
        right = [case for case, found in released["cases"].items() if found["outcome"] == "passed"]
        numbers = []
        for found in (ours, released):
            nodes = [found["cases"].get(case, {}).get("delegated_nodes", 0) for case in right]
            numbers.append((sum(n > 0 for n in nodes), sum(nodes)))
        less = any(mine < theirs for mine, theirs in zip(*numbers, strict=True))
        said = (
            f"{name}: of {len(right)} cases that the released lowering gets right, ours delegates in "
            f"{numbers[0][0]} (released: {numbers[1][0]}), {numbers[0][1]} nodes ({numbers[1][1]})"
        )
        lines.append((said, less))
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
