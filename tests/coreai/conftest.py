from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab import Lab


@pytest.fixture(scope="session")
def coreai_lab() -> Iterator[Lab]:
    """A Python in the Core AI subject."""
    lab = Lab("coreai")
    yield lab
    lab.close()
