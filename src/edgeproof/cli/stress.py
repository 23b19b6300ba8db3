"""``stress``: programs are proved as by ``check``, then driven by native threads in other processes."""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from edgeproof.cases import smoke as smoke_cases
from edgeproof.cases import stress as stress_cases
from edgeproof.cases import user
from edgeproof.cli.prove import common_options, conclude, plans_for, split
from edgeproof.errors import ExitCode, UsageError
from edgeproof.flows.registry import select
from edgeproof.host.process import Interrupted, Limits
from edgeproof.host.run import Outcome, new_folder, run_cells
from edgeproof.native import build
from edgeproof.plan.case import Case
from edgeproof.plan.cell import Cell, Keep, Result, StageTime, case_seed
from edgeproof.plan.flow import Flow
from edgeproof.plan.ledger import Ledger
from edgeproof.plan.stage import Stage, Verdict
from edgeproof.plan.subject import Subject
from edgeproof.report import document, terminal
from edgeproof.report import stress as shown
from edgeproof.stress import sanitizer as sanitizers
from edgeproof.stress.judge import Finding, growths, judge
from edgeproof.stress.plan import Load, Mode, Program, Spec
from edgeproof.stress.reduce import smallest
from edgeproof.stress.runner import Child, Told, read_log

THREADS, ITERATIONS = 4, 10
_VARIABLES = {"threads": "EDGEPROOF_STRESS_THREADS", "iterations": "EDGEPROOF_STRESS_ITERATIONS"}
_MIXED_STACK = "mixed"


def stress(
    flows: Iterable[str],
    *,
    case: str | None,
    modes: Sequence[str],
    threads: int | None,
    iterations: int | None,
    sanitize: str | None,
    reduce_seconds: float,
    phase_timeout: float | None,
    json_file: str | None,
    junit_file: str | None,
    executorch: str | None,
    python: str | None,
    subject: str | None,
    seed: int,
) -> ExitCode:
    """Stress the flows with one case, in each of the modes, and return the gate's exit code."""
    report = document.claim(json_file)
    junit = document.claim(junit_file)
    load = Load(
        threads=_number("threads", threads, THREADS),
        iterations=_number("iterations", iterations, ITERATIONS),
    )
    wanted = _modes(modes)
    chosen = select(split(flows))
    if Mode.MIXED in wanted and len(chosen) < 2:
        raise UsageError(
            "mixed takes the programs of several flows", mend="name them: --flow A --flow B"
        )
    run = _Stress(
        _case(case), chosen, wanted, load,
        seed=seed, sanitizer=sanitize or "", reduce_seconds=reduce_seconds, limit=phase_timeout,
        executorch=executorch, python=python, subject=subject,
    )  # fmt: skip
    outcome = run.go()
    words = [f"--case {shlex.quote(case)}"] if case else []
    words += [f"--sanitize {sanitize}"] if sanitize else []
    common = " ".join(["", *words]) + common_options(executorch, python, subject, seed, None)
    reproduce = {
        result.cell.id: f"edgeproof stress {_flows_of(result.cell, chosen)} --mode {result.cell.mode} "
        f"{_load_of(result, load)}{common}"
        for result in outcome.ledger
    }
    return conclude(
        outcome, run.console,
        report=report, junit=junit, seed=seed, reproduce=reproduce, show=shown.show,
    )  # fmt: skip


def _modes(given: Sequence[str]) -> list[Mode]:
    known = [mode.value for mode in Mode if mode is not Mode.UNSERIALISED]
    for name in split(given):
        if name not in known:
            raise UsageError(f"there is no mode {name!r}", mend=f"there are {', '.join(known)}")
    return [Mode(name) for name in dict.fromkeys(split(given))]


def _flows_of(cell: Cell, chosen: Sequence[Flow]) -> str:
    named = chosen if cell.mode == Mode.MIXED else [cell.flow]
    return " ".join(f"--flow {flow.name}" for flow in named)


def _load_of(result: Result, load: Load) -> str:
    least = result.evidence.get("smallest", {}).get("load") or {}
    threads = least.get("threads", load.threads)
    iterations = least.get("iterations", load.iterations)
    return f"--threads {threads} --iterations {iterations}"


def _number(name: str, given: int | None, otherwise: int) -> int:
    """An option, else its environment variable, else the default. Raises ``UsageError``."""
    variable = _VARIABLES[name]
    text = os.environ.get(variable, "")
    if given is not None or not text:
        return given or otherwise
    if not text.isdecimal() or not 1 <= int(text) <= 1_000_000:
        raise UsageError(
            f"${variable} is {text!r}", mend=f"give a number of {name}, from 1 to 1000000"
        )
    return int(text)


