"""Casts of constants, done once at lowering instead of at every call.

Exporting ``x + 2`` makes an int64 constant and a cast of it, which cannot be delegated: Core AI has at most
32 bits. The constant itself is cast.
"""

from __future__ import annotations

import torch
from executorch.exir.pass_base import ExportedProgramPassBase, ExportedProgramPassResult
from torch.export.exported_program import ExportedProgram
from torch.export.graph_signature import InputKind

from edgeproof.coreai.graph import fake, overload_name


class FoldConstantCastsPass(ExportedProgramPassBase):  # type: ignore[misc]
    """Constants that are only used cast to one other dtype, and only computed with, are kept in it."""

    def call(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        """The program without such casts; state that the program changes, or shares, is left alone."""
        signature = exported_program.graph_signature
        mutated = set(signature.buffers_to_mutate.values())
        placeholders = {n.name: n for n in exported_program.graph.nodes if n.op == "placeholder"}
        state, constants = dict(exported_program.state_dict), dict(exported_program.constants)
        targets = [spec.target for spec in signature.input_specs]
        output, modified = exported_program.graph.output_node(), False
        for spec in signature.input_specs:
            fixed = spec.kind == InputKind.CONSTANT_TENSOR or (
                spec.kind == InputKind.BUFFER and spec.target not in mutated
            )
            node = placeholders.get(getattr(spec.arg, "name", ""))
            if not fixed or node is None or not node.users or targets.count(spec.target) > 1:
                continue
            if any(
                overload_name(u) != "_to_copy.default"
                or set(u.kwargs) != {"dtype"}
                or output in u.users
                for u in node.users
            ):
                continue
            dtypes = {u.kwargs["dtype"] for u in node.users}
            holder = state if spec.target in state else constants
            value = holder.get(spec.target)
            if len(dtypes) != 1 or not isinstance(value, torch.Tensor):
                continue
            (dtype,) = dtypes
            holder[spec.target] = value.detach().to(dtype)
            node.meta["val"] = fake(node).to(dtype)
            for user in list(node.users):
                user.replace_all_uses_with(node)
                exported_program.graph.erase_node(user)
            modified = True
        if modified:
            exported_program._state_dict = state
            exported_program._constants = constants
            exported_program.graph_module.recompile()
        return ExportedProgramPassResult(exported_program, modified)
