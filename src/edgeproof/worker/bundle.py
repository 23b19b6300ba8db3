"""Small cases lowered as one program and run together, for a tenth of what they cost alone.

A bundle only ever proves: a case gets its evidence from it when its own answers are right. Whatever else
happens to the bundle, it is split, and a case about which it says nothing is run alone.
"""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from edgeproof.flows.registry import Backend
from edgeproof.plan.flow import Flow
from edgeproof.plan.stage import Stage
from edgeproof.worker.answers import answers_of, compared_with
from edgeproof.worker.cones import Cone, cones, ops_of
from edgeproof.worker.model import Inputs, Model
from edgeproof.worker.prepared import Prepared

MOST_NODES = 120
"""Of a bundle's graph. Partitioners and passes take time that grows with its square: twenty LSTMs in one
program took 430 s to lower, a tenth of that one by one."""
_UNROLLED = frozenset({"aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu"})
"""One node each until lowering writes out every step of theirs."""

_OPERATOR = re.compile(r"\b(aten|dim_order_ops|quantized_decomposed)(?:\.|::)(\w+)")


class Bundled(torch.nn.Module):  # type: ignore[misc]  # the host has no torch
    """Modules side by side: takes the inputs of all, gives the outputs of all."""

    def __init__(self, members: Sequence[Model]) -> None:
        super().__init__()
        self.members = torch.nn.ModuleList(model.module for model in members)
        self._counts = [len(model.args) for model in members]

    def forward(self, *inputs: torch.Tensor) -> tuple[Any, ...]:
        """Each member's outputs, in order."""
        outputs, start = [], 0
        for module, count in zip(self.members, self._counts, strict=True):
            outputs.append(module(*inputs[start : start + count]))
            start += count
        return tuple(outputs)


@dataclass
class Exports:
    """The exported programs of bundles, which float flows share, and operators known to need one's own."""

    programs: dict[tuple[str, ...], Any] = field(default_factory=dict)
    unfit: dict[str, set[str]] = field(default_factory=dict)
    """Of each flow, the operators that lowering or the runtime refused before: their cases go alone."""


class _TooLarge(Exception):
    """The graph is too large; ``parts`` are small enough, or single members."""

    def __init__(self, parts: list[list[str]]) -> None:
        super().__init__("its graph is large")
        self.parts = parts


class _Guilty(Exception):
    """These members keep the others from being proved."""

    def __init__(self, names: set[str], why: str) -> None:
        super().__init__(why)
        self.names = names