def _case(named: str | None) -> Case:
    known = {case.id: case for case in (*stress_cases.CASES, *smoke_cases.CASES)}
    if named is None:
        return stress_cases.CASES[0]
    if named in known:
        return known[named]
    if named.endswith(".pt2") or ":" in named:
        return user.case_from_argument(named, condition=False)
    raise UsageError(
        f"there is no case {named!r}",
        mend=f"there are {', '.join(known)}, and your own: FILE.py:FACTORY or MODEL.pt2",
    )


class _Stress:
    def __init__(
        self,
        case: Case,
        flows: Sequence[Flow],
        modes: Sequence[Mode],
        load: Load,
        *,
        seed: int,
        sanitizer: str,
        reduce_seconds: float,
        limit: float | None,
        executorch: str | None,
        python: str | None,
        subject: str | None,
    ) -> None:
        # Programs that run in one process come from one subject.
        self._flows = (
            [replace(flow, stack=_MIXED_STACK) for flow in flows] if Mode.MIXED in modes else flows
        )
        self._case, self._modes, self._load = case, modes, load
        self._seed = case_seed(case.id, seed)
        self._sanitizer, self._reduce_seconds, self._limit = sanitizer, reduce_seconds, limit
        self._plans = plans_for(self._flows, executorch=executorch, python=python, subject=subject)
        self._sanitizing: Mapping[str, str] = {}
        if sanitizer:
            self._sanitizing = {
                build.SANITIZER_VARIABLE: sanitizer,
                **sanitizers.environment(sanitizer, build.sanitizer_libraries(sanitizer)),
            }
        self._stop = threading.Event()
        self._tries = 0
        self.console = terminal.console()

    def go(self) -> Outcome:
        """Prove each program once, stress it, and return an outcome with a cell for each flow and mode."""
        folder = new_folder()
        cells = [
            Cell(
                case=self._case,
                flow=flow,
                subject=self._plans[flow.stack].id,
                seed=self._seed,
                keep=Keep(folder=str(folder / flow.name), turns=self._load.threads),
            )
            for flow in self._flows
        ]
        watching = terminal.Live if self.console.is_terminal else terminal.Plain
        with watching(self.console, len(cells)) as watcher:
            proved = run_cells(
                [((cell,),) for cell in cells],
                list(self._plans.values()),
                workers=min(2, os.cpu_count() or 1),
                watcher=watcher,
                limits=Limits(),
                declared={},
                folder=folder,
            )
        return self._stress_all(proved)

    def _stress_all(self, proved: Outcome) -> Outcome:
        by_flow = {result.cell.flow.name: result for result in proved.ledger}
        subjects = {subject.id: subject for subject in proved.subjects}
        groups = [
            (mode, group)
            for mode in self._modes
            for group in ([self._flows] if mode is Mode.MIXED else [[flow] for flow in self._flows])
        ]
        cells = {
            (mode, flow.name): replace(by_flow[flow.name].cell, mode=mode.value, keep=None)
            for mode, group in groups
            for flow in group
        }
        ledger = Ledger(cells.values())
        began, interrupted, fault = time.monotonic(), proved.interrupted, proved.fault
        for mode, group in groups:
            results = [by_flow[flow.name] for flow in group]
            unproved = [result for result in results if result.verdict is not Verdict.PASSED]
            stage: Stage | None = None
            evidence: dict[str, Any] = {}
            crash: Mapping[str, Any] | None = None
            if unproved:  # whatever else is in the mix cannot be stressed without it
                finding, result = None, unproved[0]
            elif interrupted or fault is not None:
                finding = Finding(
                    verdict=Verdict.NOT_RUN, cause="interrupted", reason="the run ended before it"
                )
            else:
                try:
                    finding, evidence, crash = self._one(
                        mode, results, subjects[results[0].cell.subject], proved.folder
                    )
                    stage = Stage.STRESS
                except (KeyboardInterrupt, Interrupted):
                    interrupted = True
                    finding = Finding(
                        verdict=Verdict.NOT_RUN, cause="interrupted", reason="it was interrupted"
                    )
            for flow, result in zip(group, results, strict=True):
                cell = cells[mode, flow.name]
                if finding is None:
                    first = result if result.verdict is not Verdict.PASSED else unproved[0]
                    ledger.record(replace(first, cell=cell))
                    continue
                ledger.record(
                    replace(
                        result,
                        cell=cell,
                        verdict=finding.verdict,
                        stage=None if finding.verdict is Verdict.PASSED else stage,
                        cause=finding.cause,
                        reason=finding.reason,
                        stages=_timed(result.stages, evidence),
                        evidence={**result.evidence, **evidence},
                        crash=crash,
                        log=crash["log"] if crash else "",
                    )
                )
        return replace(
            proved,
            ledger=ledger,
            interrupted=interrupted,
            seconds=proved.seconds + time.monotonic() - began,
        )

    def _one(
        self, mode: Mode, results: Sequence[Result], subject: Subject, folder: Path
    ) -> tuple[Finding, dict[str, Any], Mapping[str, Any] | None]:
        """Stress programs in one mode: how it ended, what was measured, and how it died if it did."""
        programs = tuple(_program(result, folder) for result in results)
        refused = _refused(mode, programs, results)
        if refused is not None:
            return refused, {}, None
        names = " + ".join(program.flow for program in programs)
        serial = {kind: why for result in results for kind, why in result.cell.flow.serial}
        self.console.print(f"stressing {names}: {mode}, {self._load}", markup=False)

        def tried(mode: Mode, load: Load) -> tuple[Finding, Told, Spec]:
            self._tries += 1
            spec = Spec(
                mode=mode,
                programs=programs,
                load=load,
                seed=self._seed,
                folder=str(folder / f"stress-{self._tries}"),
                sanitizer=self._sanitizer,
                env=self._sanitizing,
            )
            told = Child(subject, spec, limit=self._limit, stop=self._stop).go()
            return judge(spec, told, serial=serial), told, spec

        finding, told, spec = tried(mode, self._load)
        evidence: dict[str, Any] = {"stress": _measured(spec, told)}
        if self._sanitizer:
            found = sanitizers.reports(read_log(Path(spec.folder, "child.log")))
            evidence["sanitizer"] = [asdict(report) for report in found]
            ours = [report for report in found if report.ours]
            if ours and finding.verdict is Verdict.PASSED:
                said = f"{ours[0].what} in {ours[0].where}"
                finding = Finding(verdict=Verdict.FAILED, cause="sanitizer", reason=said)
        if mode is Mode.SHARED_METHOD and finding.verdict is Verdict.PASSED:
            without, died, _ = tried(Mode.UNSERIALISED, self._load)
            evidence["without_turns"] = {
                "verdict": without.verdict.value,
                "reason": without.reason,
                "crash": dict(died.crash) if died.crash else None,
            }
        if _worth_reducing(finding) and self._reduce_seconds:
            self.console.print(f"{finding.cause}: looking for the smallest load that fails")
            least = smallest(
                self._load,
                lambda load: _worth_reducing(tried(mode, load)[0]),
                seconds=self._reduce_seconds,
            )
            evidence["smallest"] = least.to_json()
        return finding, evidence, told.crash


