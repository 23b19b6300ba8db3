"""What a stress run is asked to do, and the words for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Mode(StrEnum):
    """What the threads have in common."""

    PRIVATE = "private"
    """Nothing: each makes, loads, runs and destroys a Module of its own in every iteration."""
    SHARED_PROGRAM = "shared-program"
    """One loaded program; a method of its own for each thread and iteration."""
    SHARED_METHOD = "shared-method"
    """One loaded method, called by one thread at a time, as ExecuTorch asks."""
    MIXED = "mixed"
    """As ``private``, with the programs of several flows in one process."""
    CHURN = "churn"
    """As ``private``, but nothing is run: load and destroy."""
    RELOAD = "reload"
    """As ``private``, while another thread takes the cache's entries away."""
    UNSERIALISED = "unserialised"
    """``shared-method`` without taking turns, which ExecuTorch forbids: only to see what happens."""


class Phase(StrEnum):
    """A run's two halves, over one cache folder."""

    COLD = "cold"
    """It was empty."""
    WARM = "warm"
    """It holds what the first half left."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """How many threads, and how many iterations each of them does in a phase."""

    threads: int
    iterations: int

    def __str__(self) -> str:
        return f"{self.threads} threads x {self.iterations}"


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program that was lowered and found right, kept in ``folder`` for the child.

    There are ``program.pte`` and, for each thread's turn, the inputs and the answers to them of a run
    by a single thread in ExecuTorch's Python runtime (``inputs.npz``, ``answers.npz``), their dims in the
    order of memory, which is told in ``orders`` for each position where it is not the plain one.
    ``unstable`` is how far off outputs may be, relative to their largest value; 0 asks for the same bits.
    """

    flow: str
    folder: str
    turns: int
    outputs: int
    delegate: str = ""
    delegates: int = 0
    installs: str = ""
    cache_option: str = ""
    cache_stats: str = ""
    cache_clear: str = ""
    unstable: float = 0.0
    orders: Mapping[str, Sequence[Sequence[int]]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Spec:
    """Everything the child needs, as a file of JSON. ``paths`` are put on its ``sys.path``."""

    mode: Mode
    programs: tuple[Program, ...]
    load: Load
    seed: int
    folder: str
    phases: tuple[Phase, ...] = (Phase.COLD, Phase.WARM)
    sanitizer: str = ""
    paths: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Spec:
        """The inverse of ``to_json``."""
        return cls(
            **{
                **data,
                "mode": Mode(data["mode"]),
                "programs": tuple(Program(**program) for program in data["programs"]),
                "load": Load(**data["load"]),
                "phases": tuple(Phase(phase) for phase in data["phases"]),
                "paths": tuple(data["paths"]),
            }
        )
