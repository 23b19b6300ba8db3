"""Gives the large constants of a program names made of their content.

Core AI keeps them as resources beside the program, and names each by a hash that is seeded anew in every
process: the same model, exported twice, gives two assets. Names made here are the same everywhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import threading
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy

_RESOURCE = "dense_resource<"
_ALIGNMENT = 16
_lock = threading.Lock()


@contextlib.contextmanager
def named_by_content() -> Iterator[None]:
    """While it lasts, constants that become resources are named by the SHA-256 of their bytes.

    The function that makes them is replaced where coreai-torch and Core AI's own dialect look it up.
    """
    from coreai._compiler._mlir_libs._coreaiIR._bindings.mlir.dialects import coreai as bindings

    # Not by "from": the package has a function of that name as well.
    constant = importlib.import_module("coreai._compiler.dialects.coreai.constant")
    make = bindings.create_elements_attr

    def make_named(location: Any, type_: Any, content: Any) -> Any:
        made = make(location, type_, content)
        if not str(made).startswith(_RESOURCE) or not isinstance(content, numpy.ndarray):
            return made
        return _resource(content, type_)

    with (
        _lock,
        mock.patch.object(bindings, "create_elements_attr", make_named),
        mock.patch.object(constant, "create_elements_attr", make_named),
    ):
        yield


def _resource(content: numpy.ndarray[Any, Any], type_: Any) -> Any:
    from coreai._compiler.ir import DenseResourceElementsAttr

    plain = numpy.ascontiguousarray(content)
    # By its bytes: the buffer protocol knows no bfloat16 and no float8.
    data = plain.reshape(-1).view(numpy.uint8)
    return DenseResourceElementsAttr.get_from_buffer(
        data,
        f"constant_{hashlib.sha256(data).hexdigest()[:32]}",
        type_,
        alignment=_ALIGNMENT,
        context=type_.context,
    )
