"""``run``: whole suites over many flows, in bundles."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
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
from edgeproof.errors import ExitCode, SubjectError, UsageError
from edgeproof.flows.registry import select
from edgeproof.given import given_path
from edgeproof.host import journal as journals
from edgeproof.host.history import History
from edgeproof.host.journal import Begun, Journal
from edgeproof.host.process import Limits
from edgeproof.host.run import Group, Outcome, SubjectPlan, new_folder, run_cells
from edgeproof.host.slot import Task
from edgeproof.host.suites import cases_of, needs_packages, packages_for
from edgeproof.host.uv import cannot_write
from edgeproof.plan.case import Case
from edgeproof.plan.cell import Cell, Result, case_seed
from edgeproof.plan.flow import Flow
from edgeproof.plan.subject import Subject
from edgeproof.report import document, summary, terminal

BUNDLE = 20
"""Cases of a bundle. More save little, and cost more where one of them fails."""
_UNKNOWN_SECONDS = 60.0


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


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What was asked for, as the journal keeps it for a run that goes on."""

    suites: tuple[str, ...]
    flows: tuple[str, ...]
    cases: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    shard: str | None = None
    only: tuple[tuple[str, str], ...] | None = None
    exact: bool = False
    cached: bool = False
    executorch: str | None = None
    python: str | None = None
    subject: str | None = None
    declared: tuple[str, ...] = ()
    seed: int = 0
    stage_timeout: float | None = None
    command: str = ""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Asked:
        """The inverse of ``dataclasses.asdict``. Raises ``TypeError`` for anything else."""
        held: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        if held.get("only") is not None:
            held["only"] = tuple((case, flow) for case, flow in held["only"])
        return cls(**held)

    def selection(self) -> Selection:
        """Which part of the suites it is."""
        return Selection(
            cases=self.cases,
            dtypes=self.dtypes,
            shard=_shard(self.shard),
            cells=None if self.only is None else frozenset(self.only),
        )


def run(
    suites: Iterable[str],
    flows: Iterable[str],
    *,
    dtypes: Sequence[str],
    failed_from: str | None,
    resume: str | None,
    list_only: bool,
    workers: int | None,
    json_file: str | None,
    junit_file: str | None,
    **options: Any,
) -> ExitCode:
    """Run the suites' cases on the flows and return the gate's exit code."""
    asked = Asked(
        suites=split(suites),
        flows=split(flows),
        dtypes=split(dtypes),
        only=_failed_in(failed_from) if failed_from else None,
        command=shlex.join(["edgeproof", *sys.argv[1:]]),
        **options,
    )
    begun = None
    if resume is not None:
        json_file, (asked, begun) = resume, _begun(resume, asked, json_file)
    elif not asked.suites or not asked.flows:
        raise UsageError(
            "run needs --suite and --flow", mend="`edgeproof run --help` lists the suites"
        )
    if asked.cached and asked.subject:
        raise UsageError(
            "--cached cannot tell whether an environment of yours has changed",
            mend="leave --cached out, or leave --subject out",
        )
    proving = _Proving(asked)
    report, junit = document.claim(json_file), document.claim(junit_file)
    proving.prepare(begun)
    if list_only:
        for cell in proving.cells:
            proving.to.print(f"{cell.case.id} {cell.flow.name}", markup=False)
        return ExitCode.OK
    journal = _journal(report, proving.folder, begun, asked)
    outcome = proving.go(workers, journal)
    common = common_options(
        asked.executorch, asked.python, asked.subject, asked.seed, asked.stage_timeout
    )
    reproduce = {
        cell.id: f"edgeproof run --suite {cell.case.suite} --flow {cell.flow.name} "
        f"--case {shlex.quote(cell.case.id)}{common}"
        for cell in proving.cells
    }
    code = conclude(
        outcome, proving.to,
        report=report, junit=junit, seed=asked.seed, reproduce=reproduce, show=summary.show,
        command=asked.command, selection=str(asked.selection()),
    )  # fmt: skip
    if report is not None and not outcome.interrupted:
        journal.remove()
    elif report is not None:
        proving.to.print(
            f"to go on: edgeproof run --resume {shlex.quote(str(report))}", markup=False
        )
    return code


