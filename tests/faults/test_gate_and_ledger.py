"""The ledger and the gate fail closed: every way to prove nothing, or less than was asked for."""

from __future__ import annotations

import pytest

from edgeproof.errors import ExitCode
from edgeproof.flows.registry import all_flows
from edgeproof.gate.rules import rule
from edgeproof.plan.case import Case, Source
from edgeproof.plan.cell import Cell, Result
from edgeproof.plan.ledger import Ledger
from edgeproof.plan.stage import Verdict


def cell_of(flow: str = "portable_fp32", case: str = "user/net") -> Cell:
    return Cell(
        case=Case(id=case, source=Source.FILE, target="net.py:build"),
        flow=all_flows()[flow],
        subject="base/executorch-1.5.1/py3.11",
        seed=1,
    )


PORTABLE, XNNPACK = cell_of(), cell_of("xnnpack_fp32")


def passed(cell: Cell = PORTABLE) -> Result:
    return Result(cell=cell, verdict=Verdict.PASSED)


def ended(verdict: Verdict, cell: Cell = XNNPACK, *, declared: bool = False) -> Result:
    return Result(cell=cell, verdict=verdict, declared=declared)


def ledger_of(*results: Result, also: tuple[Cell, ...] = ()) -> Ledger:
    ledger = Ledger([*(result.cell for result in results), *also])
    for result in results:
        ledger.record(result)
    return ledger


def test_a_ledger_takes_one_result_for_each_cell() -> None:
    ledger = ledger_of(passed())
    with pytest.raises(ValueError, match="a second result came for user/net portable_fp32"):
        ledger.record(ended(Verdict.FAILED, PORTABLE))
    assert [result.verdict for result in ledger] == [Verdict.PASSED]


def test_a_ledger_refuses_what_was_not_asked_for() -> None:
    ledger = Ledger([PORTABLE])
    with pytest.raises(ValueError, match=r"xnnpack_fp32 .* was not asked for"):
        ledger.record(passed(XNNPACK))
    assert ledger.open() == (PORTABLE,)


def test_a_ledger_refuses_to_be_asked_twice() -> None:
    """Two cells of one id would have one verdict between them."""
    with pytest.raises(ValueError, match="is asked for twice"):
        Ledger([PORTABLE, XNNPACK, cell_of()])


def test_all_good_holds() -> None:
    ruling = rule(ledger_of(passed(), passed(XNNPACK)))
    assert (ruling.exit_code, ruling.reasons) == (ExitCode.OK, ())


@pytest.mark.parametrize("verdict", [Verdict.NOT_RUN, Verdict.SKIPPED])
def test_what_was_declared_is_good(verdict: Verdict) -> None:
    assert rule(ledger_of(passed(), ended(verdict, declared=True))).exit_code == ExitCode.OK
    ruling = rule(ledger_of(passed(), ended(verdict)))
    assert ruling.exit_code == ExitCode.GATE_BROKEN
    assert ruling.reasons == ("1 of 2 cells are not good",)


@pytest.mark.parametrize(
    "verdict", [v for v in Verdict if v not in (Verdict.PASSED, Verdict.NOT_RUN, Verdict.SKIPPED)]
)
def test_no_other_verdict_is_good_even_if_declared(verdict: Verdict) -> None:
    ruling = rule(ledger_of(passed(), ended(verdict, declared=True)))
    assert ruling.exit_code == ExitCode.GATE_BROKEN
    assert ruling.reasons == ("1 of 2 cells are not good",)


def test_nothing_passed_proves_nothing() -> None:
    ruling = rule(ledger_of(ended(Verdict.NOT_RUN, declared=True)))
    assert ruling.exit_code == ExitCode.NOTHING_RAN
    assert ruling.reasons == ("no cell passed: nothing was proved",)


def test_nothing_asked_for_proves_nothing() -> None:
    ruling = rule(Ledger([]))
    assert ruling.exit_code == ExitCode.NOTHING_RAN
    assert ruling.reasons == ("no cell was asked for", "no cell passed: nothing was proved")


def test_a_hole_is_no_pass() -> None:
    ruling = rule(ledger_of(passed(), also=(XNNPACK,)))
    assert ruling.exit_code == ExitCode.NOTHING_RAN
    assert ruling.reasons == ("1 of 2 cells have no verdict",)


def test_every_rule_that_broke_is_named_and_the_gravest_decides() -> None:
    failed = ended(Verdict.FAILED, PORTABLE)
    hole = cell_of(case="user/hole")
    ledger = ledger_of(failed, passed(XNNPACK), also=(hole,))
    everything = rule(ledger, interrupted=True, broken_subjects=2)
    assert everything.exit_code == ExitCode.INTERRUPTED
    assert [reason.partition(" ")[2] for reason in everything.reasons] == [
        "run was interrupted",
        "of 3 cells have no verdict",
        "subject(s) could not be prepared",
        "of 3 cells are not good",
    ]
    assert rule(ledger, broken_subjects=2).exit_code == ExitCode.NOTHING_RAN
    whole = ledger_of(failed, passed(XNNPACK))
    assert rule(whole, broken_subjects=2).exit_code == ExitCode.SUBJECT
    assert rule(whole).exit_code == ExitCode.GATE_BROKEN
    assert rule(ledger_of(failed)).exit_code == ExitCode.NOTHING_RAN
    assert rule(ledger_of(failed), broken_subjects=1).exit_code == ExitCode.SUBJECT
