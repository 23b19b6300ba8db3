"""Reports of ThreadSanitizer and AddressSanitizer, sorted by whose code they are about.

Only the driver and the bridge are built with the sanitizer. What lies in wheels is seen where it calls into
libc, and what it synchronises by other means is not known to the sanitizer: reports about it are told,
apart, and prove nothing by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

OURS = ("driver.cpp", "bridge.cpp", "/driver.cpython", "/bridge.cpython")
_REPORT = re.compile(
    r"^(?:WARNING: ThreadSanitizer|=+\d*=*ERROR: AddressSanitizer|==\d+==ERROR: AddressSanitizer): "
    r"(?P<what>[^\n(]*)[^\n]*\n(?P<body>.*?)^(?:SUMMARY: \w+Sanitizer[^\n]*|={10,})$",
    re.MULTILINE | re.DOTALL,
)
_FRAME = re.compile(r"^\s*#\d+ (?P<rest>.*)$", re.MULTILINE)
_RUNTIME = ("libtsan", "libasan", "sanitizer_common")


@dataclass(frozen=True, kw_only=True)
class Report:
    """One finding: of what kind, and where (the innermost frame that is not the sanitizer's).

    ``ours`` is whether that is in code of ours; ``text`` is the whole of it."""

    what: str
    where: str
    ours: bool
    text: str


def environment(sanitizer: str, libraries: Iterable[Path]) -> Mapping[str, str]:
    """What the process has to be started with."""
    options = {
        # Reports are read from the log; the exit code stays the child's.
        "thread": {"TSAN_OPTIONS": "exitcode=0 report_signal_unsafe=0 history_size=4"},
        # Python and wheels keep memory until the end, which is no leak of ours to judge, and wheels
        # put signal stacks of their own in the place of the sanitizer's.
        "address": {"ASAN_OPTIONS": "detect_leaks=0 exitcode=66 use_sigaltstack=0"},
    }
    return {"LD_PRELOAD": ":".join(map(str, libraries)), **options[sanitizer]}


def reports(log: str) -> list[Report]:
    """The findings in what a child printed, each place once."""
    found: dict[tuple[str, str], Report] = {}
    for match in _REPORT.finditer(log):
        stacks = re.split(r"\n\s*\n", match["body"])
        innermost = [frame for stack in stacks if (frame := _innermost(stack))]
        where = innermost[0] if innermost else "unknown"
        what = match["what"].strip()
        # The accesses come first; where threads and memory were made tells nothing about guilt.
        ours = any(name in frame for frame in innermost[:2] for name in OURS)
        found.setdefault(
            (what, where), Report(what=what, where=where, ours=ours, text=match.group(0))
        )
    return list(found.values())


def _innermost(stack: str) -> str:
    for frame in _FRAME.finditer(stack):
        if not any(name in frame["rest"] for name in _RUNTIME):
            return re.sub(r"^0x[0-9a-f]+ in ", "", frame["rest"]).strip()
    return ""
