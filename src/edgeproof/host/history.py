"""What earlier runs on this machine found: results to take over, and how long each cell took.

One SQLite file in the cache folder. It is no more than a cache: one that is damaged is made anew.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from edgeproof.host import cache
from edgeproof.host.journal import code_hash, fingerprint
from edgeproof.plan.case import Case
from edgeproof.plan.cell import Cell, Result
from edgeproof.plan.stage import Verdict
from edgeproof.plan.subject import Subject

_DAYS_KEPT = 30
_TABLES = """
CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, result TEXT NOT NULL, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS listings (key TEXT PRIMARY KEY, cases TEXT NOT NULL, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS times (case_id TEXT, flow TEXT, seconds REAL NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (case_id, flow));
"""
_LASTING = (Verdict.PASSED, Verdict.FAILED, Verdict.SKIPPED, Verdict.CRASHED)
"""A cell that took too long, or could not be run, may do better another time."""


class History:
    """The results and times of earlier runs. Whatever goes wrong with the file, nothing is raised: then
    nothing is known."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or cache.root() / "history.sqlite"

    def results(self, cells: Sequence[Cell], subjects: Iterable[Subject]) -> list[Result]:
        """Those of the cells whose case, flow, seed and subject, and edgeproof itself, are what they were."""
        holds = {subject.id: fingerprint(subject) for subject in subjects}
        by_key = {_key(cell, holds[cell.subject]): cell for cell in cells if cell.subject in holds}
        rows = self._read("SELECT key, result FROM results")
        found = []
        for key, text in rows:
            try:
                if key in by_key:
                    data = {**json.loads(text), "cached": True}
                    found.append(Result.from_json(by_key[key], data))
            except (ValueError, KeyError, TypeError):
                continue
        return found

    def times(self) -> dict[tuple[str, str], float]:
        """How many seconds a case took in a flow the last time, by case id and flow."""
        return {
            (case, flow): s
            for case, flow, s in self._read("SELECT case_id, flow, seconds FROM times")
        }

    def listing(self, suites: Sequence[str], subject: Subject) -> list[Case] | None:
        """The cases of the suites in a subject that has not changed, ``None`` where that is not known."""
        rows = self._read("SELECT cases FROM listings WHERE key = ?", _listing_key(suites, subject))
        try:
            return [Case.from_json(case) for case in json.loads(rows[0][0])] if rows else None
        except (ValueError, TypeError, KeyError):
            return None

    def add_listing(self, suites: Sequence[str], subject: Subject, cases: Iterable[Case]) -> None:
        """Keep the cases of the suites."""
        text = json.dumps([case.to_json() for case in cases])
        row = (_listing_key(suites, subject), text, time.time())
        self._write([("INSERT OR REPLACE INTO listings VALUES (?, ?, ?)", [row])])

    def add(self, results: Iterable[Result], subjects: Iterable[Subject]) -> None:
        """Keep what a run found. What is older than thirty days is dropped."""
        holds = {subject.id: fingerprint(subject) for subject in subjects}
        now = time.time()
        kept, times = [], []
        for result in results:
            cell = result.cell
            if result.verdict not in _LASTING or cell.subject not in holds:
                continue
            if not result.cached:
                times.append((cell.case.id, cell.flow.name, _seconds(result), now))
            data = json.dumps({**result.to_json(), "cached": False})
            kept.append((_key(cell, holds[cell.subject]), data, now))
        self._write(
            [
                ("INSERT OR REPLACE INTO results VALUES (?, ?, ?)", kept),
                ("INSERT OR REPLACE INTO times VALUES (?, ?, ?, ?)", times),
                *((f"DELETE FROM {table} WHERE at < ?", [(now - _DAYS_KEPT * 86400,)])
                  for table in ("results", "listings", "times")),
            ]
        )  # fmt: skip

    def _read(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        try:
            with closing(self._open()) as file:
                return file.execute(query, values).fetchall()
        except (sqlite3.Error, OSError):
            return []

    def _write(self, changes: Sequence[tuple[str, Sequence[tuple[Any, ...]]]]) -> None:
        try:
            with closing(self._open()) as file, file:
                for query, rows in changes:
                    file.executemany(query, rows)
        except sqlite3.OperationalError:
            return  # locked for too long, a full disk, a folder that is read-only
        except sqlite3.DatabaseError:
            self._path.unlink(missing_ok=True)
        except OSError:
            return

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = sqlite3.connect(self._path, timeout=30)
        try:
            file.executescript(_TABLES)
        except sqlite3.Error:
            file.close()
            raise
        return file


def _seconds(result: Result) -> float:
    return sum(timed.seconds for timed in result.stages if not timed.shared)


def _key(cell: Cell, holds: str) -> str:
    told = [code_hash(), holds, cell.case.to_json(), cell.flow.name, cell.seed, cell.mode]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _listing_key(suites: Sequence[str], subject: Subject) -> str:
    told = json.dumps([code_hash(), fingerprint(subject), list(suites)])
    return hashlib.sha256(told.encode()).hexdigest()
