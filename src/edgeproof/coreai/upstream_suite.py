"""A pytest plugin that adds our Core AI flows to ExecuTorch's own operator and model suites.

The suites come in the executorch wheel and are run as they are there::

    python -m pytest -c /dev/null -p edgeproof.coreai.upstream_suite \\
        --pyargs executorch.backends.test.suite.operators -m flow_coreai_fp16 -n 2 --timeout 120

Our flows are ``coreai_fp32``, ``coreai_fp16``, ``coreai_w8a8``, ``coreai_w8`` and ``coreai_w4``;
``coreai_upstream_fp32`` and so on lower with what the wheel brings, and run on our delegate all the same.
For ours the plugin is stricter than the suites: a case runs whatever operators it has, where the suites skip
what the portable kernels lack although it may be delegated. A model with nothing to quantize is skipped,
with that reason. Every test has a cache of its own.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from executorch.backends.test.suite import flow as flows
from executorch.backends.test.suite import runner

from edgeproof.coreai.precision import PRECISIONS, QUANTIZED, NothingToQuantizeError
from edgeproof.coreai.tester import CoreAIQuantize, CoreAITester
from edgeproof.worker import fixed_costs

_folder: str | None = None


def _flow(precision: str, *, released: bool) -> Any:
    quantized = precision in QUANTIZED
    return flows.TestFlow(
        f"coreai_upstream_{precision}" if released else f"coreai_{precision}",
        backend="coreai_upstream" if released else "coreai",
        tester_factory=functools.partial(_tester, precision, released),
        quantize=quantized,
        quantize_stage_factory=functools.partial(CoreAIQuantize, precision) if quantized else None,
    )


def _tester(
    precision: str, released: bool, module: torch.nn.Module, inputs: Any, **options: Any
) -> CoreAITester:
    return CoreAITester(
        module, inputs, precision=precision, released=released, cache_dir=_folder, **options
    )


def _register(released: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    @functools.wraps(released)
    def all_flows() -> dict[str, Any]:
        ours = [_flow(p, released=r) for r in (False, True) for p in PRECISIONS]
        return {**released(), **{flow.name: flow for flow in ours}}

    return all_flows


def _stricter(run_test: Callable[..., Any]) -> Callable[..., Any]:
    """``run_test`` with our rules for our flows."""

    @functools.wraps(run_test)
    def run(model: Any, inputs: Any, flow: Any, *args: Any, **options: Any) -> Any:
        ours = flow.backend == "coreai"
        skips = (lambda program: False) if ours else runner._graph_has_unsupported_patterns
        with mock.patch.object(runner, "_graph_has_unsupported_patterns", skips):
            summary = run_test(model, inputs, flow, *args, **options)
        if isinstance(summary.error, NothingToQuantizeError):
            pytest.skip(summary.error.message)
        return summary

    return run


# Before the suites' conftest is imported, which asks for the flows and keeps these functions.
flows.all_flows = _register(flows.all_flows)
runner.run_test = _stricter(runner.run_test)
fixed_costs.pay_once()


@pytest.fixture(autouse=True)
def _own_cache() -> Iterator[None]:
    """A folder for the specialized models of one test, gone when it ends."""
    global _folder
    _folder = tempfile.mkdtemp(prefix="edgeproof-coreai-")
    try:
        yield
    finally:
        shutil.rmtree(_folder, ignore_errors=True)
        _folder = None
