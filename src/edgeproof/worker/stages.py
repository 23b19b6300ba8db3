"""A cell's way through its stages, inside the subject."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from edgeproof.flows.registry import backend_of
from edgeproof.plan.flow import SINGLE, Arithmetic, Flow
from edgeproof.plan.stage import Stage
from edgeproof.worker.answers import answers_of, compared_with, flat_inputs
from edgeproof.worker.compare import compare, compare_quantized, unlike_kinds
from edgeproof.worker.model import Inputs, Model
from edgeproof.worker.points import points
from edgeproof.worker.prepared import Prepared
from edgeproof.worker.reference import Reference

Emit = Callable[[dict[str, Any]], None]

_TIMED_RUNS = 10
_TIMED_SECONDS = 0.5


class CellRun:
    """One cell. ``go`` runs its stages; every stage is told to ``emit`` as it starts and ends.

    An exception in a stage is left to the caller, with ``stage`` saying where it came from.
    """

    def __init__(
        self, prepared: Prepared, flow: Flow, emit: Emit, *, keep: dict[str, Any] | None = None
    ) -> None:
        self.stage = Stage.BUILD
        self.evidence: dict[str, Any] = {}
        self._prepared = prepared
        self._flow = flow
        self._backend = backend_of(flow)
        self._emit = emit
        self._keep = keep
        self._writes_to_buffers = False
        self._quantized: dict[str, Reference] = {}

    def go(self) -> None:
        """Run all stages; ``evidence["outputs"]`` is only there when the comparison was made."""
        with self._in(Stage.BUILD, shared=self._prepared.built):
            model = self._prepared.model()
        with self._in(Stage.EAGER, shared=self._prepared.ran_eagerly):
            wanted = len(self._prepared.reference("example", model.inputs).outputs)
        model = model.copied() if model.program is None else model
        with self._in(Stage.QUANTIZE, skipped=not self._flow.quantized):
            exported = self._backend.prepare(self._flow, model)
        if self._flow.quantized and exported.quantized_nodes is not None:
            self.evidence["quantized_nodes"] = exported.quantized_nodes
            if not exported.quantized_nodes:
                return
        with self._in(Stage.EXPORT):
            program = exported.export()
            tried = points(program, exported.inputs)
            wider = self._prepared.wider()
            if wider is not None:
                tried.append(("wider", wider))
            self.evidence["compared"] = {"points": [name for name, _ in tried], "outputs": wanted}
        with self._in(Stage.LOWER):
            edge = self._backend.lower(self._flow, program, exported)
        with self._in(Stage.SERIALIZE):
            self._count(edge)
            self.evidence["payload"] = self._backend.inspect(self._flow, edge)
            executorch = edge.to_executorch()
            pte = executorch.buffer
            self.evidence["pte_bytes"] = len(pte)
        if not self._flow.runs_here():
            # No answer will tell whether export was right, so it is held against the module here.
            self._compare_eagerly(exported, tried)
            self.evidence["cannot_run"] = self._flow.cannot_run
            return
        self._run(exported, tried, pte)

    def _run(self, exported: Model, tried: list[tuple[str, Inputs]], pte: bytes) -> None:
        from executorch.runtime import Runtime

        with self._in(Stage.LOAD):
            # Program and bytes must outlive the method: the bindings keep no reference to them.
            loaded = Runtime.get().load_program(pte)
            method = loaded.load_method("forward")
        answers: dict[str, list[Any]] = {}
        with self._in(Stage.RUN):
            for name, inputs in tried:
                if name != "example" and self._writes_to_buffers:
                    # Start from the same state; a program gives its methods out once, with theirs.
                    del method
                    loaded = Runtime.get().load_program(pte)
                    method = loaded.load_method("forward")
                answers[name] = answers_of(method, name, inputs)
        self._time_runs(method, exported.inputs)
        with self._in(Stage.COMPARE):
            if self._flow.quantized:
                self._compare_eagerly(exported, tried)
            # Once: OpenVINO looks at the machine each time it is asked.
            arithmetic = self._backend.computes_in(self._flow)
            self.evidence["computes_in"] = arithmetic.dtype
            self.evidence["outputs"] = [
                row
                for name, inputs in tried
                for row in self._compare(name, inputs, exported, answers[name], arithmetic)
            ]
        if self._keep is not None:
            self._keep_program(exported.inputs, method, pte)
        del method, loaded

    def _keep_program(self, inputs: Inputs, method: Any, pte: bytes) -> None:
        """For the stress run that follows, in processes without torch."""
        from executorch.runtime import Runtime

        from edgeproof.worker.keep import keep

        def answers(given: Inputs) -> list[Any]:
            loaded = Runtime.get().load_program(pte)
            return answers_of(loaded.load_method("forward"), "example", given)

        assert self._keep is not None
        with self._in(Stage.STRESS):
            kept = keep(
                Path(self._keep["folder"]), pte, inputs, self._keep["turns"], answers,
                lambda given: flat_inputs(given, method),
            )  # fmt: skip
            self.evidence["kept"] = {**kept, "writes_to_buffers": self._writes_to_buffers}

    def _compare(
        self,
        point: str,
        inputs: Inputs,
        exported: Model,
        answers: list[Any],
        arithmetic: Arithmetic,
    ) -> list[dict[str, Any]]:
        reference = self._prepared.reference(point, inputs)
        writes_to = self.evidence["writes_to_inputs"]
        if not self._flow.quantized:
            return compared_with(reference, answers, arithmetic, point=point, writes_to=writes_to)
        right = self._quantized_reference(exported, point, inputs)
        unlike = unlike_kinds(right.outputs, reference.outputs, point=point)
        if unlike:
            return unlike
        return compare(
            answers,
            right.outputs,
            reference.quantized_floors(right.outputs, arithmetic),
            point=point,
            dtype=getattr(torch, arithmetic.dtype),
            inputs=inputs,
            eager=reference.outputs,
            other_answers=right.other_answers(),
            writes_to=writes_to,
        )

    def _quantized_reference(self, exported: Model, point: str, inputs: Inputs) -> Reference:
        """What the quantized module answers in eager PyTorch."""
        if point not in self._quantized:
            self._quantized[point] = Reference(exported, inputs)
        return self._quantized[point]

    def _compare_eagerly(self, exported: Model, tried: list[tuple[str, Inputs]]) -> None:
        """Hold what the program is made of against the module, all in eager PyTorch.

        A quantized flow is compared with its quantized module, which is made of the exported one:
        what export or the quantizer gets wrong is in both, and would be taken for the noise of
        quantization.
        """
        exported_rows, quantized_rows = [], []
        for point, inputs in tried:
            reference = self._prepared.reference(point, inputs)
            exported_rows += compare(
                self._prepared.exported_answers(inputs),
                reference.outputs,
                reference.floors(SINGLE),
                point=point,
                dtype=torch.float32,
                inputs=inputs,
                eager=reference.outputs,
                other_answers=reference.other_answers(),
            )
            if self._flow.quantized:
                quantized_rows += compare_quantized(
                    self._quantized_reference(exported, point, inputs).outputs,
                    reference.outputs,
                    point=point,
                    other_answers=reference.other_answers(),
                )
        self.evidence["exported"] = exported_rows
        if self._flow.quantized:
            self.evidence["quantized"] = quantized_rows

    def _time_runs(self, method: Any, inputs: Inputs) -> None:
        """The best of a few more runs, for the table; their answers are not looked at."""
        best = float("inf")
        began = time.perf_counter()
        for _ in range(_TIMED_RUNS):
            given = flat_inputs(inputs, method)
            start = time.perf_counter()
            method.execute(given)
            best = min(best, time.perf_counter() - start)
            if time.perf_counter() - began > _TIMED_SECONDS:
                break
        self.evidence["run_seconds"] = best

    def _count(self, edge: Any) -> None:
        """How many nodes of the graph went to the delegates, of how many."""
        from executorch.devtools.backend_debug import get_delegation_info

        delegated = total = 0
        writes: list[str] = []
        for name in edge.methods:
            info = get_delegation_info(edge.exported_program(name).graph_module)
            delegated += info.num_delegated_nodes
            total += info.num_delegated_nodes + info.num_non_delegated_nodes
            # Of the lowered program: torch.export's own leaves writes in place, and names none.
            signature = edge.exported_program(name).graph_signature
            writes += signature.user_inputs_to_mutate.values()
            self._writes_to_buffers |= bool(signature.buffers_to_mutate)
        self.evidence["writes_to_inputs"] = writes
        self.evidence["delegated_nodes"] = delegated
        self.evidence["nodes"] = total

    @contextmanager
    def _in(self, stage: Stage, *, shared: bool = False, skipped: bool = False) -> Iterator[None]:
        self.stage = stage
        self._emit({"event": "stage_started", "stage": stage.value})
        start = time.perf_counter()
        yield
        self._emit(
            {
                "event": "stage_ended",
                "stage": stage.value,
                "seconds": round(time.perf_counter() - start, 4),
                "shared": shared,
                "skipped": skipped,
            }
        )
