"""The stages of a cell and the verdicts it can end with."""

from __future__ import annotations

from enum import StrEnum


class Stage(StrEnum):
    """The way of a cell, in order."""

    BUILD = "build"
    EAGER = "eager"
    QUANTIZE = "quantize"
    EXPORT = "export"
    LOWER = "lower"
    SERIALIZE = "serialize"
    LOAD = "load"
    RUN = "run"
    COMPARE = "compare"
    STRESS = "stress"


class Verdict(StrEnum):
    """How a cell ended. Each cell of a ledger has exactly one."""

    PASSED = "passed"
    FAILED = "failed"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    EXPECTED_FAILURE = "expected_failure"
    UNEXPECTED_PASS = "unexpected_pass"
    SKIPPED = "skipped"
    NOT_RUN = "not_run"
