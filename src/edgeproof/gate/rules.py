"""The gate: from a ledger to an exit code, and the sentence for each rule that broke."""

from __future__ import annotations

from dataclasses import dataclass

from edgeproof.errors import ExitCode
from edgeproof.plan.cell import Result
from edgeproof.plan.ledger import Ledger
from edgeproof.plan.stage import Verdict


@dataclass(frozen=True, kw_only=True)
class Ruling:
    """What the gate says: the exit code, and why it is not 0."""

    exit_code: ExitCode
    reasons: tuple[str, ...]


def rule(
    ledger: Ledger,
    *,
    interrupted: bool = False,
    fault: BaseException | None = None,
    broken_subjects: int = 0,
) -> Ruling:
    """Apply every rule. Several can break at once: the exit code is the gravest, all are named.

    A cell is good when it passed, or was declared ``not_run``
    or ``skipped``. A run in which nothing passed proves
    nothing, whatever was declared.
    """
    reasons = []
    code = ExitCode.OK

    def broke(reason: str, with_code: ExitCode) -> None:
        nonlocal code
        reasons.append(reason)
        code = code or with_code

    if interrupted:
        broke("the run was interrupted", ExitCode.INTERRUPTED)
    if fault is not None:
        broke(f"edgeproof itself failed: {type(fault).__name__}: {fault}", ExitCode.INTERNAL)
    results = list(ledger)
    hole = len(ledger.asked) - sum(ledger.counts().values())
    if not ledger.asked:
        broke("no cell was asked for", ExitCode.NOTHING_RAN)
    if hole:
        broke(f"{hole} of {len(ledger.asked)} cells have no verdict", ExitCode.NOTHING_RAN)
    if broken_subjects:
        broke(f"{broken_subjects} subject(s) could not be prepared", ExitCode.SUBJECT)
    if not any(result.verdict is Verdict.PASSED for result in results):
        broke("no cell passed: nothing was proved", ExitCode.NOTHING_RAN)
    unlapped = [result for result in results if result.cause == "no_overlap"]
    if unlapped:
        broke(
            f"{len(unlapped)} stress run(s) did not overlap: they prove nothing",
            ExitCode.NOTHING_RAN,
        )
    bad = [result for result in results if not _good(result)]
    if bad:
        broke(f"{len(bad)} of {len(ledger.asked)} cells are not good", ExitCode.GATE_BROKEN)
    return Ruling(exit_code=code, reasons=tuple(reasons))


def _good(result: Result) -> bool:
    return result.verdict is Verdict.PASSED or (
        result.verdict in (Verdict.NOT_RUN, Verdict.SKIPPED) and result.declared
    )
