"""Models whose lowered program answers wrongly: they do something else when they are exported.

It stands for a backend that gets it wrong. Each must be caught. Run in the subject, by ``FILE.py:FACTORY``.
"""

from __future__ import annotations

from typing import Any

import torch


class _Linear(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        y = self.linear(x)
        return self.wrong(x, y) if torch.compiler.is_exporting() else self.right(x, y)

    def right(self, x: Any, y: Any) -> Any:
        return y

    def wrong(self, x: Any, y: Any) -> Any:
        raise NotImplementedError


def _inputs() -> tuple[torch.Tensor]:
    return (torch.randn(64, 4),)


class SlightlyOff(_Linear):
    def wrong(self, x: Any, y: Any) -> Any:
        return y * 1.0005


def float_slightly_off() -> Any:
    return SlightlyOff(), _inputs()


class OneElement(_Linear):
    def wrong(self, x: Any, y: Any) -> Any:
        mask = torch.zeros(64, 3)
        mask[17, 1] = 1e-3
        return y + mask


def float_one_element_off() -> Any:
    return OneElement(), _inputs()


class Negated(_Linear):
    def wrong(self, x: Any, y: Any) -> Any:
        return -y


def float_wrong_sign() -> Any:
    return Negated(), _inputs()


class Zeros(_Linear):
    def wrong(self, x: Any, y: Any) -> Any:
        return y * 0


def float_zeros() -> Any:
    return Zeros(), _inputs()


class Integer(_Linear):
    def right(self, x: Any, y: Any) -> Any:
        return y, (x * 10).to(torch.int64)

    def wrong(self, x: Any, y: Any) -> Any:
        whole = (x * 10).to(torch.int64)
        return y, torch.where(whole == whole.max(), whole + 1, whole)


def integer_off_by_one() -> Any:
    return Integer(), _inputs()


class Boolean(_Linear):
    def right(self, x: Any, y: Any) -> Any:
        return y, x > 0

    def wrong(self, x: Any, y: Any) -> Any:
        return y, (x > 0) | (x == x.min())


def boolean_one_flipped() -> Any:
    return Boolean(), _inputs()


class Flat(_Linear):
    def wrong(self, x: Any, y: Any) -> Any:
        return y.flatten()


def wrong_shape() -> Any:
    return Flat(), _inputs()


class Wider(_Linear):
    def wrong(self, x: Any, y: Any) -> Any:
        return y.double()


def wrong_dtype() -> Any:
    return Wider(), _inputs()


class Two(_Linear):
    def right(self, x: Any, y: Any) -> Any:
        return y + 1, y - 1


class Missing(Two):
    def wrong(self, x: Any, y: Any) -> Any:
        return (y + 1,)


def missing_output() -> Any:
    return Missing(), _inputs()


class Extra(Two):
    def wrong(self, x: Any, y: Any) -> Any:
        return y + 1, y - 1, y


def extra_output() -> Any:
    return Extra(), _inputs()


class Swapped(Two):
    def wrong(self, x: Any, y: Any) -> Any:
        return y - 1, y + 1


def swapped_outputs() -> Any:
    return Swapped(), _inputs()


class NanElsewhere(_Linear):
    def right(self, x: Any, y: Any) -> Any:
        return torch.where(y == y.max(), torch.full_like(y, torch.nan), y)

    def wrong(self, x: Any, y: Any) -> Any:
        return torch.where(y == y.min(), torch.full_like(y, torch.nan), y)


def nan_elsewhere() -> Any:
    return NanElsewhere(), _inputs()


class NanMissing(NanElsewhere):
    def wrong(self, x: Any, y: Any) -> Any:
        return y


def nan_missing() -> Any:
    return NanMissing(), _inputs()


class InfinityForNan(NanElsewhere):
    def wrong(self, x: Any, y: Any) -> Any:
        return torch.where(y == y.max(), torch.full_like(y, torch.inf), y)


def infinity_for_nan() -> Any:
    return InfinityForNan(), _inputs()


class Number(_Linear):
    def right(self, x: Any, y: Any) -> Any:
        return y, 3, True

    def wrong(self, x: Any, y: Any) -> Any:
        return y, 4, True


def wrong_number() -> Any:
    return Number(), _inputs()


class OnlyLarge(_Linear):
    def wrong(self, x: Any, y: Any) -> Any:
        return y[:5]


class AtABound(_Linear):
    def wrong(self, x: Any, y: Any) -> Any:
        # 0 for the example of 3 rows, an error that only other sizes show
        return y + (torch.ones_like(x[:, 0]).sum() - 3) * 0.01


def wrong_at_other_sizes() -> Any:
    shapes = {"x": {0: torch.export.Dim("batch", min=2, max=9)}}
    return AtABound(), (torch.randn(3, 4),), shapes


class FifthOff(_Linear):
    def wrong(self, x: Any, y: Any) -> Any:
        return y * 1.2


def float_a_fifth_off() -> Any:
    """Far off, but not as far as an error that quantization alone could never make."""
    return FifthOff(), _inputs()
