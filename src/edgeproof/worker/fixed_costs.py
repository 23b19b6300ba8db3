"""Costs of torch's that depend on nothing in the case, paid once for each worker.

``run_decompositions``, which lowering calls three times for each program, begins by asking every operator
that is registered, thousands, whether it is a composite one, and by registering another implementation for
each that is, and ends by taking those back. A single ``silu`` takes 1.2 s to lower, 1.0 s of it this.

- ``torch._export.utils._collect_all_valid_cia_ops``: the set it gives is kept for as long as no operator is
  registered. (For ATen's own part torch does so itself.)
- ``torch.export.exported_program._override_composite_implicit_decomp``: what it does to each operator's
  kernels is kept with what they were before; the next time the same table comes and they are as they were,
  they are put there at once.

What is replaced must be what is known: the source of both functions is held against ``_KNOWN``. Where it is
another, nothing is replaced, and lowering takes as long as it takes.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_KNOWN = {
    # torch 2.13.0
    "_collect_all_valid_cia_ops": {"1d09a99ea79bd377"},
    "_override_composite_implicit_decomp": {"4422dc79d0792af7"},
}

_TABLES = 16
"""How many tables are kept: each flow has two or three."""


def pay_once() -> bool:
    """Replace what is known; whether it was. Called again it does nothing."""
    import torch._export.utils
    import torch.export.exported_program as exported_program

    collect: Any = getattr(torch._export.utils, "_collect_all_valid_cia_ops", None)
    override: Any = getattr(exported_program, "_override_composite_implicit_decomp", None)
    if getattr(collect, "paid_once", False):
        return True
    if not (_is_known(collect) and _is_known(override)):
        return False
    _replace_everywhere("_collect_all_valid_cia_ops", collect, _collected_once(collect))
    exported_program._override_composite_implicit_decomp = _overridden_at_once(override)
    return True


def fingerprint(function: Callable[..., Any]) -> str:
    """What ``_KNOWN`` knows a function by."""
    return hashlib.sha256(inspect.getsource(inspect.unwrap(function)).encode()).hexdigest()[:16]


def _is_known(function: Any) -> bool:
    try:
        known: set[str] = _KNOWN[function.__name__]
        return fingerprint(function) in known
    except (AttributeError, KeyError, OSError, TypeError):
        return False


def _replace_everywhere(name: str, old: Any, new: Any) -> None:
    """In every module of torch that imported the function."""
    for module in [m for title, m in sys.modules.items() if title.startswith("torch")]:
        if getattr(module, name, None) is old:
            setattr(module, name, new)


def _collected_once(collect: Callable[[], set[Any]]) -> Callable[[], set[Any]]:
    import torch

    kept: dict[int, set[Any]] = {}

    @functools.wraps(collect)
    def collected() -> set[Any]:
        registered = len(torch._C._dispatch_get_all_op_names())
        if registered not in kept:
            kept.clear()
            kept[registered] = collect()
        return kept[registered]

    collected.paid_once = True  # type: ignore[attr-defined]
    return collected


class _Patch:
    """What overriding did to the operators of one table."""

    def __init__(self, table: Mapping[Any, Any]) -> None:
        from torch._subclasses import fake_impls

        self._fakes = fake_impls.op_implementations_dict
        self._before = {op: op.py_kernels.copy() for op in table}
        self._fakes_before = set(self._fakes)
        self._callables = list(table.values())  # alive, so that no other gets the id of one

    def taken(self) -> None:
        self._after = {op: op.py_kernels.copy() for op in self._before}
        self._fakes_after = {
            op: self._fakes[op]
            for op in self._before
            if op in self._fakes and op not in self._fakes_before
        }

    def fits(self) -> bool:
        return all(op.py_kernels == kernels for op, kernels in self._before.items()) and not any(
            op in self._fakes for op in self._fakes_after
        )

    def apply(self) -> None:
        for op, kernels in self._after.items():
            op.py_kernels.update(kernels)
            op._dispatch_cache.clear()
        self._fakes.update(self._fakes_after)

    def undo(self) -> None:
        for op, kernels in self._before.items():
            op.py_kernels.clear()
            op.py_kernels.update(kernels)
            op._dispatch_cache.clear()
            self._fakes.pop(op, None)  # as the original does, whoever put it there


def _overridden_at_once(override: Callable[..., Any]) -> Callable[..., Any]:
    kept: dict[Any, _Patch] = {}

    @contextmanager
    @functools.wraps(override)
    def overridden(cia_ops_to_callable: Mapping[Any, Any]) -> Iterator[None]:
        key = tuple((op, _identity(c)) for op, c in cia_ops_to_callable.items())
        patch = kept.get(key)
        if patch is None or not patch.fits():
            patch = _Patch(cia_ops_to_callable)
            with override(cia_ops_to_callable):
                patch.taken()
                if len(kept) >= _TABLES:
                    kept.pop(next(iter(kept)))
                kept[key] = patch
                yield
            return
        patch.apply()
        try:
            yield
        finally:
            patch.undo()

    return overridden


def _identity(function: Any) -> Any:
    """The same for callables that do the same: torch makes new partials of the same parts each time."""
    if isinstance(function, functools.partial) and not function.args:
        return function.func.__qualname__, tuple((k, id(v)) for k, v in function.keywords.items())
    return id(function)
