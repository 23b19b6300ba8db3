"""All flows by name, and the selection of some of them."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, cast

from edgeproof.errors import UsageError
from edgeproof.plan.flow import Arithmetic, Flow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edgeproof.worker.model import Model

_MODULES = ("portable", "xnnpack", "coreml", "openvino", "qnn", "coreai", "coreai_upstream")


class Backend(Protocol):
    """What every module of this package offers."""

    FLOWS: tuple[Flow, ...]

    def computes_in(self, flow: Flow) -> Arithmetic: ...  # noqa: D102
    def prepare(self, flow: Flow, model: Model) -> Model: ...  # noqa: D102
    def lower(self, flow: Flow, program: Any, model: Model) -> Any: ...  # noqa: D102
    def inspect(self, flow: Flow, edge: Any) -> dict[str, Any]: ...  # noqa: D102


@cache
def _backends() -> Mapping[str, Backend]:
    backends: dict[str, Backend] = {}
    for name in _MODULES:
        module = cast("Backend", importlib.import_module(f"edgeproof.flows.{name}"))
        backends.update({flow.name: module for flow in module.FLOWS})
    return MappingProxyType(backends)


def all_flows() -> dict[str, Flow]:
    """Every flow, in the order in which tables show them."""
    return {flow.name: flow for b in dict.fromkeys(_backends().values()) for flow in b.FLOWS}


def in_smoke() -> tuple[str, ...]:
    """The names of the flows that ``edgeproof smoke`` runs unasked."""
    return tuple(name for name, flow in all_flows().items() if flow.in_smoke)


def backend_of(flow: Flow) -> Backend:
    """The module that lowers a flow."""
    return _backends()[flow.name]


def select(patterns: Iterable[str]) -> tuple[Flow, ...]:
    """The flows that match any of the names or globs, in table order.

    Raises ``UsageError`` for a pattern that matches nothing, naming the nearest flows: a misspelt
    flow must never turn into a run without it.
    """
    flows = all_flows()
    chosen: set[str] = set()
    for pattern in patterns:
        found = [name for name in flows if fnmatchcase(name, pattern)]
        if not found:
            near = get_close_matches(pattern, flows, n=3, cutoff=0.5)
            mend = f"did you mean {', '.join(near)}?" if near else "`edgeproof flows` lists them"
            raise UsageError(f"there is no flow {pattern!r}", mend=mend)
        chosen.update(found)
    if not chosen:
        raise UsageError("no flow was selected", mend="`edgeproof flows` lists them")
    return tuple(flow for name, flow in flows.items() if name in chosen)
