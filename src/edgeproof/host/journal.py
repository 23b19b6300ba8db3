"""The journal of a run: its results as they come, so that one that was killed can go on.

One JSON object a line. The first says what was asked for and of which edgeproof; then comes a line for each
subject, with what it holds, and one for each result. A line that was cut off is not taken for one.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import edgeproof
from edgeproof.errors import UsageError
from edgeproof.plan.cell import Cell, Result
from edgeproof.plan.subject import Subject


class Journal:
    """Writes results down as they come. Raises ``OSError`` where it cannot."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self, asked: Mapping[str, Any]) -> None:
        """Empty it, and say what was asked for."""
        self.path.write_text("", encoding="utf-8")
        self._add({"asked": asked, "code": code_hash()})

    def go_on(self) -> None:
        """Cut off a line that was not written to its end, so that the next begins a new one."""
        text = self.path.read_bytes()
        os.truncate(self.path, text.rfind(b"\n") + 1)

    def subject(self, subject: Subject) -> None:
        """Say what a subject holds."""
        self._add({"subject": subject.id, "holds": fingerprint(subject)})

    def result(self, result: Result) -> None:
        """Write down a result."""
        self._add({"cell": result.cell.id, "result": result.to_json()})

    def remove(self) -> None:
        """There is nothing to go on with any more."""
        self.path.unlink(missing_ok=True)

    def _add(self, line: Mapping[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


@dataclass(frozen=True, kw_only=True)
class Begun:
    """What a journal holds: what was ``asked`` for, what each subject ``holds``, results by cell id."""

    asked: Mapping[str, Any]
    holds: Mapping[str, str]
    results: Mapping[str, Mapping[str, Any]] = field(repr=False)

    def check(self, subject: Subject) -> None:
        """Raises ``UsageError`` when the subject is not the one that the results are from."""
        if self.holds.get(subject.id, fingerprint(subject)) != fingerprint(subject):
            raise UsageError(
                f"{subject.id} holds other packages than when the run began: it cannot go on",
                mend="run it anew, without --resume",
            )

    def of(self, cell: Cell) -> Result | None:
        """The result of a cell, if it has one. Raises ``UsageError`` for a damaged one."""
        data = self.results.get(cell.id)
        try:
            return None if data is None else Result.from_json(cell, data)
        except (KeyError, TypeError, ValueError) as problem:
            raise UsageError(f"the journal's result of {cell.id} is damaged: {problem!r}") from None


def read(path: Path) -> Begun:
    """What a run left in its journal. Raises ``UsageError`` where one cannot go on from it."""
    try:
        lines = list(_lines(path.read_bytes()))
        asked, code = lines[0]["asked"], lines[0]["code"]
        holds = {line["subject"]: line["holds"] for line in lines if "subject" in line}
        results = {line["cell"]: line["result"] for line in lines if "cell" in line}
    except FileNotFoundError:
        raise UsageError(
            f"there is no {path}: the run ended, or was never begun",
            mend="run it anew, without --resume",
        ) from None
    except (OSError, LookupError, TypeError, ValueError) as problem:
        raise UsageError(
            f"{path} cannot be read as the journal of a run: {problem}",
            mend="run it anew, without --resume",
        ) from None
    if code != code_hash():
        raise UsageError(
            "edgeproof itself has changed since the run began: it cannot go on",
            mend="run it anew, without --resume",
        )
    return Begun(asked=asked, holds=holds, results=results)


def _lines(text: bytes) -> Iterator[dict[str, Any]]:
    whole, _, _ = text.rpartition(b"\n")
    for line in whole.split(b"\n"):
        if line.strip():
            yield json.loads(line)


@functools.cache
def code_hash() -> str:
    """A hash of everything of edgeproof that a verdict may depend on: all of it."""
    digest = hashlib.sha256()
    folder = Path(edgeproof.__file__).parent
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix != ".pyc"):
        digest.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def fingerprint(subject: Subject) -> str:
    """A hash of what a subject holds, and of the machine it runs on."""
    holds = asdict(subject.contents)
    del holds["memory_bytes"]
    return hashlib.sha256(
        json.dumps([holds, sorted(subject.env.items())], sort_keys=True).encode()
    ).hexdigest()
