"""``flows`` and ``subjects``: what there is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from edgeproof.errors import ExitCode, UsageError
from edgeproof.flows.registry import all_flows
from edgeproof.host import subjects as store
from edgeproof.host.interpreters import described, find_python
from edgeproof.host.store import require_stack
from edgeproof.host.wheel import parse_choice
from edgeproof.report.terminal import console


def flows() -> None:
    """A row for each flow."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("flow", "stack", "lowers here", "runs here", "what it is"):
        table.add_column(name, no_wrap=name != "what it is")
    for flow in all_flows().values():
        runs = "yes" if flow.runs_here() else f"no: {flow.cannot_run or 'not on this platform'}"
        table.add_row(
            flow.name, flow.stack, "yes" if flow.lowers_here() else "no", runs, flow.summary
        )
    console().print(table)


def subjects() -> ExitCode:
    """A row for each managed subject; a broken one makes the exit code say so."""
    rows = store.listing()
    if not rows:
        click.echo("no subject was made yet: edgeproof smoke makes what it needs")
        return ExitCode.OK
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("stack", "executorch", "python", "made", "GB", "state", "path"):
        table.add_column(name, no_wrap=True)
    for row in rows:
        size = f"{row.size_bytes / 1e9:.1f}"
        said = (row.stack, row.executorch, row.python, row.made, size, row.state, str(row.path))
        table.add_row(*map(Text, said))
    to = console()
    to.print(table, crop=False)
    for row in rows:
        for problem in row.problems:
            to.print(f"{row.path.name}: {problem}", markup=False)
    return ExitCode.SUBJECT if any(row.problems for row in rows) else ExitCode.OK


def make(stacks: Sequence[str], *, executorch: str | None, python: str | None) -> None:
    """Make subjects one after the other. Raises ``SubjectError`` at the first that fails."""
    choice = parse_choice(executorch)
    known = choice.stacks()
    unknown = [name for name in stacks if name not in known]
    if unknown:
        raise UsageError(
            f"there is no stack {unknown[0]!r}", mend=f"choose from {', '.join(known)}"
        )
    interpreter = described(find_python(python, known["base"].pythons))
    chosen = [known[name] for name in stacks] or [
        stack for stack in known.values() if interpreter.platform in stack.platforms
    ]
    for stack in chosen:
        subject = store.prepare(stack, choice, interpreter.path, on_progress=click.echo)
        click.echo(f"{subject.id}: {Path(subject.python)}")


def path(stack: str, *, executorch: str | None, python: str | None) -> Path:
    """The Python of the subject that a run with these options uses, if it was made and is whole."""
    require_stack(stack)
    choice = parse_choice(executorch)
    stacks = choice.stacks()
    if stack not in stacks:
        raise UsageError(
            f"executorch {choice.version} has no stack {stack!r}",
            mend=f"choose from {', '.join(stacks)}",
        )
    found = find_python(python, stacks[stack].pythons, install=False)
    return store.prepare(stacks[stack], choice, found, on_progress=click.echo, build=False).python
