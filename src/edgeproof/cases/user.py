"""A user's own model as a case: a factory in a Python file, or a saved exported program."""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeproof.errors import UsageError
from edgeproof.given import given_path
from edgeproof.plan.case import Case, Source

if TYPE_CHECKING:
    from edgeproof.worker.model import Model

_SHAPE = (
    "it must return (module, inputs), (module, inputs, dynamic_shapes), or a dict with 'module', "
    "'args', 'kwargs', 'dynamic_shapes' and 'calibration', of which only 'module' must be there; "
    "inputs are a tensor, a tuple of positional or a dict of keyword inputs"
)


def case_from_argument(text: str, *, condition: bool = False) -> Case:
    """The case that ``FILE.py:FACTORY`` or ``MODEL.pt2`` names. Runs on the host, without torch.

    Raises ``UsageError`` for a file that is not there, is no Python, or defines no such factory.
    """
    if text.endswith(".pt2"):
        if condition:
            raise UsageError(
                f"--condition cannot be used with {text}: an exported program has no layers any more",
                mend="name the Python factory of the module, or leave --condition out",
            )
        path = _existing(text)
        return Case(id=f"user/{path.stem}", source=Source.PT2, target=str(path))
    file, separator, factory = text.rpartition(":")
    if not separator or not file.endswith(".py"):
        raise UsageError(
            f"{text!r} is neither FILE.py:FACTORY nor MODEL.pt2",
            mend="name a function that returns the module and its inputs: my_model.py:build",
        )
    path = _existing(file)
    if not factory.isidentifier():
        raise UsageError(f"{factory!r} cannot be the name of a factory in {file}")
    _check_defines(path, factory)
    return Case(
        id=f"user/{path.stem}.{factory}",
        source=Source.FILE,
        target=f"{path}:{factory}",
        condition=condition,
    )


def _existing(text: str) -> Path:
    path = given_path(text)
    if not path.is_file():
        raise UsageError(f"there is no file {text}", mend="check the path; it is taken from here")
    return path.resolve()


def _check_defines(path: Path, factory: str) -> None:
    """Refuse early what cannot work, so that no worker has to start to find a misspelt name."""
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except (SyntaxError, ValueError) as problem:
        raise UsageError(f"{path} is not valid Python: {problem}") from None
    except OSError as problem:
        raise UsageError(
            f"{path} cannot be read: {problem.strerror}", mend="check its permissions"
        ) from None
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    defined = [n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    imports = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    brought = {a.asname or a.name for n in imports for a in n.names}
    if factory not in {*defined, *names, *brought} and "*" not in brought:
        raise UsageError(
            f"{path} defines no {factory!r}",
            mend=f"it defines {', '.join(defined)}" if defined else "it defines no function",
        )


def build_from_file(target: str) -> Model:
    """Call the factory of ``/path/file.py:FACTORY`` and read what it returns.

    The file's folder is importable while it runs, as when Python is given the file. Raises
    ``TypeError`` when what comes back is no model with inputs, and whatever the factory raises.
    """
    file, _, factory = target.rpartition(":")
    path = Path(file)
    sys.path.insert(0, str(path.parent))
    # A file may be called what a module is called that others import: copy.py, torch.py.
    name = path.stem if path.stem not in sys.modules else f"{path.stem} (of the user)"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TypeError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return model_from(getattr(module, factory)(), made_by=f"{path.name}:{factory}")


def model_from(made: Any, *, made_by: str) -> Model:
    """The model in what a factory returned. Raises ``TypeError`` that says what it must return."""
    import torch

    from edgeproof.worker.model import Model

    if isinstance(made, Mapping):
        unknown = set(made) - {"module", "args", "kwargs", "dynamic_shapes", "calibration"}
        if unknown:
            raise TypeError(f"{made_by} returned a dict with {sorted(unknown)}; {_SHAPE}")
        module, args, kwargs = made.get("module"), made.get("args", ()), made.get("kwargs", {})
        shapes, calibration = made.get("dynamic_shapes"), made.get("calibration", ())
    elif isinstance(made, tuple) and len(made) in (2, 3):
        module, inputs, shapes = made if len(made) == 3 else (*made, None)
        args, kwargs = _positional_and_keyword(inputs)
        calibration = ()
    else:
        many = f" of {len(made)}" if isinstance(made, tuple) else ""
        raise TypeError(f"{made_by} returned a {type(made).__name__}{many}; {_SHAPE}")
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"{made_by} gave a {type(module).__name__} as the module; {_SHAPE}")
    if isinstance(args, list):
        args = tuple(args)
    if not isinstance(args, tuple) or not isinstance(kwargs, Mapping):
        raise TypeError(f"{made_by} gave inputs of type {type(args).__name__}; {_SHAPE}")
    return Model(
        module=module,
        args=args,
        kwargs=dict(kwargs),
        dynamic_shapes=shapes,
        calibration=[_positional_and_keyword(inputs) for inputs in calibration],
    )


def _positional_and_keyword(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    import torch

    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    if (
        isinstance(inputs, tuple)
        and len(inputs) == 2
        and isinstance(inputs[0], tuple)
        and (isinstance(inputs[1], Mapping) and all(isinstance(key, str) for key in inputs[1]))
    ):
        return inputs[0], dict(inputs[1])
    return (tuple(inputs) if isinstance(inputs, list) else inputs), {}


def build_from_pt2(target: str) -> Model:
    """Load a program saved with ``torch.export.save`` and its example inputs.

    Raises ``ValueError`` when the file cannot be read as one or holds no example inputs.
    """
    import torch

    from edgeproof.worker.model import Model
    from edgeproof.worker.points import dynamic_shapes_of

    try:
        program = torch.export.load(target)
    except Exception as problem:
        raise ValueError(
            f"{target} cannot be loaded as an exported program ({type(problem).__name__}: {problem}); "
            "write it with torch.export.save under the torch of the subject"
        ) from problem
    if program.example_inputs is None:
        raise ValueError(f"{target} holds no example inputs; export it from a module with inputs")
    args, kwargs = program.example_inputs
    return Model(
        module=program.module(),
        args=args,
        kwargs=kwargs or {},
        dynamic_shapes=dynamic_shapes_of(program, (args, kwargs or {})),
        program=program,
    )
