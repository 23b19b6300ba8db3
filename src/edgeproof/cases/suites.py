"""The suites by name. Their cases are listed inside a subject, which holds what they are made of."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase

from edgeproof.errors import UsageError
from edgeproof.plan.case import Case

_SUITES = {
    "smoke": ("edgeproof.cases.smoke:cases",),
    "operators": ("edgeproof.cases.upstream:operators",),
    "models": ("edgeproof.cases.upstream:models",),
}
HARVESTED = ("operators", "models")
"""Those that are made of upstream's own test modules, which import pytest."""


def select(patterns: Iterable[str]) -> tuple[str, ...]:
    """The suites that match any of the names or globs. Raises ``UsageError`` for one that matches none."""
    chosen: set[str] = set()
    for pattern in patterns:
        found = [name for name in _SUITES if fnmatchcase(name, pattern)]
        if not found:
            near = get_close_matches(pattern, _SUITES, n=3, cutoff=0.5)
            mend = f"did you mean {', '.join(near)}?" if near else f"there are {', '.join(_SUITES)}"
            raise UsageError(f"there is no suite {pattern!r}", mend=mend)
        chosen.update(found)
    if not chosen:
        raise UsageError("no suite was selected", mend=f"there are {', '.join(_SUITES)}")
    return tuple(name for name in _SUITES if name in chosen)


def listed(suite: str) -> list[Case]:
    """The cases of a suite, in its order. Runs in the subject."""
    cases: list[Case] = []
    for source in _SUITES[suite]:
        module, _, name = source.partition(":")
        function: Callable[[], Iterable[Case]] = getattr(importlib.import_module(module), name)
        cases += function()
    return cases
