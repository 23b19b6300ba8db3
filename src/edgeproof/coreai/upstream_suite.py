"""A pytest plugin that adds our Core AI flows to ExecuTorch's own operator and model suites.

The suites come in the executorch wheel and are run as they are there::

    python -m pytest -c /dev/null -p edgeproof.coreai.upstream_suite \\
        --pyargs executorch.backends.test.suite.operators -m flow_coreai_fp16 -n 2 --timeout 120

Where upstream's rules let something pass that was not proved, this plugin is stricter: a case that is
delegated runs whatever its operators are, and a run whose tests all were skipped, or in which no test ran,
is not a success.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from executorch.backends.test.suite import flow as flows
from executorch.backends.test.suite import runner
from torch._export import utils as export_utils

from edgeproof.coreai.precision import QUANTIZED, NothingToQuantizeError
from edgeproof.coreai.tester import CoreAIQuantize, CoreAITester

PRECISIONS = ("fp32", "fp16", *QUANTIZED)

# What has no right answer, with the reason; parts of the names of tests.
_NO_RIGHT_ANSWER: dict[str, str] = {}

_folder: str | None = None


def _flow(precision: str) -> Any:
    quantized = precision in QUANTIZED
    return flows.TestFlow(
        f"coreai_{precision}",
        backend="coreai",
        tester_factory=functools.partial(_tester, precision),
        quantize=quantized,
        quantize_stage_factory=functools.partial(CoreAIQuantize, precision) if quantized else None,
        skip_patterns=list(_NO_RIGHT_ANSWER),
    )


def _tester(precision: str, module: torch.nn.Module, inputs: Any, **options: Any) -> CoreAITester:
    return CoreAITester(module, inputs, precision=precision, cache_dir=_folder, **options)


def _register(released: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
    @functools.wraps(released)
    def all_flows() -> dict[str, Any]:
        ours = [_flow(precision) for precision in PRECISIONS]
        return {**released(), **{flow.name: flow for flow in ours}}

    return all_flows


def _skipping_what_cannot_be_quantized(run_test: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run_test)
    def run(*args: Any, **options: Any) -> Any:
        summary = run_test(*args, **options)
        if isinstance(summary.error, NothingToQuantizeError):
            pytest.skip(summary.error.message)
        return summary

    return run


# Before the suites' conftest is imported, which asks for the flows and keeps these functions.
flows.all_flows = _register(flows.all_flows)
runner.run_test = _skipping_what_cannot_be_quantized(runner.run_test)
# It skips whatever has a 3d convolution, since the portable kernels have none, delegated or not. What has
# no kernel and is not delegated fails to load, and is reported as that.
runner._graph_has_unsupported_patterns = lambda program: False
# Torch looks through its operators for the composite ones every time it exports, a second for each test.
# They do not change while tests run.
export_utils._collect_all_valid_cia_ops = functools.cache(export_utils._collect_all_valid_cia_ops)


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
