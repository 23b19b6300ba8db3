"""Paths as users give them."""

from __future__ import annotations

from pathlib import Path

from edgeproof.errors import UsageError

_SHOWN = 100


def given_path(text: str) -> Path:
    """The absolute path that ``text`` names; nothing need be there. Links are not followed.

    Raises ``UsageError`` for what the system refuses to look at: a name that is too long, the home of a
    user who does not exist, a folder that may not be entered.
    """
    try:
        path = Path(text).expanduser().absolute()
        path.exists()
    except (OSError, RuntimeError, ValueError) as error:
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{shown} cannot be looked at: {why}", mend="check the path") from None
    return path
