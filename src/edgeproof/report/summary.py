"""What a person sees of a run of thousands of cells: a line for each suite and flow, then what failed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from edgeproof.gate.rules import Ruling
from edgeproof.host.run import Outcome
from edgeproof.plan.cell import Result
from edgeproof.plan.stage import Verdict
from edgeproof.report import terminal

_SHOWN = 20
_LOOSE = 100.0
"""A limit this many times what was observed is flagged: it would not notice much."""


def show(to: Console, outcome: Outcome, ruling: Ruling, reproduce: Mapping[str, str]) -> None:
    """Print how many cells of each suite and flow ended how, the first that did not pass, and the gate."""
    if len(outcome.ledger.asked) <= terminal.MANY:
        terminal.show(to, outcome, ruling, reproduce)
        return
    results = list(outcome.ledger)
    to.print()
    to.print(_table(results))
    to.print()
    to.print(_limits(results))
    bad = [result for result in results if result.verdict is not Verdict.PASSED]
    for result in bad[:_SHOWN]:
        terminal.explain(to, result, reproduce[result.cell.id])
    if len(bad) > _SHOWN:
        to.print(f"\n... and {len(bad) - _SHOWN} more that did not pass: --json FILE has them all")
    terminal.conclude(to, outcome, ruling)


def _pairs(results: Iterable[Result]) -> dict[tuple[str, str], list[Result]]:
    pairs: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for result in results:
        pairs[result.cell.case.suite, result.cell.flow.name].append(result)
    return pairs


def _table(results: Iterable[Result]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("suite")
    table.add_column("flow", no_wrap=True)
    columns = (
        "cells",
        "passed",
        "not delegated",
        "failed",
        "vacuous",
        "crashed",
        "timed out",
        "left out",
    )
    for name in columns:
        table.add_column(name, justify="right")
    for (suite, flow), found in _pairs(results).items():
        passed = [r for r in found if r.verdict is Verdict.PASSED]
        vacuous = sum(r.cause == "vacuous" for r in found)
        ended = {v: sum(r.verdict is v for r in found) for v in Verdict}
        table.add_row(
            suite,
            flow,
            str(len(found)),
            Text(str(len(passed)), style="green"),
            str(sum(r.cause == "not_delegated" for r in passed)),
            Text(str(ended[Verdict.FAILED] - vacuous), style="red"),
            str(vacuous),
            str(ended[Verdict.CRASHED]),
            str(ended[Verdict.TIMED_OUT]),
            str(ended[Verdict.SKIPPED] + ended[Verdict.NOT_RUN]),
        )
    return table


def _limits(results: Iterable[Result]) -> Table:
    """The tightest and the loosest limit of each flow, and how many are far looser than what was seen."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("limits (rms error)")
    for name in ("tightest", "loosest", "largest seen", f"over {_LOOSE:.0f}x what was seen"):
        table.add_column(name, justify="right")
    by_flow: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for result in results:
        if result.verdict is Verdict.PASSED:
            by_flow[result.cell.flow.name] += _measured(result)
    for flow, pairs in by_flow.items():
        limits = [limit for limit, _ in pairs]
        seen = max((error for _, error in pairs), default=0.0)
        loose = sum(error > 0 and limit > _LOOSE * error for limit, error in pairs)
        table.add_row(
            flow,
            f"{min(limits):.1e}",
            f"{max(limits):.1e}",
            f"{seen:.1e}",
            f"{loose} of {len(pairs)}",
        ) if limits else table.add_row(flow, "all exact", "", "", "")
    return table


def _measured(result: Result) -> list[tuple[float, float]]:
    """The limit and the error of each float output."""
    found = []
    for row in result.evidence.get("outputs", ()):
        if row.get("exact") is False:
            limit, error = float(row["limit_rms"]), float(row["rms_error"])
            if math.isfinite(limit):
                found.append((limit, error))
    return found
