"""What a child told, and what is proved by it: each piece that is missing is red."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from edgeproof.plan.stage import Verdict
from edgeproof.stress.judge import judge
from edgeproof.stress.plan import Load, Mode, Phase, Program, Spec
from edgeproof.stress.runner import Told

PROGRAM = Program(
    flow="faulty", folder="", turns=4, outputs=2, delegates=2, cache_option="dir", cache_stats="a:b"
)


def spec(mode: Mode = Mode.PRIVATE, *, threads: int = 4, **changes: Any) -> Spec:
    load = Load(threads=threads, iterations=10)
    return Spec(mode=mode, programs=(PROGRAM,), load=load, seed=0, folder="", **changes)


def calls(count: int) -> dict[str, Any]:
    return {"calls": count, "busy": 1.0, "overlapped": 0.8, "most_at_once": 4, "together": 0.5}


def phase(hits: int, misses: int, before: int) -> dict[str, Any]:
    sample = {"heap": 10**6, "resident": 10**7, "descriptors": 9, "threads": 8}
    return {
        "seconds": 1.0,
        "iterations": 40,
        "failed": 0,
        "failures": [],
        "outputs_checked": 80,
        "load": calls(40),
        "run": calls(40),
        "samples": [{"iterations": 2 * n, **sample} for n in range(21)],
        "cache": {"bytes": [before, 4096], "faulty": {"hits": hits, "misses": misses}},
    }


def told() -> Told:
    alone = {"flow": "faulty", "failed": 0, "failures": [], "load": 0.01, "run": 0.01}
    phases = {Phase.COLD: phase(78, 2, 0), Phase.WARM: phase(80, 0, 4096)}
    return Told(alone=[alone], phases=phases, ended=True)


def test_all_that_was_asked_passes() -> None:
    assert judge(spec(), told(), serial={}).verdict is Verdict.PASSED


Change = Callable[[Told], object]


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda t: t.phases.pop(Phase.WARM), "unproved"),
        (lambda t: t.phases[Phase.COLD].pop("samples"), "unproved"),
        (lambda t: t.phases[Phase.COLD].update(samples=[]), "unproved"),
        (lambda t: t.phases[Phase.WARM].update(outputs_checked=79), "unproved"),
        (lambda t: t.phases[Phase.WARM].update(iterations=39), "unproved"),
        (lambda t: t.phases[Phase.WARM]["load"].update(calls=39), "unproved"),
        (lambda t: t.phases[Phase.WARM]["run"].update(calls=39), "unproved"),
        (lambda t: t.phases[Phase.WARM]["cache"]["faulty"].update(hits=79), "unproved"),
        (lambda t: t.phases[Phase.WARM]["cache"]["faulty"].update(hits=79, misses=1), "cache_missed"),
        (lambda t: t.phases[Phase.COLD]["cache"]["faulty"].update(hits=80, misses=0), "not_cold"),
        (lambda t: t.phases[Phase.COLD]["cache"].update(bytes=[0, 0]), "cache_empty"),
        (lambda t: t.phases[Phase.WARM]["cache"].update(bytes=[4096, 4097]), "cache_grew"),
        (lambda t: t.phases[Phase.WARM].update(failed=1), "unproved"),
        (lambda t: t.phases[Phase.WARM]["load"].update(most_at_once=1), "no_overlap"),
        (lambda t: t.phases[Phase.COLD]["run"].update(overlapped=0.0), "no_overlap"),
        (lambda t: t.phases[Phase.COLD]["run"].update(together=0.0), "no_overlap"),
        (lambda t: t.phases[Phase.WARM]["load"].update(together=None), "no_overlap"),
        (lambda t: t.alone.clear(), "unproved"),
        (lambda t: t.alone[0].pop("failed"), "wrong_alone"),
        (lambda t: t.alone[0].update(failed=1), "wrong_alone"),
        (lambda t: setattr(t, "broke", "it said x"), "unproved"),
    ],
)  # fmt: skip
def test_each_piece_of_the_proof_is_needed(change: Change, cause: str) -> None:
    found = told()
    change(found)
    finding = judge(spec(), found, serial={})
    assert (finding.verdict, finding.cause) == (Verdict.FAILED, cause), finding


@pytest.mark.parametrize("what", ["heap", "resident", "descriptors", "threads"])
def test_a_leak_of_each_kind_is_red(what: str) -> None:
    found = told()
    for n, sample in enumerate(found.phases[Phase.WARM]["samples"]):
        sample[what] += 10**6 * n
    finding = judge(spec(), found, serial={})
    assert finding.cause == "leak"
    assert what in finding.reason


def test_one_thread_proves_nothing() -> None:
    found = told()
    for each in found.phases.values():
        each.update(iterations=10, outputs_checked=20)
        each["load"].update(calls=10)
        each["run"].update(calls=10)
    found.phases[Phase.COLD]["cache"]["faulty"].update(hits=18)
    found.phases[Phase.WARM]["cache"]["faulty"].update(hits=20)
    assert judge(spec(threads=1), found, serial={}).cause == "no_overlap"


def test_calls_that_the_flow_declares_serial_need_not_end_together() -> None:
    found = told()
    found.phases[Phase.WARM]["run"].update(together=0.0)
    assert judge(spec(), found, serial={"run": "one at a time"}).verdict is Verdict.PASSED
    found.phases[Phase.WARM]["run"].update(most_at_once=1)
    assert judge(spec(), found, serial={"run": "one at a time"}).cause == "no_overlap"


def test_a_child_that_did_not_end_is_a_crash_or_a_hang() -> None:
    found = told()
    found.ended = False
    assert judge(spec(), found, serial={}).verdict is Verdict.CRASHED
    found.hung = "the warm phase took longer than 60 s"
    assert judge(spec(), found, serial={}).verdict is Verdict.TIMED_OUT


def test_a_reload_has_to_miss_its_cache_in_both_phases() -> None:
    found = told()
    assert judge(spec(Mode.RELOAD), found, serial={}).cause == "unproved"
    found.phases[Phase.COLD]["cache"]["faulty"].update(hits=77, misses=3)
    assert judge(spec(Mode.RELOAD), found, serial={}).cause == "unproved"
    found.phases[Phase.WARM]["cache"]["faulty"].update(hits=79, misses=1)
    assert judge(spec(Mode.RELOAD), found, serial={}).verdict is Verdict.PASSED
