"""The delegates inside a lowered program."""

from __future__ import annotations

from typing import Any


def delegates(edge: Any) -> list[Any]:
    """The lowered backend modules of the program's methods, in graph order."""
    from executorch.exir.lowered_backend_module import get_lowered_submodules

    found = []
    for method in sorted(edge.methods):
        graph_module = edge.exported_program(method).graph_module
        found += [lowered for _, lowered, _ in get_lowered_submodules(graph_module)]
    return found
