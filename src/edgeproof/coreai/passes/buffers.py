"""Buffers that are set to a constant, to another buffer, or to an input as it is."""

from __future__ import annotations

import torch
from executorch.exir.pass_base import ExportedProgramPassBase, ExportedProgramPassResult
from torch.export.exported_program import ExportedProgram
from torch.export.graph_signature import OutputKind

from edgeproof.coreai.graph import in_dialect, is_edge, rename_outputs


class CopyToBuffersPass(ExportedProgramPassBase):  # type: ignore[misc]
    """Sets a buffer to a copy of what nothing computes, which ExecuTorch does not write back."""

    def call(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        """Change the program's graph in place."""
        output = exported_program.graph.output_node()
        results = list(output.args[0])
        copy = in_dialect(torch.ops.aten.clone.default, is_edge(exported_program.graph_module))
        modified = False
        for index, spec in enumerate(exported_program.graph_signature.output_specs):
            value = results[index]
            if spec.kind is not OutputKind.BUFFER_MUTATION or value.op != "placeholder":
                continue
            with exported_program.graph.inserting_before(output):
                results[index] = exported_program.graph.call_function(copy, (value,))
            results[index].meta["val"] = value.meta["val"].clone()
            modified = True
        output.args = (tuple(results),)
        rename_outputs(exported_program)
        return ExportedProgramPassResult(exported_program, modified)
