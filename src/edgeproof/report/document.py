"""The JSON report. Its schema is docs/report-schema.json; a change of shape raises ``SCHEMA``."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgeproof import __version__
from edgeproof.errors import EdgeproofError, UsageError
from edgeproof.gate.rules import Ruling
from edgeproof.given import given_path
from edgeproof.host.run import Outcome
from edgeproof.plan.cell import Result

SCHEMA = 1


def document(
    outcome: Outcome,
    ruling: Ruling,
    *,
    command: str,
    seed: int,
    reproduce: Mapping[str, str],
    selection: str = "",
) -> dict[str, Any]:
    """The whole report as plain JSON values. ``reproduce`` maps cell ids to command lines, ``selection``
    says which part of the suites was asked for, if it was a part."""
    counts = outcome.ledger.counts()
    return {
        "schema": SCHEMA,
        "edgeproof": __version__,
        "command": command,
        "began": outcome.began.isoformat(timespec="seconds"),
        "seconds": round(outcome.seconds, 3),
        "seed": seed,
        "selection": selection,
        "interrupted": outcome.interrupted,
        "subjects": [
            {
                "id": subject.id,
                "stack": subject.stack,
                "managed": subject.managed,
                "interpreter": str(subject.python),
                "notes": list(subject.notes),
                "contents": subject.contents.to_json(),
            }
            for subject in outcome.subjects
        ],
        "broken_subjects": [
            {"id": key, "reason": failure.message, "mend": failure.mend}
            for key, failure in outcome.broken.items()
        ],
        "ledger": {
            "asked": len(outcome.ledger.asked),
            "verdicts": {verdict.value: count for verdict, count in counts.items()},
        },
        "gate": {"exit_code": int(ruling.exit_code), "reasons": list(ruling.reasons)},
        "cells": [_cell(result, reproduce[result.cell.id]) for result in outcome.ledger],
    }


def _cell(result: Result, reproduce: str) -> dict[str, Any]:
    return {
        "id": result.cell.id,
        "case": result.cell.case.id,
        "flow": result.cell.flow.name,
        "subject": result.cell.subject,
        "mode": result.cell.mode,
        "seed": result.cell.seed,
        "reproduce": reproduce,
        **result.to_json(),
    }


def claim(json_file: str | None) -> Path | None:
    """The path to ``write`` to, found writable before minutes are spent on what goes into it.

    A report that lies there is removed: should this run end before its own is written, no one must read
    the old one for it. Links are followed; pipes and devices are left as they are. Raises ``UsageError``.
    """
    if json_file is None:
        return None
    path = given_path(json_file)
    try:
        if is_stream(path):
            writable = os.access(path, os.W_OK)
        else:
            path = path.resolve()
            folder = path.parent
            writable = not path.is_dir() and folder.is_dir() and os.access(folder, os.W_OK)
            if writable:
                path.unlink(missing_ok=True)
    except (OSError, RuntimeError):  # a link to itself
        writable = False
    if not writable:
        raise UsageError(
            f"the report cannot be written to {json_file}",
            mend="name a file in a folder that exists and can be written to",
        )
    return path


def is_stream(path: Path) -> bool:
    """Whether a path is there to be written through: a pipe, a device, a descriptor of ours."""
    if not path.exists() or path.is_dir():
        return False
    return not path.is_file() or str(path).startswith(("/dev/fd/", "/dev/std", "/proc/"))


def write(report: Mapping[str, Any], path: Path) -> None:
    """Write the report whole or not at all. Raises ``EdgeproofError`` when it cannot be written."""
    write_text(json.dumps(report, indent=1) + "\n", path)


def write_text(text: str, path: Path) -> None:
    """Write a report in any format, as ``write`` does."""
    try:
        (_write_through if is_stream(path) else _replace)(path, text)
    except OSError as error:
        raise EdgeproofError(
            f"the report could not be written to {path}: {error.strerror or error}",
            mend="name another file; verdicts are in FILE.partial, or in the folder of logs",
        ) from error


def _replace(path: Path, text: str) -> None:
    handle, scratch = tempfile.mkstemp(prefix=".report-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(scratch).chmod(0o644)
        Path(scratch).replace(path)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise


def _write_through(path: Path, text: str) -> None:
    """Without waiting for a reader: a pipe that no one reads from is an error, not a run that hangs."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        if os.name == "posix":
            os.set_blocking(handle, True)
        file.write(text)
