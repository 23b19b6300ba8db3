"""Apple's Core AI for ExecuTorch: a lowering that computes right, and a delegate that runs on Linux.

Usable by itself, in an environment with executorch, torch, coreai-core, coreai-torch and (to quantize)
coreai-opt::

    from edgeproof.coreai import install_runtime, lower

    install_runtime()
    program = lower(torch.export.export(model, inputs)).to_executorch()
    method = Runtime.get().load_program(program.buffer).load_method("forward")
    outputs = method.execute(inputs)

Names are imported when they are asked for: to import this package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgeproof.coreai.lowering import compile_config, default_passes, lower
    from edgeproof.coreai.partition import CoreAIPartitioner
    from edgeproof.coreai.runtime import (
        CacheStats,
        DelegateError,
        cache_stats,
        install_runtime,
        last_error,
    )

__all__ = [
    "CacheStats",
    "CoreAIPartitioner",
    "DelegateError",
    "cache_stats",
    "compile_config",
    "default_passes",
    "install_runtime",
    "last_error",
    "lower",
]

_HOMES = {
    "CoreAIPartitioner": "partition",
    **dict.fromkeys(("compile_config", "default_passes", "lower"), "lowering"),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES.get(name, "runtime")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)
