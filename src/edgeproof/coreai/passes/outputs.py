"""Makes plain tuples of the named ones that operators like ``torch.median`` return.

A model may return one as it is. ExecuTorch writes down how the outputs of a program are nested, and has no
name for these types: ``to_executorch()`` ends in "No registered serialization name for
torch.return_types.median". Outputs come out as a flat list in any case.
"""

from __future__ import annotations

import copy
from typing import Any

from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

_MODULE = "torch.return_types"


def with_plain_outputs(program: ExportedProgram) -> ExportedProgram:
    """The program, its outputs nested in tuples where they were in ``torch.return_types``."""
    signature = program.module_call_graph[0].signature
    if signature is not None and signature.out_spec is not None:
        example = pytree.tree_unflatten([0] * signature.out_spec.num_leaves, signature.out_spec)
        plain = _plain(example)
        if plain is not None:
            program = copy.copy(program)  # the one that was given is its owner's
            program._module_call_graph = copy.deepcopy(program._module_call_graph)
            program.module_call_graph[0].signature.out_spec = pytree.tree_structure(plain)
    return program


def _plain(value: Any) -> Any | None:
    """``value`` without named tuples of torch's; ``None`` where there are none."""
    found = False

    def named(node: Any) -> bool:
        nonlocal found
        is_one = type(node).__module__ == _MODULE
        found = found or is_one
        return is_one

    changed = pytree.tree_map(
        lambda node: tuple(node) if type(node).__module__ == _MODULE else node,
        value,
        is_leaf=named,
    )
    return changed if found else None
