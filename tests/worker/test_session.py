from __future__ import annotations

import pytest

from tests.lab import Lab

pytestmark = pytest.mark.subject

_IMPORTS = """
from edgeproof.plan.flow import Flow
from edgeproof.worker.session import probe
def flow(**changes):
    given = dict(name="x", summary="", stack="base", delegate="", imports=(), lowers_on=(), runs_on=())
    return Flow(**{**given, **changes})
"""


def test_a_flow_with_all_it_needs_has_no_problem(lab: Lab) -> None:
    code = 'result = probe(flow(imports=("executorch.exir",), libraries=("libc.so.6",)))'
    assert lab.run(_IMPORTS + code) == {"problem": ""}


def test_a_library_that_the_system_lacks_is_named_before_any_import(lab: Lab) -> None:
    code = 'result = probe(flow(imports=("nowhere",), libraries=("libnowhere.so.9",)))["problem"]'
    assert lab.run(_IMPORTS + code).startswith("the system lacks libnowhere.so.9")


def test_a_module_that_does_not_import_is_named_with_its_error(lab: Lab) -> None:
    code = 'result = probe(flow(imports=("executorch.exir", "nowhere.to.be.found")))["problem"]'
    said = lab.run(_IMPORTS + code)
    assert said == "import nowhere.to.be.found: ModuleNotFoundError: No module named 'nowhere'"


def test_a_delegate_that_the_runtime_lacks_is_named(lab: Lab) -> None:
    code = """
from edgeproof.plan.flow import this_platform
result = probe(flow(delegate="NoBackend", runs_on=(this_platform(),)))["problem"]
"""
    said = lab.run(_IMPORTS + code)
    assert said.startswith("NoBackend is not available in the runtime")
    assert "XnnpackBackend" in said
