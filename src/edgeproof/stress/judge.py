"""From what a child told to a verdict. What was not told was not proved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgeproof.plan.stage import Verdict
from edgeproof.stress.growth import Growth, examine
from edgeproof.stress.plan import Mode, Phase, Spec
from edgeproof.stress.runner import Told

LEAST_OVERLAP = 0.01
"""Two threads must have been inside calls of a kind at once for this part of the time that any was."""
LEAST_TOGETHER = 0.02
"""This part of the calls of a kind must have ended sooner after another than they take alone."""
_LOADS_ONCE = (Mode.SHARED_METHOD, Mode.UNSERIALISED)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """How a stress run ended: verdict, one word for why, and a sentence."""

    verdict: Verdict
    cause: str
    reason: str


def judge(spec: Spec, told: Told, *, serial: Mapping[str, str]) -> Finding:
    """The verdict on a try. ``serial`` names kinds of calls (``load``, ``run``) that the flow declares to be
    answered one at a time, with the reason."""
    if told.broke:
        return Finding(verdict=Verdict.FAILED, cause="unproved", reason=told.broke)
    if told.hung:
        return Finding(verdict=Verdict.TIMED_OUT, cause="hung", reason=told.hung)
    if not told.ended:
        how = told.crash["how"] if told.crash else "it left no trace"
        return Finding(
            verdict=Verdict.CRASHED, cause="crashed", reason=f"{_where(spec, told)}: {how}"
        )
    wrong = _alone(spec, told)
    for phase in spec.phases:
        wrong = wrong or _phase(spec, phase, told.phases.get(phase), serial)
    return wrong or Finding(verdict=Verdict.PASSED, cause="", reason="")


def growths(phase: Mapping[str, Any]) -> list[Growth]:
    """What grew in a phase, and whether that is a leak."""
    samples = phase["samples"]
    iterations = [sample["iterations"] for sample in samples]
    found = []
    for what in ("heap", "resident", "descriptors", "threads"):
        held = [sample[what] for sample in samples]
        if min(held) >= 0:  # -1: it cannot be read here, or not under a sanitizer
            found.append(examine(what, iterations, held))
    return found


def _where(spec: Spec, told: Told) -> str:
    if not told.alone:
        return "the process died before it was stressed"
    left = [phase.value for phase in spec.phases if phase not in told.phases]
    return f"the process died in the {left[0]} phase" if left else "the process died at its end"


def _failed(cause: str, reason: str) -> Finding:
    return Finding(verdict=Verdict.FAILED, cause=cause, reason=reason)


def _alone(spec: Spec, told: Told) -> Finding | None:
    if len(told.alone) != len(spec.programs):
        return _failed("unproved", "not every program was run by one thread first")
    for alone in told.alone:
        if alone.get("failed") != 0:
            said = _first(alone.get("failures", ()))
            return _failed("wrong_alone", f"{alone.get('flow')}: by one thread alone: {said}")
    return None


def _phase(
    spec: Spec, phase: Phase, found: Mapping[str, Any] | None, serial: Mapping[str, str]
) -> Finding | None:
    if found is None:
        return _failed("unproved", f"the {phase} phase was not told of")
    try:
        return (
            _answers(spec, phase, found)
            or _cache(spec, phase, found)
            or (None if spec.sanitizer else _grew(phase, found))
            or _overlap(spec, phase, found, serial)
        )
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as fault:
        return _failed("unproved", f"the {phase} phase was told of without {fault}")


def _answers(spec: Spec, phase: Phase, found: Mapping[str, Any]) -> Finding | None:
    asked = spec.load.threads * spec.load.iterations
    failed = found["failed"]
    if failed:
        first = found["failures"][0]
        cause = {"load": "load_failed", "run": "run_failed", "check": "wrong_output"}[
            first["stage"]
        ]
        said = (
            f"{failed} of {asked} iterations failed in the {phase} phase, first in thread "
            f"{first['thread']}, iteration {first['iteration']}: {first['problem']}"
        )
        return _failed(cause, said)
    loads = 0 if spec.mode in _LOADS_ONCE else asked
    runs = outputs = 0
    if spec.mode is not Mode.CHURN:
        runs = asked
        each = [spec.programs[t % len(spec.programs)].outputs for t in range(spec.load.threads)]
        outputs = sum(each) * spec.load.iterations
    wanted = (asked, loads, runs, outputs)
    did = (
        found["iterations"],
        found["load"]["calls"],
        found["run"]["calls"],
        found["outputs_checked"],
    )
    if did != wanted:
        return _failed(
            "unproved",
            f"{phase}: iterations, loads, runs and outputs checked were {did}, not {wanted}",
        )
    return None


def _cache(spec: Spec, phase: Phase, found: Mapping[str, Any]) -> Finding | None:
    cached = [program for program in spec.programs if program.cache_stats]
    for n, program in enumerate(spec.programs):
        if program not in cached:
            continue
        used = found["cache"][program.flow]
        threads = len(range(n, spec.load.threads, len(spec.programs)))
        loads = 1 if spec.mode in _LOADS_ONCE else threads * spec.load.iterations
        wanted = loads * program.delegates
        if used["hits"] + used["misses"] != wanted:
            return _failed(
                "unproved",
                f"{phase}: {program.flow} loaded {used['hits'] + used['misses']} models through its cache, "
                f"not {wanted}",
            )
        if phase is Phase.COLD and not used["misses"]:
            return _failed(
                "not_cold", f"{program.flow} found its models in a cache that was to be empty"
            )
        if spec.mode is Mode.RELOAD:
            # Beyond what an empty cache misses, or nothing was taken away under the threads.
            if used["misses"] <= (program.delegates if phase is Phase.COLD else 0):
                return _failed("unproved", f"{phase}: {program.flow} lost nothing from its cache")
            continue
        if phase is Phase.WARM and used["misses"]:
            return _failed(
                "cache_missed",
                f"{program.flow} missed its cache {used['misses']} of {wanted} times in the warm phase",
            )
    if spec.mode is Mode.RELOAD:
        return None
    before, after = found["cache"]["bytes"]
    if phase is Phase.WARM and after > before:
        return _failed("cache_grew", f"the cache grew by {after - before} bytes in the warm phase")
    if cached and phase is Phase.COLD and not after:
        return _failed("cache_empty", "the cold phase left nothing in the cache")
    return None


def _grew(phase: Phase, found: Mapping[str, Any]) -> Finding | None:
    leaks = [growth for growth in growths(found) if growth.leak]
    if not leaks:
        return None
    # What is behind it first: a leak of memory is one of resident memory too.
    return _failed(
        "leak",
        f"{phase}: "
        + "; ".join(
            f"{leak.what} grew by {leak.per_iteration:.6g} with every iteration, from {leak.first:.6g} to "
            f"{leak.last:.6g}"
            for leak in leaks
        ),
    )


def _overlap(
    spec: Spec, phase: Phase, found: Mapping[str, Any], serial: Mapping[str, str]
) -> Finding | None:
    if spec.load.threads == 1:
        return _failed(
            "no_overlap", "a single thread overlaps with nothing: --threads asks for more"
        )
    if spec.mode is Mode.SHARED_METHOD:  # one at a time is what the caller sees to
        return None
    # Under a reload most of the time goes into making models anew, and little into running them.
    kinds = ["load"] if spec.mode in (Mode.CHURN, Mode.RELOAD) else ["load", "run"]
    if spec.mode in _LOADS_ONCE:
        kinds.remove("load")
    for kind in kinds:
        calls = found[kind]
        share = calls["overlapped"] / calls["busy"] if calls["busy"] else 0.0
        if calls["most_at_once"] < 2 or share < LEAST_OVERLAP:
            return _failed("no_overlap", f"{phase}: no two threads were inside {kind} at once")
        # Where the cache holds nothing it is no fault that all wait for the one that fills it.
        filled = phase is Phase.WARM and spec.mode is not Mode.RELOAD
        if kind == "load" and not filled and any(p.cache_option for p in spec.programs):
            continue
        if kind in serial:
            continue
        if calls["together"] is None or calls["together"] < LEAST_TOGETHER:
            said = f"{100 * (calls['together'] or 0):.1f} %"
            return _failed(
                "no_overlap",
                f"{phase}: threads were inside {kind} at once, but only {said} of the calls ended without "
                "having waited for another: they were answered one at a time",
            )
    return None


def _first(failures: Sequence[Mapping[str, Any]]) -> str:
    return f"{failures[0]['stage']}: {failures[0]['problem']}" if failures else "no more was told"
