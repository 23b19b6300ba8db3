"""Where edgeproof keeps what it makes: subjects, and folders for adopted environments."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from edgeproof.given import given_path

VARIABLE = "EDGEPROOF_CACHE_DIR"


def root() -> Path:
    """The cache folder, absolute. ``$EDGEPROOF_CACHE_DIR`` wins over the user's cache folder.

    It is not created here: looking (``subjects list``) must not leave a folder behind.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return given_path(named)
    return Path(platformdirs.user_cache_dir("edgeproof", appauthor=False))


def subjects() -> Path:
    """The folder that holds managed subjects, one folder each."""
    return root() / "subjects"


def adopted() -> Path:
    """The folder for what the environments of the user need made, outside of these environments."""
    return root() / "adopted"
