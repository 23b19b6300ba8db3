"""A model with its inputs on its way through the stages."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

Inputs = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Model:
    """A module, the inputs it is exported with, and what may vary about them.

    ``args`` and ``kwargs`` are the example inputs, nested as the module takes them; ``dynamic_shapes``
    is what ``torch.export.export`` takes. ``calibration`` are inputs for quantization, at least one;
    ``conditioning`` are those an untrained model is conditioned on, the example ones unless given.
    ``program`` is set when the model came exported already (a ``.pt2`` file). ``quantized_nodes`` is how
    many nodes or weights of its graph a flow quantized, ``None`` where no one counted.
    """

    module: torch.nn.Module
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    dynamic_shapes: Any = None
    calibration: Sequence[Inputs] = ()
    conditioning: Inputs | None = None
    program: torch.export.ExportedProgram | None = None
    quantized_nodes: int | None = None

    @property
    def inputs(self) -> Inputs:
        """The example inputs as one value."""
        return self.args, dict(self.kwargs)

    def __post_init__(self) -> None:
        if not self.calibration:
            object.__setattr__(self, "calibration", (self.inputs,))

    def __call__(self, inputs: Inputs | None = None) -> Any:
        """Run the module eagerly on fresh copies of the inputs, without gradients."""
        args, kwargs = cloned(inputs or self.inputs)
        with torch.no_grad():
            return self.module(*args, **kwargs)

    def export(self) -> torch.export.ExportedProgram:
        """The module as an exported program; the file's own where it came as one."""
        if self.program is not None:
            return self.program
        with torch.no_grad():
            return torch.export.export(
                self.module,
                self.args,
                dict(self.kwargs) or None,
                dynamic_shapes=self.dynamic_shapes,
            )

    def replace(self, module: torch.nn.Module, *, quantized_nodes: int | None = None) -> Model:
        """The same inputs for another module, made from this one."""
        return replace(self, module=module, program=None, quantized_nodes=quantized_nodes)

    def copied(self) -> Model:
        """A model whose module no one else can change."""
        return replace(self, module=copy.deepcopy(self.module))

    def cast(self, dtype: torch.dtype) -> Model:
        """A copy that holds, takes and computes floats in ``dtype``."""
        args, kwargs = floats_to(self.inputs, dtype)
        module = copy.deepcopy(self.module).to(dtype)
        return replace(self, module=module, args=args, kwargs=kwargs, program=None)

    def positional_args(self, inputs: Inputs | None = None) -> tuple[Any, ...]:
        """All inputs by position, the example ones unless others are given, for backends whose own
        export takes nothing else.

        Raises ``ValueError`` where a keyword input has no position.
        """
        args, kwargs = inputs or self.inputs
        if not kwargs:
            return args
        bound = inspect.signature(self.module.forward).bind(*args, **kwargs)
        if bound.kwargs:
            raise ValueError(f"inputs {sorted(bound.kwargs)} can be passed by keyword only")
        return bound.args


def cloned(inputs: Inputs) -> Inputs:
    """Copies of all tensors with their layouts kept, since a module may write to its inputs."""
    return _map_tensors(inputs, lambda t: t.detach().clone())


def floats_to(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    """The inputs with their floating-point tensors in ``dtype``."""
    return _map_tensors(inputs, lambda t: t.to(dtype) if t.is_floating_point() else t)


def other_inputs(inputs: Inputs, *, seed: int = 0) -> Inputs | None:
    """Inputs of the same kind but with other values, or ``None`` when no tensor has two values.

    Elements are shuffled, floats also scaled, so that each stays in a range it can be in (an index
    stays a valid index). Another ``seed`` gives others.
    """
    changed = False
    order = torch.Generator().manual_seed(seed)

    def move(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal changed
        shuffle = torch.randperm(tensor.numel(), generator=order)
        moved = tensor.flatten()[shuffle].view(tensor.shape)
        if tensor.is_floating_point():
            moved = moved * 0.75
        changed = changed or not torch.equal(moved, tensor)
        return moved

    moved = _map_tensors(inputs, move)
    return moved if changed else None


def wider_inputs(inputs: Inputs, *, seed: int = 0) -> Inputs | None:
    """Inputs whose floats are drawn from a normal distribution three wide, whatever the example's are.

    Integers and booleans, which may be indices or masks, are shuffled. ``None`` when nothing changed.
    """
    generator = torch.Generator().manual_seed(seed)
    shuffled = other_inputs(inputs, seed=seed) or inputs

    def widen(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor
        drawn = torch.randn(tensor.shape, generator=generator, dtype=torch.float32)
        return torch.empty_like(tensor).copy_(3 * drawn)

    wider = _map_tensors(shuffled, widen)
    leaves = zip(pytree.tree_leaves(inputs), pytree.tree_leaves(wider), strict=True)
    same = all(torch.equal(a, b) for a, b in leaves if isinstance(a, torch.Tensor))
    return None if same else wider


def _map_tensors(inputs: Inputs, change: Callable[[torch.Tensor], torch.Tensor]) -> Inputs:
    mapped: Inputs = pytree.tree_map_only(torch.Tensor, change, inputs)
    return mapped


def flat_outputs(outputs: Any) -> list[tuple[str, Any]]:
    """The leaves of nested outputs in the order of a program's outputs, each with its path."""
    leaves, _ = pytree.tree_flatten_with_path(outputs)
    return [(pytree.keystr(path), leaf) for path, leaf in leaves]
