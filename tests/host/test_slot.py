"""Bundles only prove: each cell gets its own verdict, and a crash is pinned to its cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from edgeproof.host.process import WorkerDied
from edgeproof.host.slot import Slot
from edgeproof.plan.cell import Cell, Result
from edgeproof.plan.stage import Verdict
from tests.host.test_history import CASE, CELL


def cells(count: int) -> tuple[Cell, ...]:
    return tuple(replace(CELL, case=replace(CASE, id=f"operators/op#{n}")) for n in range(count))


def died() -> WorkerDied:
    return WorkerDied({"how": "it was ended by SIGSEGV", "log": ""})


class Worker:
    """Takes cells and bundles; ``deadly`` cells kill it, ``wrong`` ones fail, alone or in a bundle."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.dead = False

    def run(self, cell: Cell, *, on_taken: Callable[[], None], on_stage: Any) -> Result:
        assert not self.dead
        on_taken()
        self.host.ran.append((cell.case.id,))
        if cell in self.host.deadly:
            self.dead = True
            return Result(cell=cell, verdict=Verdict.CRASHED, cause="crashed")
        verdict = Verdict.FAILED if cell in self.host.wrong else Verdict.PASSED
        return Result(cell=cell, verdict=verdict)

    def run_bundle(
        self, task: Sequence[Cell], *, on_taken: Callable[[], None], on_stage: Any
    ) -> list[Result]:
        assert not self.dead
        if self.host.dies_before_bundles:
            self.host.dies_before_bundles -= 1
            self.dead = True
            raise died()
        on_taken()
        self.host.ran.append(tuple(cell.case.id for cell in task))
        if set(task) & self.host.deadly:
            self.dead = True
            raise died()
        return [
            Result(cell=cell, verdict=Verdict.PASSED, evidence={"bundle": len(task)})
            for cell in task
            if cell not in self.host.wrong
        ]

    def close(self) -> None:
        assert not self.dead
        if self.host.dies_at_the_end:
            self.host.dies_at_the_end -= 1
            self.dead = True
            raise died()

    def kill(self) -> None:
        self.dead = True


class Host:
    def __init__(
        self,
        *,
        deadly: Sequence[Cell] = (),
        wrong: Sequence[Cell] = (),
        dies_before_bundles: int = 0,
        dies_at_the_end: int = 0,
        starts: int = 1000,
    ) -> None:
        self.deadly, self.wrong = set(deadly), set(wrong)
        self.dies_before_bundles = dies_before_bundles
        self.dies_at_the_end = dies_at_the_end
        self.starts = starts
        self.ran: list[tuple[str, ...]] = []
        self.results: dict[str, Result] = {}

    def start(self, cell: Cell) -> tuple[Any, Result | None]:
        if not self.starts:
            return None, Result(cell=cell, verdict=Verdict.NOT_RUN, cause="no_subject")
        self.starts -= 1
        return Worker(self), None

    def record(self, result: Result) -> None:
        assert result.cell.case.id not in self.results, "a second result"
        self.results[result.cell.case.id] = result

    def tell(self, what: str, *args: Any) -> None: ...

    def stopped(self) -> bool:
        return False

    def prove(self, *tasks: tuple[Cell, ...]) -> dict[str, Verdict]:
        slot = Slot(self)
        slot.run(tasks)
        slot.close()
        slot.abandon()
        return {key: result.verdict for key, result in self.results.items()}


def passed_but(asked: Sequence[Cell], others: dict[Cell, Verdict]) -> dict[str, Verdict]:
    return {cell.case.id: others.get(cell, Verdict.PASSED) for cell in asked}


def test_what_a_bundle_proves_is_not_run_again() -> None:
    asked = cells(20)
    host = Host()
    assert host.prove(asked) == passed_but(asked, {})
    assert len(host.ran) == 1


def test_what_a_bundle_does_not_prove_is_run_alone() -> None:
    asked = cells(20)
    host = Host(wrong=asked[3:5])
    assert host.prove(asked) == passed_but(asked, dict.fromkeys(asked[3:5], Verdict.FAILED))
    assert host.ran[1:] == [("operators/op#3",), ("operators/op#4",)]


@pytest.mark.parametrize("guilty", [0, 7, 19])
def test_a_crash_in_a_bundle_is_pinned_to_its_cell(guilty: int) -> None:
    asked = cells(20)
    host = Host(deadly=[asked[guilty]])
    assert host.prove(asked) == passed_but(asked, {asked[guilty]: Verdict.CRASHED})
    assert host.ran[-1] == (asked[guilty].case.id,) or (asked[guilty].case.id,) in host.ran


def test_twenty_crashes_in_a_row_do_not_end_the_run() -> None:
    asked = cells(21)
    host = Host(deadly=asked[:20])
    tasks = [(cell,) for cell in asked]
    assert host.prove(*tasks) == passed_but(asked, dict.fromkeys(asked[:20], Verdict.CRASHED))


def test_a_bundle_of_nothing_but_crashes() -> None:
    asked = cells(20)
    host = Host(deadly=asked)
    assert host.prove(asked) == dict.fromkeys((c.case.id for c in asked), Verdict.CRASHED)


def test_a_death_before_a_bundle_was_taken_is_not_the_bundles() -> None:
    asked = cells(5)
    host = Host(dies_before_bundles=1)
    assert host.prove(asked[:1], asked[1:]) == passed_but(asked, {asked[0]: Verdict.CRASHED})
    assert "after its cell" in host.results["operators/op#0"].reason


def test_a_bundle_that_its_worker_died_of_in_the_end_proves_nothing() -> None:
    asked = cells(6)
    host = Host(dies_at_the_end=1)
    assert host.prove(asked) == passed_but(asked, {})
    assert host.ran == [tuple(c.case.id for c in asked), *((c.case.id,) for c in asked)]
    assert not any(result.evidence for result in host.results.values())


def test_where_no_worker_starts_every_cell_says_so() -> None:
    asked = cells(7)
    host = Host(starts=0)
    assert host.prove(asked) == dict.fromkeys((c.case.id for c in asked), Verdict.NOT_RUN)


def test_where_no_worker_starts_any_more_what_was_proved_stays() -> None:
    asked = cells(7)
    host = Host(starts=1, deadly=[asked[2]])
    assert host.prove(asked[:2], (asked[2],), asked[3:]) == {
        **passed_but(asked[:2], {}),
        asked[2].case.id: Verdict.CRASHED,
        **dict.fromkeys((c.case.id for c in asked[3:]), Verdict.NOT_RUN),
    }
