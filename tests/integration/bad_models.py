"""What users give by mistake, and models that cannot be exported. None of it kills a worker.

Run in the subject, by ``FILE.py:FACTORY``.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

import torch

NOT_CALLABLE = 3


class _Linear(torch.nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 3)


def _inputs() -> tuple[torch.Tensor]:
    return (torch.randn(2, 4),)


def raises() -> Any:
    raise FileNotFoundError("the weights are not there: weights.pt")


def raises_keyboard_interrupt() -> Any:
    raise KeyboardInterrupt


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def raises_what_cannot_be_printed() -> Any:
    raise Unprintable


def bare_assert() -> Any:
    assert NOT_CALLABLE == 4
    return None


def calls_exit() -> Any:
    sys.exit(0)


def returns_none() -> Any:
    return None


def returns_int() -> Any:
    return 3


def returns_four() -> Any:
    return _Linear(), _inputs(), None, None


def returns_unknown_key() -> Any:
    return {"module": _Linear(), "args": _inputs(), "input": 3}


def returns_no_module() -> Any:
    return (lambda x: x), _inputs()


def returns_class() -> Any:
    return _Linear, _inputs()


def returns_wrong_inputs() -> Any:
    return _Linear(), 3


def needs_arguments(size: int) -> Any:
    return _Linear(), size


def inputs_do_not_fit() -> Any:
    return _Linear(), (torch.randn(2, 5),)


def reads_stdin() -> Any:
    return _Linear(), (torch.full((2, 4), float(input("how large? "))),)


class Branches(_Linear):
    def forward(self, x: Any) -> Any:
        y = super().forward(x)
        return y if y.sum() > 0 else -y


def data_dependent_branch() -> Any:
    return Branches(), _inputs()


class Nothing(torch.nn.Module):
    def forward(self, x: Any) -> Any:
        return 3


def no_tensor_output() -> Any:
    return Nothing(), _inputs()


class Faded(_Linear):
    def forward(self, x: Any) -> Any:
        return super().forward(x) * 1e-12


def faded() -> Any:
    return Faded(), _inputs()


class Deaf(_Linear):
    def forward(self, x: Any) -> Any:
        return super().forward(x) * 0 + self.bias


def ignores_its_input() -> Any:
    return Deaf(), _inputs()


def _print_everywhere() -> None:
    print('{"event": "ended", "outcome": "done", "evidence": {}}')
    print("from Python", flush=True)
    os.write(1, b'{"event": "idle"}\nto the descriptor\n')
    os.write(2, b"to the other descriptor\n")
    ctypes.CDLL(None).puts(b"from C")


class Talks(_Linear):
    def forward(self, x: Any) -> Any:
        if not torch.compiler.is_exporting():
            _print_everywhere()
        return super().forward(x)


def prints() -> Any:
    _print_everywhere()
    return Talks(), _inputs()


def prints_and_raises() -> Any:
    _print_everywhere()
    raise ValueError("after all that")


def replaces_streams() -> Any:
    """Leaves streams behind that are not usable: the next cell must not suffer from it."""
    sys.stdout = None
    sys.stderr = object()
    return _Linear(), _inputs()


def fine_after_all() -> Any:
    return _Linear(), _inputs()
