"""The stress fixtures: small enough to be run thousands of times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeproof.plan.case import Case, Source

if TYPE_CHECKING:
    from edgeproof.worker.model import Model

CASES = (
    Case(
        id="stress/residual_mlp",
        source=Source.BUILTIN,
        target="edgeproof.cases.stress:residual_mlp",
    ),
    Case(id="stress/mlp", source=Source.BUILTIN, target="edgeproof.cases.stress:mlp"),
)


def mlp() -> Model:
    """Two layers on 8 x 64, in one delegate."""
    import torch

    from edgeproof.worker.model import Model

    layers = (torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64))
    return Model(module=torch.nn.Sequential(*layers).eval(), args=(torch.randn(8, 64),))


def residual_mlp() -> Model:
    """A residual MLP on 8 x 64, with a step in double precision in its middle.

    No accelerator computes in double precision: the program has a delegate before and one after that step.
    """
    import torch

    from edgeproof.worker.model import Model

    class Block(torch.nn.Module):  # type: ignore[misc]  # the host has no torch
        def __init__(self) -> None:
            super().__init__()
            self.up = torch.nn.Linear(64, 128)
            self.down = torch.nn.Linear(128, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = x + self.down(torch.relu(self.up(x)))
            return result

    class ResidualMlp(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.before = torch.nn.Sequential(Block(), Block())
            self.after = torch.nn.Sequential(Block(), Block())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            broken = self.before(x).double().mul(0.5).float()
            result: torch.Tensor = self.after(broken)
            return result

    return Model(module=ResidualMlp().eval(), args=(torch.randn(8, 64),))
