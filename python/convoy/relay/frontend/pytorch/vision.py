"""torchvision's operators."""

from __future__ import annotations

from typing import Any

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import const, scalar_like, value_of
from convoy.relay.frontend.pytorch.registry import Call, convert
from convoy.relay.op import nn, vision
from convoy.relay.op import tensor as R


@convert("roi_align", namespace="torchvision")
def roi_align(call: Call) -> Expr:
    """Sample regions; `aligned` moves them by half an element."""
    rois, scale = call["rois"], call.get("spatial_scale", 1.0)
    if call.get("aligned"):
        import numpy as np

        half = scalar_like(0.5 / scale, rois)
        shift = const(np.asarray([0, 1, 1, 1, 1], "float32"))
        rois = R.subtract(rois, R.multiply(shift, half))
    size = (call.get("pooled_height"), call.get("pooled_width"))
    ratio = call.get("sampling_ratio", -1)
    return vision.roi_align(call["input"], rois, size, scale, ratio if ratio > 0 else -1)


@convert("deform_conv2d", namespace="torchvision")
def deform_conv2d(call: Call) -> Expr:
    """Apply a deformable convolution.

    Raises:
        UnsupportedOp: A modulation mask.
    """
    mask = value_of(call["mask"]) if call.get("use_mask") else None
    if call.get("use_mask") and (mask is None or not (mask == 1).all()):
        raise call.error("a mask", "no mask", "Leave out modulation")
    from convoy.relay.frontend.common import infer_shape

    shape = infer_shape(call["weight"])
    pairs: dict[str, Any] = {
        n: (call.get(f"{short}_h"), call.get(f"{short}_w"))
        for n, short in (("strides", "stride"), ("padding", "pad"), ("dilation", "dilation"))
    }
    result = nn.deformable_conv2d(
        call["input"], call["offset"], call["weight"], **pairs,
        deformable_groups=call.get("offset_groups", call.get("groups", 1)),
        groups=call.get("groups", 1), channels=shape[0], kernel_size=shape[2:],
    )  # fmt: skip
    return nn.bias_add(result, call["bias"])


@convert("nms", namespace="torchvision")
def nms(call: Call) -> Any:
    """Refuse: the number of boxes that remain depends on their scores.

    Raises:
        UnsupportedOp: Always.
    """
    raise call.error(
        "a result whose shape depends on values",
        "a network up to its boxes and scores",
        "Return boxes and scores, and call torchvision.ops.nms on the results",
    )
