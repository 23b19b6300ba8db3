"""What a person sees: progress while cells run, then a table, then what went wrong and how to mend it."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import TimeRemainingColumn as TimeLeft
from rich.table import Table
from rich.text import Text

from edgeproof.gate.rules import Ruling
from edgeproof.host.run import Outcome
from edgeproof.plan.cell import Cell, Result
from edgeproof.plan.stage import Stage, Verdict

_STYLES = {
    Verdict.PASSED: "green",
    Verdict.FAILED: "red",
    Verdict.CRASHED: "bold red",
    Verdict.TIMED_OUT: "bold red",
    Verdict.EXPECTED_FAILURE: "yellow",
    Verdict.UNEXPECTED_PASS: "red",
    Verdict.SKIPPED: "red",
    Verdict.NOT_RUN: "red",
}
_PLAIN_WIDTH = 150
MANY = 60
"""From how many cells on a run is told of in less detail."""
_STACK_LINES = 25
_LOG_LINES = 10


class _Console(Console):
    """Falls silent when no one reads any more (``| head -1``): the run and its exit code go on."""

    def on_broken_pipe(self) -> None:
        """Also for what Python flushes when it ends."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def console() -> Console:
    """The console of this run; wide enough for the table when a file or a pipe takes it."""
    made = _Console(highlight=False, soft_wrap=False)
    return made if made.is_terminal else _Console(highlight=False, width=_PLAIN_WIDTH)


class Live:
    """Progress on a terminal: a bar with the time left, and a line for each cell that is running."""

    def __init__(self, to: Console, cells: int) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            TimeLeft(),
            console=to,
            transient=True,
        )
        self._total = self._progress.add_task("cells", total=cells, note=f"0/{cells}")
        self._cells = cells
        self._done = 0
        self._running: dict[str, TaskID] = {}

    def __enter__(self) -> Live:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # a terminal that was closed
            self._progress.stop()

    def said(self, line: str) -> None:
        """A line about a subject."""
        self._progress.console.print(Text(line, style="dim"))

    def started(self, cell: Cell) -> None:
        """A worker took the cell."""
        name = escape(f"  {cell.flow.name} {cell.case.id}")
        if self._cells > MANY:  # bundles start twenty at once
            return
        self._running[cell.id] = self._progress.add_task(name, total=len(Stage), note="starting")

    def reached(self, cell: Cell, stage: Stage) -> None:
        """The cell came to a stage."""
        if cell.id in self._running:
            done = list(Stage).index(stage)
            self._progress.update(self._running[cell.id], completed=done, note=stage.value)

    def ended(self, result: Result) -> None:
        """The cell has its verdict."""
        task = self._running.pop(result.cell.id, None)
        if task is not None:
            self._progress.remove_task(task)
        self._progress.advance(self._total)
        self._done += 1
        self._progress.update(self._total, note=f"{self._done}/{self._cells}")
        if _is_news(result, self._done, self._cells):
            self._progress.console.print(_line(result, self._done, self._cells), markup=False)


class Plain:
    """Progress in a pipe or a log: one line for each thing that happened."""

    def __init__(self, to: Console, cells: int) -> None:
        self._console = to
        self._cells = cells
        self._done = 0

    def __enter__(self) -> Plain:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def said(self, line: str) -> None:
        """A line about a subject."""
        self._console.print(Text(line))

    def started(self, cell: Cell) -> None:
        """Nothing: the end of a cell is the news."""

    def reached(self, cell: Cell, stage: Stage) -> None:
        """Nothing: the end of a cell is the news."""

    def ended(self, result: Result) -> None:
        """The cell has its verdict."""
        self._done += 1
        if _is_news(result, self._done, self._cells):
            self._console.print(_line(result, self._done, self._cells), markup=False)


def _is_news(result: Result, done: int, cells: int) -> bool:
    """Whether the end of a cell gets a line: of many, only what did not pass, and every hundredth."""
    return cells <= MANY or result.verdict is not Verdict.PASSED or done % 100 == 0


def _line(result: Result, done: int, cells: int) -> str:
    cell, seconds = result.cell, sum(t.seconds for t in result.stages if not t.shared)
    return f"[{done}/{cells}] {cell.flow.name} {cell.case.id}: {result.verdict.value} ({seconds:.1f} s)"


def show(to: Console, outcome: Outcome, ruling: Ruling, reproduce: Mapping[str, str]) -> None:
    """Print the table, everything that is not good, and what the gate says."""
    results = list(outcome.ledger)
    to.print()
    for subject in outcome.subjects:
        for note in subject.notes:
            to.print(Text(f"note: {subject.id}: {note}", style="yellow"))
    to.print(_table(results))
    for result in results:
        if result.verdict is not Verdict.PASSED:
            explain(to, result, reproduce[result.cell.id])
    conclude(to, outcome, ruling)


def conclude(to: Console, outcome: Outcome, ruling: Ruling) -> None:
    """Print how many cells ended how, and what the gate says."""
    to.print()
    to.print(_sum(outcome))
    if ruling.exit_code == 0:
        to.print(Text("gate: holds", style="green"))
    for reason in ruling.reasons:
        to.print(Text(f"gate: {reason}", style="red"))
    if ruling.exit_code != 0:
        to.print(Text(f"logs: {outcome.folder}", style="dim"))


