"""``smoke`` and ``check``: from command line to cells, and from the outcome to report and exit code."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from edgeproof.cases import smoke as smoke_cases
from edgeproof.cases import user
from edgeproof.errors import ExitCode, UsageError
from edgeproof.flows.registry import all_flows, select
from edgeproof.gate.rules import rule
from edgeproof.host import subjects
from edgeproof.host.interpreters import described, find_python
from edgeproof.host.process import Limits
from edgeproof.host.run import SubjectPlan, run_cells
from edgeproof.host.wheel import ExecutorchChoice, parse_choice
from edgeproof.plan.case import Case
from edgeproof.plan.cell import Cell, case_seed
from edgeproof.plan.flow import Flow
from edgeproof.plan.stack import Stack
from edgeproof.plan.subject import Subject
from edgeproof.report import document, terminal

_MOST_WORKERS = 4


def smoke(flows: Iterable[str], **options: Any) -> ExitCode:
    """Run the smoke suite."""
    return _prove(smoke_cases.CASES, "smoke", split(flows), **options)


def check(model: str, flows: Iterable[str], *, condition: bool, **options: Any) -> ExitCode:
    """Run a user's own model."""
    case = user.case_from_argument(model, condition=condition)
    command = f"check {shlex.quote(model)}" + (" --condition" if condition else "")
    return _prove((case,), command, split(flows), **options)


def split(flows: Iterable[str]) -> tuple[str, ...]:
    """``--flows a,b --flows c`` as three patterns. An empty name is kept, so that it is refused."""
    return tuple(name.strip() for given in flows for name in given.split(","))


def plans_for(
    flows: Sequence[Flow], *, executorch: str | None, python: str | None, subject: str | None
) -> dict[str, SubjectPlan]:
    """The subject of each stack that the flows need, named but not prepared yet.

    With ``subject`` it is the user's environment, once for each stack (they differ in environment
    variables). Raises ``UsageError`` where the options contradict each other.
    """
    if subject is not None and (executorch or python):
        raise UsageError(
            "--subject names an environment with its own executorch and Python",
            mend="leave --executorch and --python out, or leave --subject out",
        )
    choice = parse_choice(executorch)
    stacks = choice.stacks()
    names = dict.fromkeys(flow.stack for flow in flows)
    if subject is not None:
        return {name: _adopted(subject, stacks[name]) for name in names}
    interpreter = described(find_python(python, stacks["base"].pythons))
    return {
        name: SubjectPlan(
            id=f"{name}/executorch-{choice.version}/py{interpreter.minor}",
            prepare=partial(_prepare, stacks[name], choice, interpreter.path),
        )
        for name in names
    }


def _prepare(
    stack: Stack, choice: ExecutorchChoice, python: Path, said: Callable[[str], None]
) -> Subject:
    return subjects.prepare(stack, choice, python, on_progress=said)


def _adopted(which: str, stack: Stack) -> SubjectPlan:
    taken = subjects.adopt(which, stack)
    return SubjectPlan(id=taken.id, prepare=lambda _: taken)


def _prove(
    cases: Sequence[Case],
    command: str,
    patterns: Sequence[str],
    *,
    executorch: str | None,
    python: str | None,
    subject: str | None,
    declared: Sequence[str],
    seed: int,
    workers: int | None,
    stage_timeout: float | None,
    json_file: str | None,
) -> ExitCode:
    flows = select(patterns)
    accepted = _declarations(declared)
    report_path = _writable(json_file)
    plans = plans_for(flows, executorch=executorch, python=python, subject=subject)
    cells = [
        Cell(
            case=case,
            flow=flow,
            subject=plans[flow.stack].id,
            seed=case_seed(case.id, seed),
        )
        for case in cases
        for flow in flows
    ]
    to = terminal.console()
    watching = terminal.Live if to.is_terminal else terminal.Plain
    with watching(to, len(cells)) as watcher:
        outcome = run_cells(
            cells,
            list(plans.values()),
            workers=workers or min(os.cpu_count() or 1, _MOST_WORKERS),
            watcher=watcher,
            limits=Limits(stage=stage_timeout),
            declared=accepted,
        )
    broken = sum(
        any(result.cell.subject == key and not result.declared for result in outcome.ledger)
        for key in outcome.broken
    )
    ruling = rule(
        outcome.ledger,
        interrupted=outcome.interrupted,
        fault=outcome.fault,
        broken_subjects=broken,
    )
    common = _common_options(executorch, python, subject, seed)
    reproduce = {cell.id: f"edgeproof {command} --flows {cell.flow.name}{common}" for cell in cells}
    with _undisturbed():
        if report_path is not None:  # first: a closed terminal can end what follows
            report = document.document(
                outcome, ruling, command=shlex.join(["edgeproof", *sys.argv[1:]]), seed=seed,
                reproduce=reproduce,
            )  # fmt: skip
            document.write(report, report_path)
        terminal.show(to, outcome, ruling, reproduce)
        if report_path is not None:
            to.print(f"report: {report_path}", markup=False)
    if outcome.fault is not None:
        raise outcome.fault
    return ruling.exit_code


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Let no signal end the moment in which results are written: CI systems send more than one."""
    signals = (signal.SIGINT, signal.SIGTERM)
    found = [signal.signal(number, signal.SIG_IGN) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, found, strict=True):
            signal.signal(number, handler)


def _declarations(given: Sequence[str]) -> dict[str, str]:
    """``FLOW=REASON`` as a mapping. Raises ``UsageError`` for one without a reason or a flow."""
    accepted = {}
    for text in given:
        name, _, reason = text.partition("=")
        if name not in all_flows():
            near = get_close_matches(name, all_flows(), n=3)
            raise UsageError(
                f"--declare-not-run names {name!r}, which is no flow",
                mend=f"did you mean {', '.join(near)}?" if near else "`edgeproof flows` lists them",
            )
        if not reason.strip():
            raise UsageError(
                f"--declare-not-run {name} gives no reason",
                mend=f'say why: --declare-not-run "{name}=no such hardware here"',
            )
        accepted[name] = reason.strip()
    return accepted


def _writable(json_file: str | None) -> Path | None:
    """The report's path, found writable before minutes are spent on what goes into it."""
    if json_file is None:
        return None
    path = Path(json_file).expanduser().absolute()
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise UsageError(
            f"the report cannot be written to {json_file}",
            mend="name a file in a folder that exists and can be written to",
        )
    return path


def _common_options(
    executorch: str | None, python: str | None, subject: str | None, seed: int
) -> str:
    named = {"--executorch": executorch, "--python": python, "--subject": subject}
    words = [f" {option} {shlex.quote(value)}" for option, value in named.items() if value]
    return "".join(words) + (f" --seed {seed}" if seed else "")
