"""Upstream's own operator and model suites as cases, harvested from the wheel under test.

Its test modules are imported and their tests called with a recorder where they expect their runner: every
model and every set of inputs that they define becomes a case, at whatever version the subject holds, and
none is copied. A test that gives several becomes as many cases, numbered in its order. Operator tests that
upstream skips (they hold NaN, infinities or writes in place) are cases like the others.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import os
import pkgutil
import sys
import unittest
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest import mock

from edgeproof.plan.case import Case, Source

if TYPE_CHECKING:
    from types import ModuleType

    from edgeproof.worker.model import Model

_SUITE = "executorch.backends.test.suite"
_RUNNER = "test_runner"
PACKAGES = "EDGEPROOF_SUITE_PACKAGES"
"""Names the folder of what the test modules import and no subject has: last on the path, only for them."""
_SKIPPED = "upstream_skips_it"


def operators() -> Iterator[Case]:
    """A case for every model of upstream's operator tests; the tests are called to count them."""
    for test in _tests("operators"):
        count, skipped = _count(test)
        for index in range(count):
            yield test.case(index if count > 1 else None)
        if skipped or not count:
            yield test.case(None, skip=skipped or "the test gives no model")


def models() -> Iterator[Case]:
    """A case for every test of upstream's models. To call them would build hundreds of megabytes."""
    for test in _tests("models"):
        yield test.case(None, skip=getattr(test.function, _SKIPPED, ""))


def build(key: str) -> Model:
    """The model with inputs of one case: ``SUITE/MODULE:TEST[PARAMETERS]#INDEX``.

    Raises ``LookupError`` when this wheel has no such test, ``ValueError`` when the test gives another
    number of models than it did, and whatever the test raises.
    """
    from edgeproof.worker.model import Model

    name, _, number = key.partition("#")
    suite, _, rest = name.partition("/")
    module, _, _ = rest.partition(":")
    found = [test for test in _tests(suite, module) if test.key == name]
    if not found:
        raise LookupError(f"upstream's suite has no {name} at this version")
    recorder = _Recorder(found[0].name, stop_at=int(number) if number else None)
    with suppress(_Enough):
        found[0].call(recorder)
    wanted = int(number) + 1 if number else 1
    if len(recorder.given) != wanted:
        raise ValueError(f"{name} gave {len(recorder.given)} models, {wanted} were due")
    module_, inputs, shapes = recorder.given[-1]
    return Model(module=module_, args=tuple(inputs), dynamic_shapes=shapes)


class _Enough(BaseException):
    """Ends a test that gave the model that was asked for. No ``Exception``, which a test may catch."""


class _Recorder:
    """Stands where upstream's tests expect the runner, and keeps what they hand over."""

    def __init__(self, name: str, *, stop_at: int | None = None) -> None:
        from executorch.backends.test.suite.flow import TestFlow

        self._flow = TestFlow(name="edgeproof", backend="edgeproof", tester_factory=_no_tester)
        self._test_name = self._test_base_name = name
        self._stop_at = stop_at
        self.given: list[tuple[Any, Any, Any]] = []

    def lower_and_run_model(
        self,
        model: Any,
        inputs: Any,
        generate_random_test_inputs: bool = True,
        dynamic_shapes: Any = None,
    ) -> None:
        """Upstream's signature: the tests pass ``generate_random_test_inputs`` by name."""
        self.given.append((model, inputs, dynamic_shapes))
        if len(self.given) - 1 == self._stop_at:
            raise _Enough


def _no_tester(*_: Any, **__: Any) -> Any:
    raise NotImplementedError("tests hand their models over; none is lowered here")


@dataclass(frozen=True, kw_only=True)
class _Test:
    suite: str
    module: str
    function: Callable[..., None]
    name: str
    arguments: dict[str, Any]

    @property
    def key(self) -> str:
        return f"{self.suite}/{self.module}:{self.name}"

    def call(self, recorder: _Recorder) -> None:
        self.function(**{_RUNNER: recorder}, **self.arguments)

    def case(self, index: int | None, *, skip: str = "") -> Case:
        number = "" if index is None else f"#{index}"
        return Case(
            id=f"{self.suite}/{self.name}{number}",
            source=Source.BUILTIN,
            target="edgeproof.cases.upstream:build",
            key=self.key + number,
            condition=self.suite == "models",
            whole=False,
            skip=skip,
        )


def _tests(suite: str, only: str = "") -> Iterator[_Test]:
    """The tests of a suite, in the order of modules and lines: as pytest collects them."""
    beside = os.environ.get(PACKAGES)
    if beside and beside not in sys.path:
        sys.path.append(beside)
    package = importlib.import_module(f"{_SUITE}.{suite}")
    for found in pkgutil.iter_modules(package.__path__):
        if not found.name.startswith("test_") or (only and found.name != only):
            continue
        try:
            with mock.patch.object(unittest, "skip", _do_not_skip):
                module = importlib.import_module(f"{package.__name__}.{found.name}")
        except ImportError as fault:
            if only:
                raise
            yield _missing(suite, found.name, fault)
            continue
        yield from _tests_of(suite, found.name, module)


def _do_not_skip(reason: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Stands for ``unittest.skip``, whose wrapper hides the test."""

    def mark(function: Callable[..., None]) -> Callable[..., None]:
        setattr(function, _SKIPPED, reason)
        return function

    return mark


def _missing(suite: str, module: str, fault: ImportError) -> _Test:
    """A test module that cannot be imported here stands for its tests, which no one can count."""

    def raising(**_: Any) -> None:
        raise unittest.SkipTest(f"{module} cannot be imported: {fault}")

    return _Test(suite=suite, module=module, function=raising, name=module, arguments={})


def _tests_of(suite: str, name: str, module: ModuleType) -> Iterator[_Test]:
    for title, function in list(vars(module).items()):
        if not (title.startswith("test_") and callable(function)):
            continue
        if _RUNNER not in inspect.signature(function).parameters:
            continue
        for label, arguments in _parameters(function):
            yield _Test(
                suite=suite,
                module=name,
                function=function,
                name=title + (f"[{label}]" if label else ""),
                arguments=arguments,
            )


def _parameters(function: Callable[..., None]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What a test is called with, and pytest's name for it, for each set of its parameters."""
    marks = [m for m in getattr(function, "pytestmark", ()) if m.name == "parametrize"]
    choices = [list(_choices(*mark.args, **mark.kwargs)) for mark in marks]
    for chosen in itertools.product(*reversed(choices)):
        # The mark nearest to the function is the first one applied, and the first in pytest's name.
        ordered = list(reversed(chosen))
        label = "-".join(name for name, _ in ordered)
        yield label, {key: value for _, given in ordered for key, value in given.items()}


def _choices(names: Any, values: Any, ids: Any = None) -> Iterator[tuple[str, dict[str, Any]]]:
    names = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
    for index, value in enumerate(values):
        given = (value,) if len(names) == 1 else tuple(value)
        if callable(ids):
            label = "-".join(str(ids(each)) for each in given)
        else:
            label = str(ids[index]) if ids else "-".join(str(each) for each in given)
        yield label, dict(zip(names, given, strict=True))


def _count(test: _Test) -> tuple[int, str]:
    """How many models a test gives, and why it gives no more where it skips itself."""
    recorder = _Recorder(test.name)
    try:
        test.call(recorder)
    except Exception as fault:
        if type(fault).__name__ in ("Skipped", "SkipTest"):
            return len(recorder.given), str(fault)
        return len(recorder.given), f"the test itself raises {type(fault).__name__}: {fault}"
    return len(recorder.given), ""
