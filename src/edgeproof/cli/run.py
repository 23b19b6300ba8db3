"""``run``: whole suites over many flows, in bundles."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from edgeproof.cases import suites as known
from edgeproof.cli.prove import (
    MOST_WORKERS,
    common_options,
    conclude,
    declarations,
    plans_for,
    split,
)
from edgeproof.errors import ExitCode, UsageError
from edgeproof.flows.registry import select
from edgeproof.given import given_path
from edgeproof.host.process import Limits
from edgeproof.host.run import Group, SubjectPlan, new_folder, run_cells
from edgeproof.host.slot import Task
from edgeproof.host.suites import cases_of, needs_packages, packages_for
from edgeproof.plan.case import Case
from edgeproof.plan.cell import Cell, case_seed
from edgeproof.plan.flow import Flow
from edgeproof.plan.subject import Subject
from edgeproof.report import document, summary, terminal

BUNDLE = 20
"""Cases of a bundle. More save little, and cost more where one of them fails."""


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which of the suites' cells to run: all that match every one of these."""

    cases: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    shard: tuple[int, int] = (1, 1)
    cells: frozenset[tuple[str, str]] | None = None
    """Case and flow of the only cells to run, ``None`` for all."""

    def __str__(self) -> str:
        """In words, empty where it is everything."""
        said = [f"case {glob}" for glob in self.cases] + [f"dtype {name}" for name in self.dtypes]
        said += [f"shard {self.shard[0]}/{self.shard[1]}"] if self.shard != (1, 1) else []
        said += ["the cells of a report"] if self.cells is not None else []
        return ", ".join(said)

    def of(self, cases: Sequence[Case]) -> list[Case]:
        """The cases that are selected. Raises ``UsageError`` where a glob or dtype matches none."""
        for glob in self.cases:
            if not any(_matches(case, glob) for case in cases):
                raise UsageError(f"no case matches {glob!r}", mend="--list shows the cases")
        for name in self.dtypes:
            if not any(name in _parameters(case) for case in cases):
                raise UsageError(f"no case is of dtype {name!r}", mend="--list shows the cases")
        chosen = [
            case
            for case in cases
            if (not self.cases or any(_matches(case, glob) for glob in self.cases))
            and (not self.dtypes or any(name in _parameters(case) for name in self.dtypes))
        ]
        part, parts = self.shard
        return chosen[part - 1 :: parts]


def _matches(case: Case, glob: str) -> bool:
    # Ids hold brackets, which are no sets of characters here.
    return case.id == glob or fnmatchcase(case.id, glob.replace("[", "[[]"))


def _parameters(case: Case) -> list[str]:
    return re.split(r"[\[\]\-,#]", case.id)


def run(
    suites: Iterable[str],
    flows: Iterable[str],
    *,
    cases: Sequence[str],
    dtypes: Sequence[str],
    shard: str | None,
    failed_from: str | None,
    list_only: bool,
    exact: bool,
    executorch: str | None,
    python: str | None,
    subject: str | None,
    declared: Sequence[str],
    seed: int,
    workers: int | None,
    stage_timeout: float | None,
    json_file: str | None,
    junit_file: str | None,
) -> ExitCode:
    """Run the suites' cases on the flows and return the gate's exit code."""
    report, junit = document.claim(json_file), document.claim(junit_file)
    chosen, names = select(split(flows)), known.select(split(suites))
    accepted = declarations(declared)
    selection = Selection(
        cases=tuple(cases),
        dtypes=split(dtypes),
        shard=_shard(shard),
        cells=_failed_in(failed_from) if failed_from else None,
    )
    to = terminal.console()
    folder = new_folder()
    plans = {
        stack: _with_packages(plan, names)
        for stack, plan in plans_for(
            chosen, executorch=executorch, python=python, subject=subject
        ).items()
    }
    said = partial(to.print, markup=False)
    first = plans[chosen[0].stack]
    found = selection.of(cases_of(names, first.prepare(said), folder))
    groups = _groups(found, chosen, plans, selection, seed=seed, exact=exact)
    cells = [cell for group in groups for task in group for cell in task]
    if not cells:
        raise UsageError("the selection is empty", mend="--list shows the cases")
    if list_only:
        for cell in cells:
            to.print(f"{cell.case.id} {cell.flow.name}", markup=False)
        return ExitCode.OK
    watching = terminal.Live if to.is_terminal else terminal.Plain
    with watching(to, len(cells)) as watcher:
        outcome = run_cells(
            groups,
            list(plans.values()),
            workers=workers or min(os.cpu_count() or 1, MOST_WORKERS),
            watcher=watcher,
            limits=Limits(stage=stage_timeout),
            declared=accepted,
            folder=folder,
        )
    common = common_options(executorch, python, subject, seed, stage_timeout)
    reproduce = {
        cell.id: f"edgeproof run --suite {cell.case.suite} --flow {cell.flow.name} "
        f"--case {shlex.quote(cell.case.id)}{common}"
        for cell in cells
    }
    return conclude(
        outcome, to,
        report=report, junit=junit, seed=seed, reproduce=reproduce, show=summary.show,
        selection=str(selection),
    )  # fmt: skip


