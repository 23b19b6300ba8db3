"""Post-training quantization on the exported graph, which every int8 flow here shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgeproof.worker.model import Model


def quantize(model: Model, quantizer: Any, *, fold: bool = True) -> Model:
    """The model with its graph annotated by ``quantizer``, calibrated and converted.

    The result still takes and gives float tensors; quantize and dequantize nodes stand between.
    ``fold`` replaces weights by their quantized values, which OpenVINO's own recipe leaves out.
    """
    import torch
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    module = model.export().module()
    state = {name: buffer.detach().clone() for name, buffer in module.named_buffers()}
    prepared = prepare_pt2e(module, quantizer)
    calibrated = model.replace(prepared)
    for inputs in model.calibration:
        calibrated(inputs)
    with torch.no_grad():
        for name, buffer in prepared.named_buffers():
            if name in state:  # calibration is no use of the model: its state starts as it was
                buffer.copy_(state[name])
    converted = convert_pt2e(prepared, fold_quantize=fold)
    return model.replace(converted, quantized_nodes=_count(converted))


def _count(converted: Any) -> int:
    """How many nodes quantize or dequantize; not those that only look for a scale."""
    names = [getattr(node.target, "__name__", "") for node in converted.graph.nodes]
    return sum(name.startswith(("quantize_", "dequantize_")) for name in names)
