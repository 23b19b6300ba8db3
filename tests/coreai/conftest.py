from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.lab import Lab, LabDied

_SUBJECT = Path(__file__).parent / "subject"
_SWEEP = ("sweep_cases.py", "sweep_layers.py", "checking.py")

FN = """
class Fn(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
    def forward(self, *values):
        return self.function(*values)

"""
"""In the subject: a module that calls a function."""


class Sweep:
    """Checks cases of the sweep in the subject; a case that ends the process is found out and reported."""

    def __init__(self) -> None:
        self._lab: Lab | None = None

    def _started(self) -> Lab:
        if self._lab is None:
            self._lab = Lab("coreai")
            files = [(name, (_SUBJECT / name).read_text()) for name in _SWEEP]
            self._lab.run(
                "import sys, types\n"
                "sweep = sys.modules['sweep'] = types.ModuleType('sweep')\n"
                f"for name, text in {files!r}:\n"
                "    exec(compile(text, name, 'exec'), sweep.__dict__)\n"
                "result = None"
            )
        return self._lab

    def names(self) -> list[str]:
        names: list[str] = self._started().run("import sweep; result = list(sweep.CASES)")
        return names

    def check(
        self, names: Sequence[str], *, forced: bool = False, dynamic: bool = False
    ) -> dict[str, Any]:
        """The outcome of each case: right, wrong, failed, or crashed."""
        lab = self._started()
        try:
            results: dict[str, Any] = lab.run(
                f"import sweep; result = sweep.check({list(names)!r}, {forced}, {dynamic})"
            )
            return results
        except LabDied:
            self.close()
        if len(names) == 1:
            return {names[0]: {"outcome": "crashed", "why": "it ended the process"}}
        middle = len(names) // 2
        return {
            **self.check(names[:middle], forced=forced, dynamic=dynamic),
            **self.check(names[middle:], forced=forced, dynamic=dynamic),
        }

    def close(self) -> None:
        if self._lab is not None:
            self._lab.close()
            self._lab = None


@pytest.fixture(scope="session")
def coreai_lab() -> Iterator[Lab]:
    """A Python in the Core AI subject."""
    lab = Lab("coreai")
    yield lab
    lab.close()


@pytest.fixture(scope="session")
def sweep() -> Iterator[Sweep]:
    """The cases of ``tests/coreai/subject``, checked in the subject."""
    running = Sweep()
    yield running
    running.close()
