"""The errors edgeproof raises for what a user can mend, and the exit code of each kind.

Every message says what happened, to what, and how to mend it. Anything else that escapes is a fault of
edgeproof itself and ends with ``ExitCode.INTERNAL``.
"""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the process returns; the classes are those of docs/guide.md."""

    OK = 0
    GATE_BROKEN = 1
    USAGE = 2
    NOTHING_RAN = 3
    SUBJECT = 4
    INTERNAL = 5
    INTERRUPTED = 130


class EdgeproofError(Exception):
    """A fault with a known cause. ``mend`` is the sentence or command that removes it."""

    exit_code: ExitCode = ExitCode.INTERNAL

    def __init__(self, message: str, *, mend: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.mend = mend


class UsageError(EdgeproofError):
    """The command line asks for something that does not exist or cannot be meant."""

    exit_code = ExitCode.USAGE


class SubjectError(EdgeproofError):
    """An environment under test could not be prepared, or is not what its stack names."""

    exit_code = ExitCode.SUBJECT