def _timed(stages: tuple[StageTime, ...], evidence: Mapping[str, Any]) -> tuple[StageTime, ...]:
    """The stages with the time that the threads took, in place of what it took to keep the program."""
    if "stress" not in evidence:
        return stages
    before = tuple(timed for timed in stages if timed.stage is not Stage.STRESS)
    return (*before, StageTime(stage=Stage.STRESS, seconds=evidence["stress"]["seconds"]))


def _worth_reducing(finding: Finding) -> bool:
    """Whether less load may still fail: a run that did not overlap, or proved nothing, has no smaller one."""
    return finding.verdict is not Verdict.PASSED and finding.cause not in ("no_overlap", "unproved")


def _program(result: Result, folder: Path) -> Program:
    flow, kept = result.cell.flow, result.evidence["kept"]
    payload = result.evidence.get("payload") or {}
    return Program(
        flow=flow.name,
        folder=str(folder / flow.name),
        turns=int(kept["turns"]),
        outputs=int(kept["outputs"]),
        delegate=flow.delegate,
        delegates=len(payload.get("assets", ())),
        installs=flow.installs,
        cache_option=flow.cache_option,
        cache_stats=flow.cache_stats,
        cache_clear=flow.cache_clear,
        unstable=flow.unstable,
        orders=kept["orders"],
    )


def _refused(mode: Mode, programs: Sequence[Program], results: Sequence[Result]) -> Finding | None:
    why = ""
    if mode is Mode.RELOAD and not any(program.cache_clear for program in programs):
        why = "reload takes a cache's entries away, and this flow's delegate has no cache"
    stateful = any(result.evidence["kept"].get("writes_to_buffers") for result in results)
    if mode is Mode.SHARED_METHOD and stateful:
        why = "the program writes to buffers of its own: answers of one method depend on the order of calls"
    return Finding(verdict=Verdict.SKIPPED, cause="not_applicable", reason=why) if why else None


def _measured(spec: Spec, told: Told) -> dict[str, Any]:
    phases = {}
    for phase, found in told.phases.items():
        try:
            grew = [growth.to_json() for growth in growths(found)]
        except (KeyError, TypeError, ValueError, IndexError):
            grew = []  # the verdict is that it is unproved
        left = {key: value for key, value in found.items() if key not in ("event", "phase")}
        phases[phase.value] = {**left, "growth": grew}
    return {
        "mode": spec.mode.value,
        "threads": spec.load.threads,
        "iterations": spec.load.iterations,
        "seconds": round(told.seconds, 3),
        "alone": told.alone,
        "phases": phases,
    }
