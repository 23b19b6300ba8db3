"""The load-time options of the Core AI delegate, under the names that upstream's delegate gives them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgeproof.coreai.runtime.errors import Code, DelegateError

# What coreai.runtime can compute on where it is not the operating system's own.
_UNITS_HERE = ("cpu", "cpu_only")
_UNITS_OF_APPLE = ("gpu", "neural_engine", "ane", "cpu_and_gpu", "cpu_and_ne", "all")


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """``cache_dir`` is where specialized models are kept; ``None`` for the one install_runtime() was given.

    ``share_model`` lets delegates of the same asset, in this process, use one loaded model.
    """

    cache_dir: Path | None = None
    share_model: bool = False


def parse(given: Mapping[str, Any]) -> LoadOptions:
    """Read what was given to ``Module::load``. Raises ``DelegateError`` for what cannot be honoured."""
    known: dict[str, type] = {
        "coreai_cache_dir": str,
        "coreai_compute_unit": str,
        "coreai_expect_frequent_reshapes": bool,
        "coreai_share_multifunction_model": bool,
    }
    for name, value in given.items():
        if name not in known:
            raise _refused(f"there is no option {name!r} (there are {', '.join(known)})")
        if not isinstance(value, known[name]):
            raise _refused(
                f"option {name} is a {known[name].__name__}, given was {value!r}, "
                f"a {type(value).__name__}"
            )
    _check_unit(given.get("coreai_compute_unit", ""))
    # coreai_expect_frequent_reshapes trades memory for speed when shapes change, where a model is
    # specialized for a shape. Here it is specialized once, for all shapes: the wish is granted as it is.
    folder = given.get("coreai_cache_dir", "")
    return LoadOptions(
        cache_dir=Path(folder).expanduser().absolute() if folder else None,
        share_model=given.get("coreai_share_multifunction_model", False),
    )


def _check_unit(unit: str) -> None:
    if not unit or unit in _UNITS_HERE:
        return
    if unit in _UNITS_OF_APPLE:
        raise _refused(
            f"coreai_compute_unit {unit!r}: on {sys.platform} Core AI computes on the CPU alone; "
            f"give {' or '.join(_UNITS_HERE)}, or leave it out"
        )
    raise _refused(
        f"there is no coreai_compute_unit {unit!r}; here it is {' or '.join(_UNITS_HERE)}"
    )


def _refused(why: str) -> DelegateError:
    return DelegateError(why, code=Code.INVALID_ARGUMENT)
