"""Gives Core AI the largest parts of a program that it computes right."""

from __future__ import annotations

import copy
import functools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from coreai_torch import get_decomp_table
from executorch.backends.apple.coreai.compiler.enumerated_shapes import resolve_input_enumerations
from executorch.backends.apple.coreai.compiler.preprocess import (
    COMPILE_SPEC_KEYS,
    AOTCompileConfig,
)
from executorch.backends.apple.coreai.partition.partitioner import DO_NOT_DELEGATE_TAG
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.backend.utils import tag_constant_data, tag_mutated_buffer
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner, Partition
from torch.fx.passes.operator_support import OperatorSupportBase

from edgeproof.coreai.compiler.backend import SPEC, CoreAIBackend
from edgeproof.coreai.partition.boundary import NARROWED, boundary_reason
from edgeproof.coreai.partition.variants import may_not_be_whole, unsupported_variant_reason
from edgeproof.coreai.passes.decompositions import decompose_outside_core_aten
from edgeproof.coreai.passes.narrow import narrows
from edgeproof.coreai.passes.outputs import with_plain_outputs
from edgeproof.coreai.targets import resolver_key

BACKEND_ID = CoreAIBackend.__name__
"""The name under which the delegate is registered, on Linux and on Apple's devices."""


class CoreAIPartitioner(Partitioner):  # type: ignore[misc]
    """Partitions an edge program for Core AI; to be used with ``to_edge_transform_and_lower``.

    The arguments are those of ExecuTorch's own ``CoreAIPartitioner``, which this one replaces, and
    ``debug_info``: whether the assets carry the source paths of the exporting machine (they then differ
    from machine to machine).

    After lowering, ``refused`` has the name of every node that was left outside a delegate, and why.
    """

    def __init__(
        self,
        *,
        uses_sidecar: bool = False,
        aot_compile_config: AOTCompileConfig | None = None,
        min_deployment_version: str | None = None,
        input_enumerations: Sequence[Mapping[int, Sequence[int]] | None] | None = None,
        take_over_constant_data: bool = True,
        take_over_mutable_buffer: bool = True,
        debug_info: bool = False,
    ) -> None:
        self._debug_info = debug_info
        self._least: dict[str, int] = {}
        specs = []
        if uses_sidecar:
            specs.append(CompileSpec(COMPILE_SPEC_KEYS.USES_SIDECAR.value, b"1"))
        if min_deployment_version is not None:
            key = COMPILE_SPEC_KEYS.MIN_DEPLOYMENT_VERSION.value
            specs.append(CompileSpec(key, str(min_deployment_version).encode()))
        if aot_compile_config is not None:
            key = COMPILE_SPEC_KEYS.AOT_COMPILE_CONFIG.value
            specs.append(CompileSpec(key, aot_compile_config.to_json().encode()))
        self._specs = specs
        self.delegation_spec = DelegationSpec(BACKEND_ID, [self._own_spec(), *specs])
        self.refused: dict[str, str] = {}
        self._input_enumerations = input_enumerations
        self._take_over_constant_data = take_over_constant_data
        self._take_over_mutable_buffer = take_over_mutable_buffer

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tag the nodes that Core AI gets.

        Raises:
            RuntimeError: outside ``to_edge_transform_and_lower``: ``to_edge`` then ``to_backend`` takes
                apart what Core AI lowers whole (attention, say) before it can be tagged.
        """
        if not _lowering_in_one_step():
            raise RuntimeError(
                "CoreAIPartitioner works with to_edge_transform_and_lower(program, "
                "partitioner=[CoreAIPartitioner()]) alone: to_edge() followed by to_backend() "
                "decomposes operators that Core AI lowers whole."
            )
        partitions = _proposed(exported_program.graph_module, _Support(self.refused))
        spec = self._spec_for(exported_program)
        tags: dict[str, DelegationSpec] = {}
        for partition in partitions:
            tag = f"tag{partition.id}"
            tags[tag] = spec
            for node in partition.nodes:
                node.meta["delegation_tag"] = tag
        if self._take_over_constant_data:
            tag_constant_data(exported_program)
        if self._take_over_mutable_buffer:
            tag_mutated_buffer(exported_program)
        _leave_what_is_needed_outside(exported_program)
        return PartitionResult(tagged_exported_program=exported_program, partition_tags=tags)

    def transform_for_pre_decomposition(self, exported_program: ExportedProgram) -> ExportedProgram:
        """Take apart the operators outside Core ATen that the edge dialect would refuse.

        And name no type of ``torch.return_types`` among the outputs, which it could not write down.
        """
        for symbol, known in exported_program.range_constraints.items():
            least = int(known.lower) if known.lower.is_finite else 0
            self._least[str(symbol)] = max(least, self._least.get(str(symbol), 0))
        own = _with_tables_of_its_own(exported_program)
        return with_plain_outputs(decompose_outside_core_aten(own))

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[torch._ops.OpOverload], Callable[[Node], bool] | None]:
        """The operators that the converter wants whole, where they will be delegated."""
        return list(_kept_whole()), lambda node: not may_not_be_whole(node)

    def _own_spec(self) -> CompileSpec:
        """What our compiler is told, and known by: the least of dynamic sizes is lost while lowering."""
        told = {"debug_info": self._debug_info, "least": self._least}
        return CompileSpec(SPEC, json.dumps(told).encode())

    def _spec_for(self, exported_program: ExportedProgram) -> DelegationSpec:
        specs = [self._own_spec(), *self._specs]
        resolved = resolve_input_enumerations(exported_program, self._input_enumerations)
        if resolved:
            key = COMPILE_SPEC_KEYS.INPUT_ENUMERATIONS.value
            specs.append(CompileSpec(key, json.dumps(resolved).encode()))
        return DelegationSpec(BACKEND_ID, specs)


def _with_tables_of_its_own(program: ExportedProgram) -> ExportedProgram:
    """The same program, with copies of the tables that lowering takes constants out of.

    Lowered as it is, a program whose constants were lifted (Swin's attention) cannot be run any more:
    ``program.module()`` then ends in ``KeyError: 'features.1.1.attn.lifted_tensor_0'``.
    """
    own = copy.copy(program)
    own._constants = dict(program.constants)
    own._state_dict = dict(program.state_dict)
    return own


def _leave_what_is_needed_outside(program: ExportedProgram) -> None:
    """Untag constants that are outputs too, and buffers whose new value the delegate cannot keep to itself.

    Of a constant with a tag ExecuTorch demands that all its users have the same. A buffer is a delegate's
    own state if that delegate computes what it is set to, and nobody else reads that.
    """
    signature = program.graph_signature
    results = program.graph.output_node().all_input_nodes
    listed = list(program.graph.output_node().args[0])
    new = {signature.buffers_to_mutate.get(node.name): node for node in results}
    for node in program.graph.nodes:
        tag = node.meta.get("delegation_tag")
        if node.op != "placeholder" or tag is None:
            continue
        value = new.get(signature.inputs_to_buffers.get(node.name))
        kept = value is None or (
            value.meta.get("delegation_tag") == tag
            and value.op == "call_function"
            and listed.count(value) == 1
            and all(user.meta.get("delegation_tag") == tag for user in node.users)
        )
        if node in results or not kept:
            del node.meta["delegation_tag"]


class _Support(OperatorSupportBase):  # type: ignore[misc]
    """Decides node by node, once for each, and writes refusals down."""

    def __init__(self, refused: dict[str, str]) -> None:
        self._refused = refused
        self._decided: dict[Node, bool] = {}
        self._kept_out: dict[Node, str] = {}

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: Node) -> bool:
        if node.op != "call_function":
            return False
        if node not in self._decided:
            reason = self._kept_out.get(node) or refusal(node)
            producer = depends_on(node)
            if not reason and producer is not None:
                supported = self.is_node_supported(submodules, producer)
                reason = "" if supported else f"{producer.name}, which computes it, is kept out"
            self._decided[node] = not reason
            if reason:
                self._refused[node.name] = reason
        return self._decided[node]

    def refuse(self, node: Node, reason: str) -> None:
        """Keep ``node`` out after all; what depends on it is decided anew."""
        self._kept_out[node] = reason
        self._decided.clear()


def depends_on(node: Node) -> Node | None:
    """The node without which ``node`` makes no sense in a delegate: what it takes apart, or narrows."""
    source = node.args[0] if node.args else None
    if not isinstance(source, Node) or source.op != "call_function":
        return None
    wide = narrows(node) and source.meta["val"].dtype == torch.int64
    return source if wide or resolver_key(node.target) == "getitem" else None


def refusal(node: Node) -> str:
    """Why ``node``, a function call, is kept out of the delegate; '' when Core AI may have it."""
    if node.meta.get(DO_NOT_DELEGATE_TAG, False):
        return "tagged with do_not_delegate"
    if getattr(node.target, "namespace", None) == "higher_order":
        return "the passes that mend a program do not reach into branches and loops"
    if resolver_key(node.target) is None:
        return "the converter has no lowering for this operator"
    return boundary_reason(node) or unsupported_variant_reason(node)


def _proposed(graph_module: GraphModule, support: _Support) -> list[Partition]:
    """The partitions, none of which hands out a 64-bit value: a node that would is kept out of all."""
    while True:
        partitions = CapabilityBasedPartitioner(
            graph_module, support, allows_single_node_partition=True
        ).propose_partitions()
        wide = [
            node
            for partition in partitions
            for node in partition.nodes
            if isinstance(value := node.meta.get("val"), torch.Tensor)
            and value.dtype in NARROWED
            and any(user not in partition.nodes for user in node.users)
        ]
        if not wide:
            return list(partitions)
        for node in wide:
            support.refuse(node, "its 64-bit result is needed outside the delegate")
            producer = depends_on(node)
            if producer is not None:  # which would take it along
                support.refuse(producer, f"{node.name}, its 64-bit result, is needed outside")


@functools.cache
def _kept_whole() -> tuple[torch._ops.OpOverload, ...]:
    """What the default decompositions take apart and the converter's own table does not.

    Building torch's table takes about a second, so this is done once a process.
    """
    wanted_apart = get_decomp_table()
    return tuple(
        op
        for op in torch.export.default_decompositions()
        if op not in wanted_apart and isinstance(op, torch._ops.OpOverload)
    )


def _lowering_in_one_step() -> bool:
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "to_edge_transform_and_lower":
            return True
        frame = frame.f_back
    return False
