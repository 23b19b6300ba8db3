"""Models that users have, each with something about it that a tool may trip over. All must pass.

Run in the subject, by ``FILE.py:FACTORY``. Outputs are of order one, so that comparing them proves something.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.export import Dim


class _Linear(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)


class KeywordOnly(_Linear):
    def forward(self, x: Any, *, scale: Any, shift: Any) -> Any:
        return self.linear(x) * scale - shift


def keyword_inputs() -> Any:
    """Keywords in another order than the signature's, of one shape: swapped they would fit too."""
    inputs = {"shift": torch.rand(3) + 1, "scale": torch.rand(3) + 2, "x": torch.randn(2, 4)}
    return KeywordOnly(), inputs


def positional_and_keyword() -> Any:
    return KeywordOnly(), ((torch.randn(2, 4),), {"shift": torch.rand(3), "scale": torch.rand(3)})


class NestedOutputs(_Linear):
    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        return {"second": (y * 2, [y + 1]), "first": {"deep": y.relu(), "tanh": y.tanh()}}


def nested_outputs() -> Any:
    return NestedOutputs(), (torch.randn(2, 4),)


class NestedInputs(_Linear):
    def forward(self, x: Any) -> Any:
        return self.linear(x["b"][0] - x["a"]) + x["b"][1]


def nested_inputs() -> Any:
    return NestedInputs(), ({"b": [torch.randn(2, 4), torch.randn(2, 3)], "a": torch.randn(2, 4)},)


class IntegersAndBooleans(_Linear):
    def forward(self, x: Any, index: Any) -> Any:
        y = self.linear(x)
        return y, index * 3 + 1, y > 0, (y * 100).to(torch.int32)


def integers_and_booleans() -> Any:
    return IntegersAndBooleans(), (torch.randn(64, 4), torch.arange(5))


class Doubled(_Linear):
    def forward(self, x: Any) -> Any:
        return self.linear(x) * x.shape[0]


def dynamic_batch() -> Any:
    """The batch's size is part of the answer, so that a baked-in one shows."""
    return Doubled(), (torch.randn(3, 4),), {"x": {0: Dim("batch", min=2, max=7)}}


def dynamic_from_one() -> Any:
    return Doubled(), (torch.randn(3, 4),), {"x": {0: Dim("batch", min=1, max=7)}}


def dynamic_automatic() -> Any:
    return Doubled(), (torch.randn(3, 4),), {"x": {0: Dim.AUTO}}


def dynamic_automatic_bounded() -> Any:
    return Doubled(), (torch.randn(3, 4),), {"x": {0: Dim.DYNAMIC(max=8)}}


class Halves(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return x[:, ::2] + x[:, 1::2]


def dynamic_derived() -> Any:
    """Only an even size is allowed: the symbol stands in no dimension alone."""
    return Halves(), (torch.randn(2, 6),), {"x": {1: 2 * Dim("half", min=2, max=5)}}


class ScalarAndDynamic(_Linear):
    def forward(self, x: Any, times: int) -> Any:
        return self.linear(x) * times


def scalar_input() -> Any:
    return ScalarAndDynamic(), (torch.randn(2, 4), 3)


def scalar_and_dynamic() -> Any:
    shapes = {"x": {0: Dim("batch", min=2, max=7)}, "times": None}
    return ScalarAndDynamic(), (torch.randn(3, 4), 3), shapes


class Optional(_Linear):
    def forward(self, x: Any, mask: Any = None) -> Any:
        y = self.linear(x)
        return y if mask is None else y * mask, mask


def none_in_and_out() -> Any:
    return Optional(), (torch.randn(2, 4), None)


class Counter(_Linear):
    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.ones(1))

    def forward(self, x: Any) -> Any:
        self.count.add_(1)
        return self.linear(x) + self.count


def mutable_buffer() -> Any:
    """The answer to the first call is 2 higher; a second call on the same state is off by one."""
    return Counter(), (torch.randn(2, 4),)


def mutable_buffer_dynamic() -> Any:
    return Counter(), (torch.randn(3, 4),), {"x": {0: Dim("batch", min=2, max=7)}}


class InputAsOutput(_Linear):
    def forward(self, x: Any, y: Any) -> Any:
        return x, self.linear(x), y


def input_as_output() -> Any:
    return InputAsOutput(), (torch.randn(2, 4), torch.randn(5))


class SameTwice(_Linear):
    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        return y, y


def same_output_twice() -> Any:
    return SameTwice(), (torch.randn(2, 4),)


class WritesToInput(_Linear):
    def forward(self, x: Any) -> Any:
        x.mul_(2)
        return self.linear(x)


def writes_to_input() -> Any:
    return WritesToInput(), (torch.randn(2, 4),)


def dictionary() -> Any:
    return {
        "module": _Plain(),
        "args": (torch.randn(2, 4),),
        "calibration": [torch.randn(2, 4), (torch.randn(2, 4),), ((torch.randn(2, 4),), {})],
    }


class _Plain(_Linear):
    def forward(self, x: Any) -> Any:
        return self.linear(x)


def bare_tensor() -> Any:
    return _Plain(), torch.randn(2, 4)


def training_mode() -> Any:
    """Dropout is off in eval mode, which is what is proved."""
    return torch.nn.Sequential(_Plain(), torch.nn.Dropout(0.5)).train(), (torch.randn(2, 4),)


def not_contiguous() -> Any:
    return _Plain(), (torch.randn(4, 2).t(),)


def channels_last() -> Any:
    x = torch.randn(1, 3, 5, 6).to(memory_format=torch.channels_last)
    return torch.nn.Conv2d(3, 4, 3), (x,)


class GivesNan(_Linear):
    def forward(self, x: Any) -> Any:
        return self.linear(x).log()


def nan_outputs() -> Any:
    return GivesNan(), (torch.randn(16, 4),)


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3)
        self.linear = torch.nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        return self.linear(self.conv(x).relu().mean((2, 3)))


def images() -> Any:
    batch = [torch.randn(1, 3, 8, 8) for _ in range(4)]
    return {"module": Layers(), "args": (torch.randn(1, 3, 8, 8),), "calibration": batch}


class CounterFromZero(Counter):
    def __init__(self) -> None:
        super().__init__()
        self.count.zero_()

    def forward(self, x: Any) -> Any:
        self.count.add_(0.25)
        return self.linear(x) * self.count


def counter_from_zero() -> Any:
    return CounterFromZero(), (torch.randn(2, 4),)


def counter_from_zero_dynamic() -> Any:
    """Each point must start from the same state, not from what the point before left."""
    shapes = {"x": {0: Dim("batch", min=2, max=7)}}
    return CounterFromZero(), (torch.randn(3, 4),), shapes
