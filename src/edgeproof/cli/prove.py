"""``smoke`` and ``check``: from command line to cells, and from the outcome to report and exit code."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeproof.cases import smoke as smoke_cases
from edgeproof.cases import user
from edgeproof.cli.signals import undisturbed
from edgeproof.errors import EdgeproofError, ExitCode, UsageError
from edgeproof.flows.registry import all_flows, select
from edgeproof.gate.rules import Ruling, rule
from edgeproof.host import subjects
from edgeproof.host.interpreters import described, find_python
from edgeproof.host.process import Limits
from edgeproof.host.run import Outcome, SubjectPlan, run_cells
from edgeproof.host.wheel import ExecutorchChoice, parse_choice
from edgeproof.plan.case import Case
from edgeproof.plan.cell import Cell, case_seed
from edgeproof.plan.flow import Flow
from edgeproof.plan.stack import Stack
from edgeproof.plan.subject import Subject
from edgeproof.report import document, terminal
from edgeproof.report.junit import junit as junit_of

if TYPE_CHECKING:
    from rich.console import Console

MOST_WORKERS = 4


def smoke(
    flows: Iterable[str], *, json_file: str | None, junit_file: str | None, **options: Any
) -> ExitCode:
    """Run the smoke suite."""
    report, junit = document.claim(json_file), document.claim(junit_file)
    return prove(smoke_cases.CASES, "smoke", split(flows), report=report, junit=junit, **options)


def check(
    model: str,
    flows: Iterable[str],
    *,
    condition: bool,
    json_file: str | None,
    junit_file: str | None,
    **options: Any,
) -> ExitCode:
    """Run a user's own model."""
    report, junit = document.claim(json_file), document.claim(junit_file)
    case = user.case_from_argument(model, condition=condition)
    command = f"check {shlex.quote(model)}" + (" --condition" if condition else "")
    return prove((case,), command, split(flows), report=report, junit=junit, **options)


def split(flows: Iterable[str]) -> tuple[str, ...]:
    """``--flows a,b --flows c`` as three patterns. An empty name is kept, so that it is refused."""
    return tuple(name.strip() for given in flows for name in given.split(","))


def plans_for(
    flows: Sequence[Flow],
    *,
    executorch: str | None,
    python: str | None,
    subject: str | None,
    build: bool = True,
) -> dict[str, SubjectPlan]:
    """The subject of each stack that the flows need, named but not prepared yet.

    With ``subject`` it is the user's environment, once for each stack (they differ in environment
    variables). Without ``build`` only what is there already is used. Raises ``UsageError`` where the
    options contradict each other.
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
    interpreter = described(find_python(python, stacks["base"].pythons, install=build))
    return {
        name: SubjectPlan(
            stack=stacks[name],
            id=f"{name}/executorch-{choice.version}/py{interpreter.minor}",
            prepare=partial(_prepare, stacks[name], choice, interpreter.path, build),
        )
        for name in names
    }


def _prepare(
    stack: Stack, choice: ExecutorchChoice, python: Path, build: bool, said: Callable[[str], None]
) -> Subject:
    return subjects.prepare(stack, choice, python, on_progress=said, build=build)


def _adopted(which: str, stack: Stack) -> SubjectPlan:
    taken = subjects.adopt(which, stack)
    return SubjectPlan(stack=stack, id=taken.id, prepare=lambda _: taken)


def prove(
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
    report: Path | None,
    junit: Path | None,
) -> ExitCode:
    """Take the cases through the flows, show what came of it and return the gate's exit code.

    ``command`` is what reproduces the run, without flows and options; ``report`` where the JSON report
    goes, ``junit`` where the same goes as JUnit XML, as ``document.claim`` gave them.
    """
    flows = select(patterns)
    accepted = declarations(declared)
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
            [((cell,),) for cell in cells],
            list(plans.values()),
            workers=workers or min(os.cpu_count() or 1, MOST_WORKERS),
            watcher=watcher,
            limits=Limits(stage=stage_timeout),
            declared=accepted,
        )
    common = common_options(executorch, python, subject, seed, stage_timeout)
    reproduce = {cell.id: f"edgeproof {command} --flows {cell.flow.name}{common}" for cell in cells}
    return conclude(
        outcome, to,
        report=report, junit=junit, seed=seed, reproduce=reproduce, show=terminal.show,
    )  # fmt: skip


def conclude(
    outcome: Outcome,
    to: Console,
    *,
    report: Path | None,
    junit: Path | None,
    seed: int,
    reproduce: Mapping[str, str],
    show: Callable[[Console, Outcome, Ruling, Mapping[str, str]], None],
    command: str = "",
    selection: str = "",
) -> ExitCode:
    """Judge what came of a run, write the report, ``show`` it, and return the gate's exit code.

    Raises what ended the run, or kept the report from being written, after that.
    """
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
    unwritten: EdgeproofError | None = None
    with undisturbed():
        if report is not None:  # first: a terminal may take nothing any more
            told = document.document(
                outcome, ruling, command=command or shlex.join(["edgeproof", *sys.argv[1:]]), seed=seed,
                reproduce=reproduce, selection=selection,
            )  # fmt: skip
            try:
                document.write(told, report)
            except EdgeproofError as failure:
                unwritten = failure
        if junit is not None:
            try:
                document.write_text(junit_of(outcome, reproduce), junit)
            except EdgeproofError as failure:
                unwritten = unwritten or failure
        with suppress(OSError):  # a terminal that was closed
            show(to, outcome, ruling, reproduce)
            if report is not None and unwritten is None:
                to.print(f"report: {report}", markup=False)
    if outcome.fault is not None:
        raise outcome.fault
    if unwritten is not None:
        raise unwritten
    return ruling.exit_code


def declarations(given: Sequence[str]) -> dict[str, str]:
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


def common_options(
    executorch: str | None,
    python: str | None,
    subject: str | None,
    seed: int,
    stage_timeout: float | None,
) -> str:
    """The options of every command that runs cells, as its reproducing command line repeats them."""
    named = {"--executorch": executorch, "--python": python, "--subject": subject}
    words = [f" {option} {shlex.quote(value)}" for option, value in named.items() if value]
    words += [f" --seed {seed}"] if seed else []
    words += [f" --stage-timeout {stage_timeout:g}"] if stage_timeout else []
    return "".join(words)