def _with_packages(plan: SubjectPlan, suites: Sequence[str]) -> SubjectPlan:
    """The plan, prepared once, with what upstream's test modules import where they are asked for."""
    made: list[Subject] = []

    def prepare(said: Any) -> Subject:
        if not made:
            subject = plan.prepare(said)
            beside = packages_for(plan.stack, subject, said) if needs_packages(suites) else {}
            made.append(replace(subject, env={**subject.env, **beside}))
        return made[0]

    return replace(plan, prepare=prepare)


def _groups(
    cases: Sequence[Case],
    flows: Sequence[Flow],
    plans: dict[str, SubjectPlan],
    selection: Selection,
    *,
    seed: int,
    exact: bool,
) -> list[Group]:
    """The cells, so that what the flows of a case share is in one group, and small cases in bundles.

    Quantized flows are not bundled: what of a bundle was quantized cannot be told case by case.
    """
    groups: list[Group] = []
    for stack, on_stack in groupby(sorted(flows, key=lambda f: f.stack), key=lambda f: f.stack):
        of_stack = tuple(on_stack)
        for some in _batches(cases, exact=exact):
            tasks: list[Task] = []
            for flow in of_stack:
                task = tuple(
                    Cell(
                        case=case,
                        flow=flow,
                        subject=plans[stack].id,
                        seed=case_seed(case.id, seed),
                    )
                    for case in some
                    if selection.cells is None or (case.id, flow.name) in selection.cells
                )
                tasks += [(cell,) for cell in task] if flow.quantized else [task] if task else []
            if tasks:
                groups.append(tuple(tasks))
    return groups


def _batches(cases: Sequence[Case], *, exact: bool) -> Iterable[Sequence[Case]]:
    small = [] if exact else [case for case in cases if not case.whole]
    alone = cases if exact else [case for case in cases if case.whole]
    yield from ([case] for case in alone)
    for start in range(0, len(small), BUNDLE):
        yield small[start : start + BUNDLE]


def _shard(text: str | None) -> tuple[int, int]:
    """``3/8`` as numbers. Raises ``UsageError`` for anything else."""
    if text is None:
        return 1, 1
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise UsageError(f"--shard {text!r} is no part of a whole", mend="for example --shard 3/8")
    return int(found[1]), int(found[2])


def _failed_in(report: str) -> frozenset[tuple[str, str]]:
    """Case and flow of what did not pass in a report. Raises ``UsageError`` for what is no report."""
    path: Path = given_path(report)
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        failed = {
            (str(cell["case"]), str(cell["flow"]))
            for cell in told["cells"]
            if cell["verdict"] != "passed"
        }
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise UsageError(f"{report} cannot be read as a report: {problem}") from None
    if not failed:
        raise UsageError(f"every cell of {report} passed: there is nothing to run again")
    return frozenset(failed)
