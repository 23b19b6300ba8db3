"""What goes wrong between ExecuTorch and Core AI, with the code that ExecuTorch passes on."""

from __future__ import annotations

from enum import IntEnum

from edgeproof.errors import EdgeproofError


class Code(IntEnum):
    """Values of ``executorch::runtime::Error`` (runtime/core/error.h)."""

    INTERNAL = 0x01
    INVALID_STATE = 0x02
    NOT_SUPPORTED = 0x10
    INVALID_ARGUMENT = 0x12
    NOT_FOUND = 0x20
    ACCESS_FAILED = 0x22
    INVALID_PROGRAM = 0x23
    INVALID_EXTERNAL_DATA = 0x24
    DELEGATE_INVALID_COMPATIBILITY = 0x30


class DelegateError(EdgeproofError):
    """A delegate that cannot be loaded, or a call it cannot answer.

    ExecuTorch hands ``executorch_error`` to whoever called it; the words go to its log, and the last of
    them can be read with ``edgeproof.coreai.last_error()``.
    """

    def __init__(
        self, message: str, *, mend: str = "", code: Code = Code.DELEGATE_INVALID_COMPATIBILITY
    ) -> None:
        super().__init__(message, mend=mend)
        self.executorch_error = int(code)

    def __str__(self) -> str:
        return f"{self.message} ({self.mend})" if self.mend else self.message
