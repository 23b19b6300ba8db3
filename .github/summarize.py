"""Print edgeproof's JSON report as the short Markdown that a job shows as its summary.

    python summarize.py REPORT.json

A report that is missing, is no report or has no cells ends with exit code 2: no summary must not
look like a good one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def summary(report: Mapping[str, Any]) -> str:
    """The report as Markdown. Raises ``KeyError``, ``TypeError`` or ``ValueError`` if it is none."""
    cells = report["cells"]
    asked, ended = report["ledger"]["asked"], sum(report["ledger"]["verdicts"].values())
    if not cells or not asked == ended == len(cells):
        raise ValueError(f"{asked} cells were asked for, {ended} ended, {len(cells)} are told of")
    gate = report["gate"]
    holds = gate["exit_code"] == 0
    lines = [
        f"### {'The gate holds' if holds else 'The gate is broken'} (`{report['command']}`)",
        "",
    ]
    lines += [f"- {_cell(reason)}" for reason in gate["reasons"]]
    lines += [f"- {_cell(subject['reason'])}" for subject in report["broken_subjects"]]
    lines += ["", "| flow | case | verdict | why |", "| --- | --- | --- | --- |"]
    for cell in cells:
        verdict = cell["verdict"] + (" (declared)" if cell["declared"] else "")
        at = f" at {cell['stage']}" if cell["stage"] and verdict != "passed" else ""
        row = (cell["flow"], cell["case"], verdict + at, (cell["reason"] or "").split("\n")[0])
        lines.append(f"| {' | '.join(_cell(text) for text in row)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def main(arguments: Sequence[str]) -> int:
    """Run the command line; the exit code is 0 or, with the reason on stderr, 2."""
    if len(arguments) != 1:
        print("usage: summarize.py REPORT.json", file=sys.stderr)
        return 2
    path = Path(arguments[0])
    try:
        print(summary(json.loads(path.read_text(encoding="utf-8"))), end="")
    except OSError as error:
        print(f"summarize: no report in {path}: {error.strerror}", file=sys.stderr)
        return 2
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        print(f"summarize: {path} is no report of edgeproof: {error!r}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
