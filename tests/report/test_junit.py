"""The ledger as CI systems read it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree as Tree

import pytest

from edgeproof.flows.registry import all_flows
from edgeproof.host.run import Outcome
from edgeproof.plan.case import Case, Source
from edgeproof.plan.cell import Cell, Result
from edgeproof.plan.ledger import Ledger
from edgeproof.plan.stage import Verdict
from edgeproof.report.junit import junit


def suite(*results: tuple[Verdict, str, bool], reason: str = "because") -> Tree.Element:
    ledger_cells = [
        Cell(
            case=Case(id=f"operators/{n}", source=Source.BUILTIN, target="m:f"),
            flow=all_flows()["portable_fp32"],
            subject="base",
            seed=1,
            mode="private" if n == 0 else "",
        )
        for n in range(len(results))
    ]
    ledger = Ledger(ledger_cells)
    for cell, (verdict, cause, declared) in zip(ledger_cells, results, strict=True):
        ledger.record(
            Result(cell=cell, verdict=verdict, cause=cause, reason=reason, declared=declared)
        )
    outcome = Outcome(
        ledger=ledger, subjects=[], broken={}, interrupted=False, fault=None,
        began=datetime.now(UTC), seconds=1.5, folder=Path(),
    )  # fmt: skip
    return Tree.fromstring(
        junit(outcome, {cell.id: f"edgeproof {cell.id}" for cell in ledger_cells})
    )


def test_every_verdict_is_told_as_what_it_is() -> None:
    root = suite(
        (Verdict.PASSED, "", False),
        (Verdict.FAILED, "mismatch", False),
        (Verdict.CRASHED, "crashed", False),
        (Verdict.TIMED_OUT, "hung", False),
        (Verdict.NOT_RUN, "cannot_run", True),
        (Verdict.NOT_RUN, "interrupted", False),
        (Verdict.SKIPPED, "nothing_to_quantize", True),
        (Verdict.SKIPPED, "nothing_to_quantize", False),
        (Verdict.UNEXPECTED_PASS, "", False),
    )
    [made] = root
    assert made.attrib == {
        "name": "edgeproof", "tests": "9", "failures": "2", "errors": "4", "skipped": "2",
        "time": "1.500",
    }  # fmt: skip
    told = [[child.tag for child in case] for case in made]
    assert told == [
        [], ["failure"], ["error"], ["error"], ["skipped"], ["error"], ["skipped"], ["error"], ["failure"],
    ]  # fmt: skip
    assert made[0].attrib["name"] == "operators/0 private"
    assert made[0].attrib["classname"] == "portable_fp32.base"
    assert made[1][0].attrib["message"] == "mismatch: because"
    assert "alone: edgeproof operators/1" in (made[1][0].text or "")


@pytest.mark.parametrize("reason", ["a\x00b", "\x1b[31mred", "\ud800", "]]> & <x>", "\ufffe"])
def test_what_libraries_say_never_breaks_the_file(reason: str) -> None:
    [made] = suite((Verdict.FAILED, "raised", False), reason=reason)
    assert made[0][0].attrib["message"].startswith("raised: ")
