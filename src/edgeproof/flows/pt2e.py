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

    prepared = prepare_pt2e(model.export().module(), quantizer)
    with torch.no_grad():
        for args, kwargs in model.calibration:
            prepared(*args, **kwargs)
    return model.replace(convert_pt2e(prepared, fold_quantize=fold))