class _Proving:
    """The cells that were asked for, those that need not be run again, and how to run the others."""

    def __init__(self, asked: Asked) -> None:
        """Raises ``UsageError`` where what is asked for makes no sense."""
        self._asked = asked
        self._declared = declarations(asked.declared)
        self._flows, self._suites = select(asked.flows), known.select(asked.suites)
        self._selection = asked.selection()

    def prepare(self, begun: Begun | None) -> None:
        """Prepare the subject that the cases are listed in, and find out which cells there are."""
        asked, suites = self._asked, self._suites
        self._history = History()
        self.to = terminal.console()
        self.folder = new_folder()
        plans = plans_for(
            self._flows,
            executorch=asked.executorch,
            python=asked.python,
            subject=asked.subject,
        )
        self._plans = {stack: _with_packages(plan, suites) for stack, plan in plans.items()}
        self._said = partial(self.to.print, markup=False)
        subject = self._plans[self._flows[0].stack].prepare(self._said)
        cases = self._history.listing(suites, subject)
        if cases is None:
            cases = cases_of(suites, subject, self.folder)
            self._history.add_listing(suites, subject, cases)
        self._groups = _groups(
            self._selection.of(cases),
            self._flows,
            self._plans,
            self._selection,
            seed=asked.seed,
            exact=asked.exact,
        )
        self.cells = [cell for group in self._groups for task in group for cell in task]
        if not self.cells:
            raise UsageError("the selection is empty", mend="--list shows the cases")
        self._done = self._known(begun)

    def _known(self, begun: Begun | None) -> list[Result]:
        """The results of the cells that are not to be run again."""
        if begun is None and not self._asked.cached:
            return []
        subjects = self._prepared()
        done: dict[str, Result] = {}
        if self._asked.cached:
            for result in self._history.results(self.cells, subjects):
                if not (self._asked.exact and "bundle" in result.evidence):
                    done[result.cell.id] = result
        if begun is not None:
            for subject in subjects:
                begun.check(subject)
            done |= {cell.id: known for cell in self.cells if (known := begun.of(cell)) is not None}
        if done:
            self._said(f"{len(done)} of {len(self.cells)} cells are taken over from an earlier run")
        return list(done.values())

    def _prepared(self) -> list[Subject]:
        """The subjects that can be had. The run will say why the others cannot."""
        found = []
        for plan in self._plans.values():
            with suppress(SubjectError):
                found.append(plan.prepare(self._said))
        return found

    def go(self, workers: int | None, journal: Journal) -> Outcome:
        """Run what is not done, the longest first."""
        times = self._history.times()
        watching = terminal.Live if self.to.is_terminal else terminal.Plain
        with watching(self.to, len(self.cells)) as watcher:
            outcome = run_cells(
                sorted(self._groups, key=lambda group: -_expected(group, times)),
                list(self._plans.values()),
                workers=workers or min(os.cpu_count() or 1, MOST_WORKERS),
                watcher=watcher,
                limits=Limits(stage=self._asked.stage_timeout),
                declared=self._declared,
                folder=self.folder,
                journal=journal,
                done=self._done,
            )
        if not self._asked.subject:
            self._history.add(outcome.ledger, outcome.subjects)
        return outcome


def _expected(group: Group, times: Mapping[tuple[str, str], float]) -> float:
    """How long a group may take, in seconds. What is not known counts as long, and comes first."""
    return sum(
        times.get((cell.case.id, cell.flow.name), _UNKNOWN_SECONDS)
        for task in group
        for cell in task
    )


def _journal(report: Path | None, folder: Path, begun: Begun | None, asked: Asked) -> Journal:
    """The journal beside the report, or in the run's folder; begun, unless it is gone on with.

    One that another run left is kept, under another name.
    """
    beside = report is not None and not document.is_stream(report)
    journal = Journal(_partial(report) if beside and report else folder / "journal.jsonl")
    try:
        if begun is not None:
            journal.go_on()
            return journal
        if journal.path.exists():
            journal.path.replace(f"{journal.path}~")
        journal.begin(asdict(asked))
    except OSError as error:
        raise cannot_write(error) from error
    return journal


def _partial(report: Path) -> Path:
    return report.with_name(f"{report.name}.partial")


def _begun(resume: str, asked: Asked, json_file: str | None) -> tuple[Asked, Begun]:
    """What a run that was ended asked for, and what it found. Raises ``UsageError``."""
    if json_file is not None or asked != Asked(suites=(), flows=(), command=asked.command):
        raise UsageError(
            "--resume goes on with what was asked for then", mend="leave the other options out"
        )
    begun = journals.read(_partial(given_path(resume).resolve()))
    try:
        return Asked.from_json(begun.asked), begun
    except (TypeError, ValueError) as problem:
        raise UsageError(
            f"{resume}.partial cannot be read as the journal of a run: {problem}",
            mend="run it anew, without --resume",
        ) from None


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


def _failed_in(report: str) -> tuple[tuple[str, str], ...]:
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
    return tuple(sorted(failed))
