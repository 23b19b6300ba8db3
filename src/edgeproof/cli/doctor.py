"""``doctor``: for each flow whether it can lower and run here, and the command that mends it if not."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table
from rich.text import Text

from edgeproof.cli.prove import plans_for, split
from edgeproof.errors import EdgeproofError, ExitCode
from edgeproof.flows.registry import select
from edgeproof.host import adopted
from edgeproof.host.process import Limits, WorkerDied, WorkerProcess
from edgeproof.host.run import SubjectPlan
from edgeproof.plan.flow import Flow, this_platform
from edgeproof.plan.subject import Subject
from edgeproof.report.terminal import console


@dataclass(frozen=True, kw_only=True)
class _Finding:
    flow: Flow
    lowers: bool
    runs: str
    problem: str = ""
    mend: str = ""


def doctor(
    *, flows: Iterable[str], executorch: str | None, python: str | None, subject: str | None
) -> ExitCode:
    """Examine the flows in the subjects there are. Nothing is installed.

    0 when every flow asked for can lower, and run where its backend can run at all; else 1.
    """
    chosen = select(split(flows) or ("*",))
    plans = plans_for(chosen, executorch=executorch, python=python, subject=subject, build=False)
    findings: dict[str, _Finding] = {}
    to = console()
    with tempfile.TemporaryDirectory(prefix="edgeproof-doctor-") as folder:
        for stack, plan in plans.items():
            mine = [flow for flow in chosen if flow.stack == stack]
            for finding in _examine(mine, plan, Path(folder)):
                findings[finding.flow.name] = finding
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("flow", "subject", "lowers", "runs"):
        table.add_column(name, no_wrap=True)
    for flow in chosen:
        found = findings[flow.name]
        lowers = "yes" if found.lowers else "no"
        table.add_row(flow.name, Text(plans[flow.stack].id), lowers, Text(found.runs))
    to.print(table)
    said = {(f.problem, f.mend): None for f in findings.values() if f.problem}
    for problem, mend in said:
        names = [n for n, f in findings.items() if (f.problem, f.mend) == (problem, mend)]
        to.print()
        to.print(f"{', '.join(names)}: {problem}", markup=False, crop=False, soft_wrap=True)
        to.print(f"  mend: {mend}", markup=False, crop=False, soft_wrap=True)
    return ExitCode.GATE_BROKEN if said else ExitCode.OK


def _examine(flows: list[Flow], plan: SubjectPlan, folder: Path) -> list[_Finding]:
    here = this_platform()
    able = [flow for flow in flows if flow.lowers_here()]
    findings = [
        _bad(
            flow,
            f"it does not lower on {here}",
            f"use one of {', '.join(flow.lowers_on)}, or --declare-not-run {flow.name}=REASON",
        )
        for flow in flows
        if flow not in able
    ]
    if not able:
        return findings
    try:
        subject = plan.prepare(lambda _: None)
        return findings + _probe(able, subject, folder)
    except EdgeproofError as failure:
        return findings + [_bad(flow, failure.message, failure.mend) for flow in able]


def _probe(flows: list[Flow], subject: Subject, folder: Path) -> list[_Finding]:
    def bad(flow: Flow, problem: str) -> _Finding:
        return _bad(flow, problem, adopted.mend(subject, flow, problem))

    findings = []
    stop = threading.Event()
    try:
        worker = WorkerProcess(subject, folder, name=subject.stack, limits=Limits(), stop=stop)
    except WorkerDied as died:
        problem = f"a worker does not start: {died.crash['how']}; {died.crash['log']}"
        return [bad(flow, problem) for flow in flows]
    for index, flow in enumerate(flows):
        try:
            problem = worker.probe(flow)
        except WorkerDied as died:
            findings.append(
                bad(flow, f"importing what it needs killed the worker: {died.crash['how']}")
            )
            rest = flows[index + 1 :]
            return findings + (_probe(rest, subject, folder) if rest else [])
        if problem:
            findings.append(bad(flow, problem))
        else:
            runs = "yes" if flow.runs_here() else f"no: {flow.cannot_run}"
            findings.append(_Finding(flow=flow, lowers=True, runs=runs))
    worker.kill()
    return findings


def _bad(flow: Flow, problem: str, mend: str) -> _Finding:
    return _Finding(flow=flow, lowers=False, runs="no", problem=problem, mend=mend)
