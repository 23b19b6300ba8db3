"""What the partitioner delegates, what it does not, and what it says about that."""

from __future__ import annotations

import pytest

from tests.coreai.conftest import FN
from tests.lab import Lab

pytestmark = pytest.mark.subject

SETUP = (
    """
import json, torch
from executorch.exir import to_edge, to_edge_transform_and_lower
from executorch.backends.apple.coreai.partition.partitioner import do_not_delegate
from edgeproof.coreai import CoreAIPartitioner, compile_config, lower
"""
    + FN
    + """
def lowered(function, *inputs, partitioner=None, **options):
    partitioner = partitioner or CoreAIPartitioner()
    edge = lower(torch.export.export(Fn(function), inputs), partitioner=partitioner, **options)
    left = [getattr(getattr(n.target, "_op", n.target), "__name__", str(n.target))
            for n in edge.exported_program().graph.nodes
            if n.op == "call_function" and "getitem" not in str(n.target)]
    return left, partitioner, edge
"""
)


def test_refusals_have_a_reason(coreai_lab: Lab) -> None:
    found = coreai_lab.run(
        SETUP
        + """
left, partitioner, _ = lowered(lambda x: torch.cdist(x, x).relu(), torch.randn(3, 4))
result = [left, list(partitioner.refused.values())]
"""
    )
    left, reasons = found
    assert len(reasons) == len([name for name in left if "call_delegate" not in name])
    assert all(reasons)


def test_rules_hold_without_the_passes(coreai_lab: Lab) -> None:
    left, reasons = coreai_lab.run(
        SETUP
        + """
left, partitioner, _ = lowered(lambda x: torch.add(x, x, alpha=2).relu(), torch.randn(3), passes=[])
result = [left, list(partitioner.refused.values())]
"""
    )
    assert "add.Tensor" in left
    assert "the converter ignores an alpha other than 1" in reasons


def test_a_tagged_node_is_left_out(coreai_lab: Lab) -> None:
    found = coreai_lab.run(
        SETUP
        + """
def tag(graph_module):
    for node in graph_module.graph.nodes:
        if "relu" in str(node.target):
            do_not_delegate(node)
left, partitioner, _ = lowered(lambda x: (x + x).relu() * x, torch.randn(3), passes=[tag])
result = [left, list(partitioner.refused.values())]
"""
    )
    assert found[0].count("relu.default") == 1
    assert found[1] == ["tagged with do_not_delegate"]


def test_positions_are_computed_inside(coreai_lab: Lab) -> None:
    left, delegated = coreai_lab.run(
        SETUP
        + """
left, _, edge = lowered(lambda x: torch.argmax(x.relu(), 1), torch.randn(3, 4))
inner = [m for m in edge.exported_program().graph_module.children()][0]
result = [left, [str(n.target) for n in inner.original_module.graph.nodes if n.op == "call_function"]]
"""
    )
    assert len([name for name in left if "call_delegate" in name]) == 1
    assert [name for name in left if "call_delegate" not in name] == ["_to_copy.default"]
    assert any("argmax" in name for name in delegated)


def test_bfloat16_is_left_out(coreai_lab: Lab) -> None:
    reasons = coreai_lab.run(
        SETUP
        + """
_, partitioner, _ = lowered(lambda x: x + x, torch.randn(3).bfloat16())
result = list(partitioner.refused.values())
"""
    )
    assert reasons == ["torch.bfloat16 cannot cross into Core AI"]


def test_another_way_of_lowering_is_refused(coreai_lab: Lab) -> None:
    message = coreai_lab.run(
        SETUP
        + """
program = to_edge(torch.export.export(Fn(torch.relu), (torch.randn(3),)), compile_config=compile_config())
try:
    program.to_backend(CoreAIPartitioner())
    result = ""
except RuntimeError as error:
    result = str(error)
"""
    )
    assert "to_edge_transform_and_lower" in message


def test_the_compile_specs(coreai_lab: Lab) -> None:
    found = coreai_lab.run(
        SETUP
        + """
def specs(**options):
    spec = CoreAIPartitioner(**options).delegation_spec
    return [spec.backend_id, {s.key: s.value.decode() for s in spec.compile_specs}]
result = [specs(), specs(debug_info=True, uses_sidecar=True, min_deployment_version="27")]
"""
    )
    plain, full = found
    assert plain == ["CoreAIBackend", {"edgeproof_coreai": '{"debug_info": false, "least": {}}'}]
    assert full[1]["edgeproof_coreai"] == '{"debug_info": true, "least": {}}'
    assert len(full[1]) == 3