class BundleRun:
    """One flow over several cases. ``go`` gives the evidence of those that it proves."""

    def __init__(
        self,
        members: Mapping[str, Prepared],
        flow: Flow,
        backend: Backend,
        exports: Exports,
        on_stage: Callable[[Stage], None],
    ) -> None:
        self._members = dict(members)
        self._flow = flow
        self._backend = backend
        self._exports = exports
        self._on_stage = on_stage
        self._unfit = exports.unfit.setdefault(flow.name, set())
        self.proved: dict[str, dict[str, Any]] = {}
        """By cell: ``evidence`` and ``stages``, as of a cell alone."""
        self.alone: dict[str, str] = {}
        """By cell: why it is to be run alone."""

    def go(self) -> None:
        """Prove what can be proved together; every member ends in ``proved`` or in ``alone``."""
        fit = []
        for name, prepared in self._members.items():
            why = _unfit(prepared)
            if why:
                self.alone[name] = why
            else:
                fit.append(name)
        self._prove(fit)

    def _prove(self, names: list[str]) -> None:
        if len(names) < 2:
            self.alone.update(dict.fromkeys(names, "it is left of its bundle"))
            return
        try:
            self._together(names)
        except _TooLarge as large:
            for part in large.parts:
                self._prove(part)
        except _Guilty as guilty:
            self.alone.update(dict.fromkeys(guilty.names, str(guilty)))
            self._prove([name for name in names if name not in guilty.names])
        except Exception:
            # Whoever it was: their own run will tell.
            half = len(names) // 2
            self._prove(names[:half])
            self._prove(names[half:])

    def _together(self, names: list[str]) -> None:
        times: dict[Stage, float] = {Stage.BUILD: 0.0, Stage.EAGER: 0.0}
        members = [self._members[name] for name in names]
        with self._in(Stage.EXPORT, times):
            model = _joined([prepared.model() for prepared in members])
            program = self._exported(names, model)
        counts = self._counts(names)
        self._require_small(names, program, counts)
        self._refuse_known(names, program)
        with self._in(Stage.LOWER, times):
            try:
                edge = self._backend.lower(self._flow, copy.deepcopy(program), model)
            except Exception as fault:
                self._blame(names, _operators_in(str(fault)), program, f"lowering: {fault}")
                raise
        with self._in(Stage.SERIALIZE, times):
            lowered = edge.exported_program()
            self._refuse_writes(names, lowered.graph_signature)
            found = cones(lowered, counts)
            payload = self._backend.inspect(self._flow, edge)
            executorch = edge.to_executorch()
            self._refuse_without_kernel(names, found, executorch)
            pte = executorch.buffer
        with self._in(Stage.LOAD, times):
            from executorch.runtime import Runtime

            loaded = Runtime.get().load_program(pte)
            method = loaded.load_method("forward")
        with self._in(Stage.RUN, times):
            answers = self._split(answers_of(method, "example", model.inputs), counts)
            tried = self._wider(members, model)
            wider = self._split(answers_of(method, "wider", tried), counts) if tried else None
        with self._in(Stage.COMPARE, times):
            arithmetic = self._backend.computes_in(self._flow)
            for index, (name, prepared) in enumerate(zip(names, members, strict=True)):
                given = {"example": (prepared.model().inputs, answers[index])}
                other = prepared.wider()
                if wider is not None and other is not None:
                    given["wider"] = (other, wider[index])
                rows = [
                    row
                    for point, (inputs, got) in given.items()
                    for row in compared_with(
                        prepared.reference(point, inputs), got, arithmetic, point=point
                    )
                ]
                self._settle(name, rows, found[index], payload, list(given), counts[index])
            self._time(names, times)
        del method, loaded

    def _settle(
        self,
        name: str,
        rows: list[dict[str, Any]],
        cone: Cone,
        payload: Any,
        points: list[str],
        outputs: int,
    ) -> None:
        if any(row.get("problem") for row in rows):
            self.alone[name] = "its answer is wrong in the bundle"
            return
        self.proved[name] = {
            "evidence": {
                "compared": {"points": points, "outputs": outputs},
                "payload": payload,
                "writes_to_inputs": [],
                "nodes": cone.nodes,
                "delegated_nodes": cone.delegated,
                "computes_in": self._backend.computes_in(self._flow).dtype,
                "outputs": rows,
            }
        }

    def _time(self, names: list[str], times: Mapping[Stage, float]) -> None:
        """Each member's share of the bundle's time."""
        for name in names:
            if name in self.proved:
                evidence = self.proved[name]["evidence"]
                evidence["bundle"] = len(names)
                self.proved[name]["stages"] = [
                    {
                        "stage": stage.value,
                        "seconds": round(times.get(stage, 0.0) / len(names), 5),
                        "shared": True,
                        "skipped": stage is Stage.QUANTIZE,
                    }
                    for stage in list(Stage)[: list(Stage).index(Stage.COMPARE) + 1]
                ]

    def _exported(self, names: list[str], model: Model) -> Any:
        key = tuple(self._members[name].case.id for name in names)
        if key not in self._exports.programs:
            program = model.export()
            self._exports.programs[key] = program
        return self._exports.programs[key]

    def _counts(self, names: list[str]) -> list[int]:
        return [
            len(
                self._members[name].reference("example", self._members[name].model().inputs).outputs
            )
            for name in names
        ]

    def _require_small(self, names: list[str], program: Any, counts: Sequence[int]) -> None:
        """Raise ``_TooLarge`` where the graph is, with the members in their order in smaller parts."""
        sizes = [
            MOST_NODES if cone.outside & _UNROLLED else cone.nodes
            for cone in cones(program, counts)
        ]
        if sum(sizes) <= MOST_NODES:
            return
        parts: list[list[str]] = []
        room = 0
        for name, size in zip(names, sizes, strict=True):
            if size > room:
                parts.append([])
                room = MOST_NODES
            parts[-1].append(name)
            room -= size
        raise _TooLarge(parts)

    def _refuse_writes(self, names: list[str], signature: Any) -> None:
        """Outputs of a program that writes to its inputs or buffers are others than those of its modules."""
        order = list(signature.user_inputs)
        owners = [name for name in names for _ in self._members[name].model().args]
        guilty = {owners[order.index(i)] for i in signature.user_inputs_to_mutate.values()}
        buffers = signature.buffers_to_mutate.values()  # members.3.cache
        guilty |= {names[int(buffer.split(".")[1])] for buffer in buffers}
        if guilty:
            raise _Guilty(guilty, "it writes to its inputs or buffers")

    def _refuse_known(self, names: list[str], program: Any) -> None:
        if self._unfit:
            self._blame(names, self._unfit, program, "an operator of it is known to fail")

    def _blame(self, names: list[str], operators: set[str], program: Any, why: str) -> None:
        """Raise ``_Guilty`` for the members that have one of the operators, if some and not all have."""
        has = ops_of(program, self._counts(names))
        guilty = {name for name, ops in zip(names, has, strict=True) if ops & operators}
        if guilty:
            self._unfit.update(operators & frozenset().union(*has))
            raise _Guilty(guilty, why[:300])

    def _refuse_without_kernel(
        self, names: list[str], found: Sequence[Cone], executorch: Any
    ) -> None:
        """The runtime's registry tells beforehand whose operators no kernel is there for."""
        from executorch.runtime import Runtime

        registered = set(Runtime.get().operator_registry.operator_names)
        plan = executorch.executorch_program.execution_plan[0]
        asked = {f"{op.name}.{op.overload}" if op.overload else op.name for op in plan.operators}
        missing = {op.partition(".")[0] for op in asked - registered}
        guilty = {name for name, cone in zip(names, found, strict=True) if cone.outside & missing}
        if guilty:
            self._unfit.update(missing)
            raise _Guilty(guilty, f"the runtime has no kernel for {', '.join(sorted(missing))}")

    def _wider(self, members: Sequence[Prepared], model: Model) -> Inputs | None:
        """Other inputs for the members whose example proves nothing; the example for those where it does."""
        tried = [prepared.wider() for prepared in members]
        if all(inputs is None for inputs in tried):
            return None
        args: list[Any] = []
        for prepared, inputs in zip(members, tried, strict=True):
            args += (inputs or prepared.model().inputs)[0]
        return tuple(args), {}

    def _split(self, answers: list[Any], counts: Sequence[int]) -> list[list[Any]]:
        if len(answers) != sum(counts):
            raise ValueError(f"the program has {len(answers)} outputs, its cases {sum(counts)}")
        parts, start = [], 0
        for count in counts:
            parts.append(answers[start : start + count])
            start += count
        return parts

    @contextmanager
    def _in(self, stage: Stage, times: dict[Stage, float]) -> Iterator[None]:
        self._on_stage(stage)
        start = time.perf_counter()
        yield
        times[stage] = time.perf_counter() - start


def _joined(models: Sequence[Model]) -> Model:
    args = tuple(arg for model in models for arg in model.args)
    return Model(module=Bundled(models).eval(), args=args)


def _unfit(prepared: Prepared) -> str:
    """Why a case cannot be in a bundle; empty when it can. What it raises, it will raise alone."""
    try:
        model = prepared.model()
        if model.program is not None or model.dynamic_shapes is not None or model.kwargs:
            return "it is exported with more than positional inputs"
        if not all(isinstance(arg, torch.Tensor) for arg in model.args):
            return "it takes inputs that are no tensors"
        outputs = prepared.reference("example", model.inputs).outputs
        if not all(isinstance(value, torch.Tensor) for _, value in outputs):
            return "it gives outputs that are no tensors"
    except Exception as fault:
        return f"{type(fault).__name__}: {fault}"[:300]
    return ""


def _operators_in(text: str) -> set[str]:
    """The operators that a fault names, as ``aten::add``."""
    return {f"{space}::{name}" for space, name in _OPERATOR.findall(text)}
