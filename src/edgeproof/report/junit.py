"""The ledger as JUnit XML, which CI systems show."""

from __future__ import annotations

import re
from collections.abc import Mapping
from xml.etree import ElementTree as Tree

from edgeproof.host.run import Outcome
from edgeproof.plan.cell import Result
from edgeproof.plan.stage import Verdict

# What XML 1.0 has no way to write: control characters and lone surrogates.
_UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(outcome: Outcome, reproduce: Mapping[str, str]) -> str:
    """One suite with a test for each cell. ``reproduce`` maps cell ids to command lines.

    A declared ``not_run`` or ``skipped`` is a skipped test; any other that did not pass is a failure, or
    an error where the cell came to no answer (crashed, timed out, not run).
    """
    results = list(outcome.ledger)
    suite = Tree.Element("testsuite", name="edgeproof", tests=str(len(results)))
    counts = {"failures": 0, "errors": 0, "skipped": 0}
    for result in results:
        case = Tree.SubElement(
            suite,
            "testcase",
            classname=_clean(f"{result.cell.flow.name}.{result.cell.subject}"),
            name=_clean(" ".join(filter(None, (result.cell.case.id, result.cell.mode)))),
            time=f"{sum(timed.seconds for timed in result.stages):.3f}",
        )
        kind = _kind(result)
        if not kind:
            continue
        counts[{"failure": "failures", "error": "errors", "skipped": "skipped"}[kind]] += 1
        said = Tree.SubElement(case, kind, message=_clean(f"{result.cause}: {result.reason}"))
        if kind != "skipped":
            said.set("type", result.verdict.value)
            lines = (result.mend, f"alone: {reproduce[result.cell.id]}", result.log)
            said.text = _clean("\n".join(line for line in lines if line))
    for name, count in counts.items():
        suite.set(name, str(count))
    suite.set("time", f"{outcome.seconds:.3f}")
    root = Tree.Element("testsuites")
    root.append(suite)
    Tree.indent(root)
    return Tree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _kind(result: Result) -> str:
    if result.verdict is Verdict.PASSED:
        return ""
    if result.declared and result.verdict in (Verdict.NOT_RUN, Verdict.SKIPPED):
        return "skipped"
    ended = (Verdict.FAILED, Verdict.EXPECTED_FAILURE, Verdict.UNEXPECTED_PASS)
    return "failure" if result.verdict in ended else "error"


def _clean(text: str) -> str:
    return _UNWRITABLE.sub("\N{REPLACEMENT CHARACTER}", text)
