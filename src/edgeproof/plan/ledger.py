"""The ledger: every cell that was asked for, each with exactly one verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from edgeproof.plan.cell import Cell, Result
from edgeproof.plan.stage import Verdict


class Ledger:
    """Holds the cells asked for and takes one result for each.

    A cell asked for twice, a second result for a cell, or one for a cell that was not asked for, is an
    error of edgeproof and raises ``ValueError``: each could hide a failure.
    """

    def __init__(self, asked: Iterable[Cell]) -> None:
        self._asked: dict[str, Cell] = {}
        for cell in asked:
            if cell.id in self._asked:
                raise ValueError(f"{cell.id} is asked for twice")
            self._asked[cell.id] = cell
        self._results: dict[str, Result] = {}

    @property
    def asked(self) -> tuple[Cell, ...]:
        """The cells in the order in which they were asked for."""
        return tuple(self._asked.values())

    def record(self, result: Result) -> None:
        """Take the one result of a cell."""
        key = result.cell.id
        if key not in self._asked:
            raise ValueError(f"a result came for {key}, which was not asked for")
        if key in self._results:
            raise ValueError(f"a second result came for {key}")
        self._results[key] = result

    def __iter__(self) -> Iterator[Result]:
        """The results there are, in the order of the cells."""
        return (self._results[key] for key in self._asked if key in self._results)

    def open(self) -> tuple[Cell, ...]:
        """The cells without a verdict."""
        return tuple(cell for key, cell in self._asked.items() if key not in self._results)

    def counts(self) -> dict[Verdict, int]:
        """How many cells ended with each verdict, all verdicts named."""
        counted = Counter(result.verdict for result in self)
        return {verdict: counted[verdict] for verdict in Verdict}
