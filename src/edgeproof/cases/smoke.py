"""The smoke suite: one real model that every backend should carry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgeproof.plan.case import Case, Source

if TYPE_CHECKING:
    from edgeproof.worker.model import Model

CASES = (
    Case(
        id="smoke/mobilenet_v3_small",
        source=Source.BUILTIN,
        target="edgeproof.cases.smoke:mobilenet_v3_small",
        condition=True,
    ),
)


def cases() -> tuple[Case, ...]:
    """The suite as ``edgeproof run`` lists it."""
    return CASES


def mobilenet_v3_small() -> Model:
    """torchvision's MobileNetV3-small on one image of 224 x 224, without trained weights.

    It is conditioned and calibrated on sixteen other images.
    """
    import torch
    from torchvision.models import mobilenet_v3_small

    from edgeproof.worker.model import Model

    module = mobilenet_v3_small().eval()
    image = torch.randn(1, 3, 224, 224)
    batch = torch.randn(16, 3, 224, 224)
    return Model(
        module=module,
        args=(image,),
        calibration=[((picture.unsqueeze(0),), {}) for picture in batch],
        conditioning=((batch,), {}),
    )
