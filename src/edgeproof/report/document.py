"""The JSON report. Its schema is docs/report-schema.json; a change of shape raises ``SCHEMA``."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgeproof import __version__
from edgeproof.errors import EdgeproofError
from edgeproof.gate.rules import Ruling
from edgeproof.host.run import Outcome
from edgeproof.plan.cell import Result

SCHEMA = 1


def document(
    outcome: Outcome, ruling: Ruling, *, command: str, seed: int, reproduce: Mapping[str, str]
) -> dict[str, Any]:
    """The whole report as plain JSON values. ``reproduce`` maps cell ids to command lines."""
    counts = outcome.ledger.counts()
    return {
        "schema": SCHEMA,
        "edgeproof": __version__,
        "command": command,
        "began": outcome.began.isoformat(timespec="seconds"),
        "seconds": round(outcome.seconds, 3),
        "seed": seed,
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
        "seed": result.cell.seed,
        "verdict": result.verdict.value,
        "declared": result.declared,
        "stage": result.stage.value if result.stage else None,
        "cause": result.cause,
        "reason": result.reason,
        "mend": result.mend,
        "reproduce": reproduce,
        "stages": [
            {
                "stage": timed.stage.value,
                "seconds": timed.seconds,
                "shared": timed.shared,
                "skipped": timed.skipped,
            }
            for timed in result.stages
        ],
        "evidence": dict(result.evidence),
        "crash": dict(result.crash) if result.crash else None,
        "log": result.log,
    }


def write(report: Mapping[str, Any], path: Path) -> None:
    """Write the report whole or not at all. Raises ``EdgeproofError`` when it cannot be written."""
    try:
        handle, scratch = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(report, file, indent=1)
                file.write("\n")
            Path(scratch).chmod(0o644)
            Path(scratch).replace(path)
        except BaseException:
            Path(scratch).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise EdgeproofError(
            f"the report could not be written to {path}: {error.strerror or error}",
            mend="name another file with --json; verdicts are in the journal of the run's folder",
        ) from error
