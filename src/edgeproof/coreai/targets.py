"""Which operators the converter has a lowering for, and under which name it looks them up.

The converter's tables are keyed by ATen overload name (``add.Tensor``). ExecuTorch hands over edge
operators, which wrap the overload, and ``*_copy`` forms of views, which preprocessing turns back.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from coreai_torch._aten_to_core import _aten_to_core_resolver
from executorch.exir.dialects.edge._ops import EdgeOpOverload

from edgeproof.coreai.graph import overload_of


@functools.cache
def resolver_key(target: Any) -> str | None:
    """The converter's name for ``target``, ``None`` when it has no lowering for it.

    Examples: edge ``aten.add.Tensor`` -> ``add.Tensor``; edge ``aten.permute_copy.default`` ->
    ``permute.default``; ``operator.getitem`` -> ``getitem``.
    """
    aten = overload_of(target)
    name = getattr(aten, "__name__", None)
    if not name:
        return None
    namespace = getattr(aten, "namespace", None)
    if namespace in ("coreai", "coreaix"):
        return str(name)
    if name in _aten_to_core_resolver:
        return str(name)
    base, _, variant = name.partition(".")
    if not base.endswith("_copy") or not isinstance(target, EdgeOpOverload):
        return None
    packet = getattr(torch.ops.aten, base.removesuffix("_copy"), None)
    view = getattr(packet, variant or "default", None)
    key = getattr(view, "__name__", None)
    return str(key) if key in _aten_to_core_resolver else None
