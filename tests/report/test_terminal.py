from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from edgeproof.cli import listings
from edgeproof.flows.registry import all_flows
from edgeproof.gate.rules import rule
from edgeproof.host import subjects
from edgeproof.host.run import Outcome
from edgeproof.plan.case import Case, Source
from edgeproof.plan.cell import Cell, Result
from edgeproof.plan.ledger import Ledger
from edgeproof.plan.stage import Verdict
from edgeproof.report.terminal import show


def shown(*ids: str) -> str:
    cells = [
        Cell(
            case=Case(id=name, source=Source.BUILTIN, target="m:f"),
            flow=all_flows()["portable_fp32"],
            subject="base/executorch-1.5.1/py3.11",
            seed=1,
        )
        for name in ids
    ]
    ledger = Ledger(cells)
    for cell in cells:
        ledger.record(Result(cell=cell, verdict=Verdict.FAILED, reason="[red]no[/red]"))
    outcome = Outcome(
        ledger=ledger, subjects=[], broken={}, interrupted=False, fault=None,
        began=datetime.now(UTC), seconds=1.0, folder=Path(),
    )  # fmt: skip
    to = Console(file=io.StringIO(), width=150)
    show(to, outcome, rule(ledger), {cell.id: "edgeproof" for cell in cells})
    assert isinstance(to.file, io.StringIO)
    return to.file.getvalue()


@pytest.mark.parametrize("others", [(), ("operators/add[int8]",)])
def test_the_parameters_of_a_case_are_shown_everywhere(others: tuple[str, ...]) -> None:
    text = shown("operators/mul[bold]", *others)
    assert text.count("operators/mul[bold]") == 2  # in the table and where it is explained
    assert "[red]no[/red]" in text


def test_a_path_with_brackets_is_listed_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = subjects.Listed(
        stack="base", executorch="1.5.1", python="3.11.2", made="now", size_bytes=1,
        path=Path("/cache [bold]/base-1"), problems=(),
    )  # fmt: skip
    monkeypatch.setattr(subjects, "listing", lambda: (listed,))
    listings.subjects()
    assert "/cache [bold]/base-1" in capsys.readouterr().out