def _table(results: list[Result]) -> Table:
    several = len({result.cell.case.id for result in results}) > 1
    table = Table(box=None, pad_edge=False, header_style="bold", title_justify="left")
    if not several and results:
        table.title = Text(results[0].cell.case.id, style="table.title")
    else:
        table.add_column("case")
    table.add_column("flow", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("stage", no_wrap=True)
    for name in ("delegated", "SQNR dB", ".pte MB", "lower s", "load s", "run ms"):
        table.add_column(name, justify="right", no_wrap=True)
    for result in results:
        row = [result.cell.flow.name, verdict(result), result.stage or "", *_numbers(result)]
        # Text, since brackets mean something to rich: case ids end in [params].
        table.add_row(*([Text(result.cell.case.id)] if several else []), *row)
    return table


def verdict(result: Result) -> Text:
    """The verdict as tables show it."""
    text, style = result.verdict.value, _STYLES[result.verdict]
    if result.declared:
        text, style = f"{text} (declared)", "yellow"
    elif result.cause == "vacuous":
        text = f"{text} (vacuous)"
    elif result.cause == "not_delegated":
        text = f"{text} (not delegated)"
    return Text(text, style=style)


def _numbers(result: Result) -> list[str]:
    evidence = result.evidence
    nodes, delegated = evidence.get("nodes"), evidence.get("delegated_nodes")
    size = evidence.get("pte_bytes")
    run = evidence.get("run_seconds")
    return [
        f"{delegated}/{nodes}" if None not in (delegated, nodes) else "",
        worst_sqnr(evidence),
        f"{size / 1e6:.2f}" if size is not None else "",
        _seconds(result.seconds(Stage.LOWER), 1),
        _seconds(result.seconds(Stage.LOAD), 3),
        f"{1e3 * run:.2f}" if run is not None else "",
    ]


def worst_sqnr(evidence: Mapping[str, Any]) -> str:
    """The lowest SQNR of a cell's outputs, as the table shows it; empty where it cannot be read."""
    try:
        found = [float(row["sqnr_db"]) for row in evidence.get("outputs", ()) if "sqnr_db" in row]
    except (TypeError, ValueError):
        return ""  # a worker that failed may have said anything
    if not found:
        return ""
    return "exact" if math.isinf(min(found)) and min(found) > 0 else f"{min(found):.1f}"


def _seconds(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def explain(to: Console, result: Result, reproduce: str) -> None:
    """Print why a cell did not pass, and what runs it alone."""
    to.print()
    head = Text.assemble((result.cell.flow.name, "bold"), " ", result.cell.case.id, ": ")
    head.append_text(verdict(result))
    if result.stage:
        head.append(f" at {result.stage.value}")
    to.print(head)
    if result.reason:
        _indented(to, result.reason)
    if result.mend:
        _indented(to, f"mend: {result.mend}")
    if result.declared:
        return
    if result.crash:
        for stack in _guilty_stacks(result.crash):
            _indented(to, _first_lines(stack, _STACK_LINES), "  | ")
    if result.log:
        printed, trace, raised = result.log.rpartition("Traceback (most recent call last):\n")
        for part in (printed, trace + raised):
            _indented(to, _last_lines(part, _LOG_LINES), "  > ")
    _indented(to, f"alone: {reproduce}")


def _guilty_stacks(crash: Mapping[str, Any]) -> tuple[str, str]:
    """The native and the Python stack of the thread that died; those of all are in the report."""
    native = str(crash.get("native_stack", "")).partition("\n\n")[0]
    python = str(crash.get("python_stack", ""))
    head, found, current = python.partition("Current thread ")
    if found:
        python = head.partition("\n")[0] + "\n" + found + current.partition("\n\n")[0]
    return native, python


def _first_lines(text: str, count: int) -> str:
    lines = text.strip().splitlines()
    more = [f"... {len(lines) - count} more lines in the report"] if len(lines) > count else []
    return "\n".join([*lines[:count], *more])


def _last_lines(text: str, count: int) -> str:
    """The end of a log, without the markers that tracebacks put under their lines."""
    lines = [line for line in text.strip().splitlines() if line.strip(" ^~")]
    more = [f"... {len(lines) - count} lines before in the report"] if len(lines) > count else []
    return "\n".join([*more, *lines[-count:]])


def _indented(to: Console, text: str, by: str = "  ") -> None:
    for line in text.splitlines():
        to.print(f"{by}{line}", markup=False, overflow="fold" if to.is_terminal else "ignore",
                 no_wrap=not to.is_terminal, crop=False)  # fmt: skip


def _sum(outcome: Outcome) -> str:
    counts = [f"{n} {v.value}" for v, n in outcome.ledger.counts().items() if n]
    declared = sum(result.declared for result in outcome.ledger)
    note = f" ({declared} declared)" if declared else ""
    return (
        f"{len(outcome.ledger.asked)} cells asked for: {', '.join(counts)}{note}; "
        f"{outcome.seconds:.0f} s"
    )
