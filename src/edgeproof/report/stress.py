"""What a person sees of a stress run: a line for each phase, then what went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from edgeproof.gate.rules import Ruling
from edgeproof.host.run import Outcome
from edgeproof.plan.cell import Result
from edgeproof.plan.stage import Verdict
from edgeproof.report import terminal


def show(to: Console, outcome: Outcome, ruling: Ruling, reproduce: Mapping[str, str]) -> None:
    """Print the table, everything that is not good, and what the gate says."""
    results = list(outcome.ledger)
    to.print()
    to.print(_table(results))
    for result in results:
        for line in _more(result):
            to.print(Text(line))
        if result.verdict is not Verdict.PASSED:
            terminal.explain(to, result, reproduce[result.cell.id])
    terminal.conclude(to, outcome, ruling)


def _table(results: list[Result]) -> Table:
    title = Text(results[0].cell.case.id, style="table.title") if results else None
    table = Table(title=title, box=None, pad_edge=False, header_style="bold", title_justify="left")
    for name in ("flow", "mode", "phase", "verdict"):
        table.add_column(name, no_wrap=True)
    for name in (
        "threads x iter.", "checked", "failed", "cache hits/misses", "at once load/run",
        "overlap load/run", "together load/run", "heap B/iter.", "s",
    ):  # fmt: skip
        table.add_column(name, justify="right")
    for result in results:
        head = [result.cell.flow.name, result.cell.mode]
        stressed = result.evidence.get("stress") or {}
        phases = stressed.get("phases") or {}
        if not phases:
            table.add_row(*head, "", terminal.verdict(result))
        for name, phase in phases.items():
            load = f"{stressed['threads']} x {stressed['iterations']}"
            table.add_row(
                *head, name, terminal.verdict(result), load, *_numbers(result.cell.flow.name, phase)
            )
    return table


def _numbers(flow: str, phase: Mapping[str, Any]) -> list[str]:
    kinds = [phase["load"], phase["run"]]
    used = phase["cache"].get(flow)
    heap = [growth for growth in phase["growth"] if growth["what"] == "heap"]
    return [
        str(phase["outputs_checked"]),
        str(phase["failed"]),
        f"{used['hits']}/{used['misses']}" if used else "",
        "/".join(str(kind["most_at_once"]) for kind in kinds),
        "/".join(_share(kind["overlapped"], kind["busy"]) for kind in kinds),
        "/".join(_share(kind["together"], 1.0) for kind in kinds),
        # Too few samples give a slope that means nothing.
        f"{heap[0]['per_iteration']:.0f}" if heap and heap[0]["resolution"] is not None else "-",
        f"{phase['seconds']:.1f}",
    ]


def _share(part: float | None, whole: float) -> str:
    return "-" if part is None or not whole else f"{100 * part / whole:.0f}%"


def _more(result: Result) -> list[str]:
    lines = []
    least = result.evidence.get("smallest")
    if least:
        load = least["load"]
        lines.append(
            f"smallest load that fails: {load['threads']} threads x {load['iterations']}, in "
            f"{least['failed']} of {least['tries']} tries (95 %: {100 * least['low']:.0f} to "
            f"{100 * least['high']:.0f} %)"
            + ("" if least["complete"] else "; there was no time for more")
        )
    without = result.evidence.get("without_turns")
    if without:
        what = (
            f"{without['verdict']}: {without['reason']}"
            if without["reason"]
            else "nothing went wrong"
        )
        lines.append(f"without taking turns, which ExecuTorch forbids: {what}")
    reports = result.evidence.get("sanitizer")
    if reports is not None:
        ours = sum(report["ours"] for report in reports)
        lines.append(
            f"sanitizer: {ours} finding(s) in our code, {len(reports) - ours} in wheels or between them"
        )
        lines += [f"  {r['what']} in {r['where']}" for r in reports[:20]]
    return [f"{result.cell.flow.name} {result.cell.mode}: {lines[0]}", *lines[1:]] if lines else []
