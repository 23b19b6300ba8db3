"""``edgeproof check`` for many models in one run: a worker's start takes longer than twenty tiny cells.

    many.py REPORT FLOWS STAGE_TIMEOUT FILE.py[:NAME,NAME...] MODEL.pt2...

Without names, all the factories of a file.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from edgeproof.cases.user import case_from_argument
from edgeproof.cli import prove
from edgeproof.plan.case import Case
from edgeproof.report import document


def cases_of(argument: str) -> list[Case]:
    file, _, names = argument.partition(":")
    if not file.endswith(".py"):
        return [case_from_argument(argument)]
    body = ast.parse(Path(file).read_text(encoding="utf-8")).body
    defined = [n.name for n in body if isinstance(n, ast.FunctionDef) and n.name[0] != "_"]
    return [case_from_argument(f"{file}:{name}") for name in names.split(",") if name] or [
        case_from_argument(f"{file}:{name}") for name in defined
    ]


def main(report: str, flows: str, stage_timeout: str, *models: str) -> int:
    return prove.prove(
        [case for model in models for case in cases_of(model)],
        "check",
        flows.split(","),
        executorch=None,
        python=None,
        subject=None,
        declared=(),
        seed=0,
        workers=2,
        stage_timeout=float(stage_timeout) or None,
        report=document.claim(report),
        junit=None,
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
