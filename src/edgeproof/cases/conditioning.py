"""Make an untrained model worth comparing.

As PyTorch initialises it, a deep network in eval mode fades: MobileNetV3's logits are near 1e-10, zeros in
half precision, and any answer passes any usual tolerance. Here normalisation layers get the statistics
of data, and linear and convolution weights are scaled so that every activation is of order one (the idea
of layer-sequential unit variance, Mishkin and Matas, "All you need is a good init", 2016).

The statistics are pooled over a layer's channels. A mean and a variance for each channel would make an
untrained network chaotic, since batch normalisation multiplies a small difference at every layer (Yang et
al., "A mean field theory of batch normalization", 2019): MobileNetV3 then gives 14 dB in int8 whatever
the backend does, with pooled statistics 24 dB, as trained networks do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from edgeproof.worker.model import Inputs


def condition(module: torch.nn.Module, inputs: Inputs) -> None:
    """Condition ``module`` in place by one forward pass over ``inputs`` (a batch of several is best).

    Hooks act in the order in which layers run, so each sees what the layers before it, already
    conditioned, give it.
    """
    import torch
    from torch.nn.modules.batchnorm import _NormBase
    from torch.nn.modules.conv import _ConvNd

    def take_statistics(layer: Any, args: tuple[torch.Tensor, ...]) -> None:
        if layer.running_mean is None:
            return
        layer.running_mean.fill_(args[0].mean())
        layer.running_var.fill_(args[0].var(unbiased=False))

    def scale_weights(layer: Any, args: Any, output: torch.Tensor) -> torch.Tensor:
        bias = layer.bias
        if bias is not None and isinstance(layer, _ConvNd):
            bias = bias.view(-1, *[1] * (layer.weight.dim() - 2))
        products = output if bias is None else output - bias
        spread = products.std()
        if not (torch.isfinite(spread) and spread > 0):
            return output
        layer.weight.div_(spread)
        products = products / spread
        return products if bias is None else products + bias

    hooks = []
    for layer in module.modules():
        if isinstance(layer, _NormBase):
            hooks.append(layer.register_forward_pre_hook(take_statistics))
        elif isinstance(layer, (torch.nn.Linear, _ConvNd)):
            hooks.append(layer.register_forward_hook(scale_weights))
    args, kwargs = inputs
    try:
        with torch.no_grad():
            module(*args, **kwargs)
    finally:
        for hook in hooks:
            hook.remove()
