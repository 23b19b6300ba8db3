"""Cases: a model with example inputs, named so that it can be found again."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Source(StrEnum):
    """Where a case's model comes from, which decides how a worker builds it."""

    BUILTIN = "builtin"
    """``target`` is ``module:function`` inside edgeproof, called with the case's ``key`` if it has one."""
    FILE = "file"
    """``target`` is ``/path/to/file.py:FACTORY``, the user's own code."""
    PT2 = "pt2"
    """``target`` is the path of a program saved with ``torch.export.save``."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is proved. ``id`` is stable: ``suite/name`` or ``suite/name[params]``.

    ``condition`` asks for the model to be conditioned before it is used (see
    ``edgeproof.cases.conditioning``), which untrained models need. ``key`` names the case among those of a
    suite that one function builds. A backend must take something of a ``whole`` case; a single operator may
    be left to the portable kernels. ``skip`` is why the case is not to be run, if it is not.
    """

    id: str
    source: Source
    target: str
    condition: bool = False
    key: str = ""
    whole: bool = True
    skip: str = ""

    @property
    def suite(self) -> str:
        """The first part of the id."""
        return self.id.partition("/")[0]

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Case:
        """The inverse of ``to_json``."""
        return cls(**{**data, "source": Source(data["source"])})
