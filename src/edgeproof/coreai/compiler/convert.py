"""Converts an edge program to a Core AI program with coreai-torch."""

from __future__ import annotations

import contextlib
import copy
import io
from typing import Any

from executorch.backends.apple.coreai.passes.replace_copy_ops import (
    ReplaceCopyOpsWithFunctionalPass,
)
from executorch.exir.dialects.edge._ops import EdgeOpOverload
from torch.export.exported_program import ExportedProgram

from edgeproof.coreai.compiler.constants import named_by_content


def convert(edge_program: ExportedProgram, *, debug_info: bool) -> Any:
    """The ``coreai.authoring.AIProgram`` of a partition.

    With ``debug_info`` it holds the stack traces of the code that was exported, with paths of the machine
    it was exported on; without, it is the same on every machine.
    """
    from coreai_torch import TorchConverter
    from coreai_torch.debugging.debug_info import strip_debug_info

    converter = TorchConverter(
        mode=TorchConverter.Mode.DEBUG if debug_info else TorchConverter.Mode.RELEASE
    )
    with named_by_content(), contextlib.redirect_stdout(io.StringIO()):  # it shows a progress bar
        program = converter.add_exported_program(_to_aten(edge_program)).to_coreai()
    if not debug_info:
        strip_debug_info(program)
    return program


def _to_aten(edge_program: ExportedProgram) -> ExportedProgram:
    """The program with ATen's operators, which coreai-torch knows, for those of the edge dialect."""
    program = copy.deepcopy(edge_program)
    ReplaceCopyOpsWithFunctionalPass()(program.graph_module)
    for node in program.graph.nodes:
        if node.op == "call_function" and isinstance(node.target, EdgeOpOverload):
            node.target = node.target._op
    program.graph_module.recompile()
    return program
