"""What the flows of one case share: the conditioned model and its answers in eager PyTorch."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable
from typing import Any

import numpy
import torch

from edgeproof.cases import conditioning, user
from edgeproof.plan.case import Case, Source
from edgeproof.worker.answers import proves_something
from edgeproof.worker.model import Inputs, Model, cloned, flat_outputs, wider_inputs
from edgeproof.worker.reference import Reference


class Prepared:
    """What the flows of one case share: the conditioned model and its answers in eager PyTorch."""

    def __init__(self, case: Case, seed: int) -> None:
        self.case = case
        self.seed = seed
        self._model: Model | None = None
        self._exported: Model | None = None
        self._references: dict[str, Reference] = {}
        self._looked = False
        self._wider: Inputs | None = None

    @property
    def built(self) -> bool:
        """Whether the model is there already."""
        return self._model is not None

    def model(self) -> Model:
        """The model, built and conditioned on first use, always from the case's own seed."""
        if self._model is None:
            random.seed(self.seed)
            numpy.random.seed(self.seed % 2**32)
            torch.manual_seed(self.seed)
            model = _build(self.case)
            if model.program is None:  # one that came exported has no modes any more
                model.module.eval()
            if self.case.condition:
                conditioning.condition(model.module, cloned(model.conditioning or model.inputs))
            self._model = model
        return self._model

    def reference(self, point: str, inputs: Inputs) -> Reference:
        """The eager answers at one of the case's points."""
        if point not in self._references:
            self._references[point] = Reference(self.model(), inputs)
        return self._references[point]

    def wider(self) -> Inputs | None:
        """Other inputs for a small case whose example proves nothing, such as zeros to every floor.

        ``None`` where the example does, where eager PyTorch refuses them, and for whole models.
        """
        if not self._looked:
            self._looked, self._wider = True, self._find_wider()
        return self._wider

    def _find_wider(self) -> Inputs | None:
        if self.case.whole:
            return None
        model = self.model()
        if proves_something(self.reference("example", model.inputs)):
            return None
        wider = wider_inputs(model.inputs, seed=self.seed)
        if wider is not None:
            try:
                self.reference("wider", wider)
            except Exception:
                return None
        return wider

    def exported_answers(self, inputs: Inputs) -> list[Any]:
        """What the float model answers once it is exported, still in eager PyTorch."""
        if self._exported is None:
            model = self.model().copied()
            self._exported = model.replace(model.export().module())
        return [value for _, value in flat_outputs(self._exported.copied()(inputs))]

    @property
    def ran_eagerly(self) -> bool:
        """Whether the example's answers are there already."""
        return "example" in self._references


def _build(case: Case) -> Model:
    if case.source is Source.FILE:
        return user.build_from_file(case.target)
    if case.source is Source.PT2:
        return user.build_from_pt2(case.target)
    module, _, function = case.target.partition(":")
    make: Callable[..., Model] = getattr(importlib.import_module(module), function)
    return make(case.key) if case.key else make()
