"""The inputs a program is run at: the example's, and the bounds of its dynamic dimensions."""

from __future__ import annotations

import inspect
from typing import Any

import sympy
import torch
from torch.export.graph_signature import InputKind

from edgeproof.worker.model import Inputs

_UNBOUNDED = 1 << 30


def points(program: torch.export.ExportedProgram, inputs: Inputs) -> list[tuple[str, Inputs]]:
    """``example``, then ``smallest`` and ``largest`` where dimensions are dynamic.

    A dimension without an upper bound is tried at twice its example size, one that may be empty at 1.
    Values are those of the example, repeated or cut, so that they stay in range. Raises ``ValueError``
    where a bound cannot be tried: to leave it out would prove less than was asked for.
    """
    found = [("example", inputs)]
    leaves, structure = torch.utils._pytree.tree_flatten(inputs)
    placeholders = _user_inputs(program)
    if not program.range_constraints:
        return found
    if len(placeholders) != len(leaves):
        raise ValueError(
            f"the program takes {len(placeholders)} inputs and the example has {len(leaves)}: "
            "the bounds of its dynamic dimensions cannot be tried"
        )
    bounds = {str(s): (r.lower, r.upper) for s, r in program.range_constraints.items()}
    sizes = _example_sizes(placeholders, leaves)
    for name, index in (("smallest", 0), ("largest", 1)):
        chosen = {}
        for symbol, size in sizes.items():
            bound = bounds.get(symbol, (size, size))[index]
            chosen[symbol] = 2 * size if bound > _UNBOUNDED else max(1, int(bound))
        if chosen == sizes:
            continue
        moved = [_resized(leaf, p, chosen) for leaf, p in zip(leaves, placeholders, strict=True)]
        found.append((name, torch.utils._pytree.tree_unflatten(moved, structure)))
    return found


def _user_inputs(program: torch.export.ExportedProgram) -> list[Any]:
    # By name: the signature's own user_inputs gives a constant's value in place of its name.
    specs = program.graph_signature.input_specs
    names = {spec.arg.name for spec in specs if spec.kind == InputKind.USER_INPUT}
    nodes = [n for n in program.graph.nodes if n.op == "placeholder" and n.name in names]
    return [node.meta.get("val") for node in nodes]


def _example_sizes(placeholders: list[Any], leaves: list[Any]) -> dict[str, int]:
    """The value each symbol has in the example, also where a dimension is ``2*half + 1``.

    Raises ``ValueError`` for a dimension of several symbols of which none is known.
    """
    sizes: dict[str, int] = {}
    derived = []
    for value, leaf in zip(placeholders, leaves, strict=True):
        if not isinstance(leaf, torch.Tensor) or not isinstance(value, torch.Tensor):
            continue
        for size, actual in zip(value.shape, leaf.shape, strict=True):
            if not isinstance(size, torch.SymInt):
                continue
            if size.node.expr.is_symbol:
                sizes[str(size.node.expr)] = int(actual)
            else:
                derived.append((size.node.expr, int(actual)))
    for expression, actual in derived:
        unknown = [s for s in expression.free_symbols if str(s) not in sizes]
        if not unknown:
            continue
        solutions = sympy.solve(expression - actual, unknown[0]) if len(unknown) == 1 else []
        if not solutions or not solutions[0].is_Integer:
            raise ValueError(f"the bounds of a dimension of size {expression} cannot be tried")
        sizes[str(unknown[0])] = int(solutions[0])
    return sizes


def _resized(leaf: Any, value: Any, chosen: dict[str, int]) -> Any:
    if not isinstance(leaf, torch.Tensor) or not isinstance(value, torch.Tensor):
        return leaf
    for dim, size in enumerate(value.shape):
        if not isinstance(size, torch.SymInt):
            continue
        expression = size.node.expr
        wanted = int(expression.subs({s: chosen[str(s)] for s in expression.free_symbols}))
        repeats = -(-wanted // leaf.shape[dim])
        leaf = torch.cat([leaf] * repeats, dim).narrow(dim, 0, wanted)
    return leaf.contiguous() if value.is_contiguous() else leaf.clone()


def dynamic_shapes_of(program: torch.export.ExportedProgram, inputs: Inputs) -> Any:
    """What to export the program's module with again, so that its dynamic dimensions stay so.

    ``None`` for a program without any; names and bounds are found anew by ``Dim.AUTO``.
    """
    leaves, structure = torch.utils._pytree.tree_flatten(inputs)
    placeholders = _user_inputs(program)
    if len(placeholders) != len(leaves) or not program.range_constraints:
        return None
    shapes = [_dynamic_dims(value) for value in placeholders]
    args, kwargs = torch.utils._pytree.tree_unflatten(shapes, structure)
    names = inspect.signature(program.module().forward).parameters
    return {**dict(zip(names, args, strict=False)), **kwargs}


def _dynamic_dims(value: Any) -> dict[int, Any] | None:
    if not isinstance(value, torch.Tensor):
        return None
    auto = torch.export.Dim.AUTO
    return {d: auto for d, size in enumerate(value.shape) if isinstance(size, torch.SymInt)} or None
