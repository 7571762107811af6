"""Regions of interest and detection."""

from __future__ import annotations

import numpy as np

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import cast, const, unsqueeze
from convoy.relay.frontend.onnx.registry import Node, convert
from convoy.relay.op import tensor as R
from convoy.relay.op import vision


@convert("RoiAlign")
def roi_align(node: Node) -> Expr:
    """Sample regions; `half_pixel`, the default since opset 16, moves them by half an element."""
    if node.attr("mode", "avg") != "avg":  # ONNX takes the maximum before it interpolates
        raise node.error("mode 'max'", "'avg'")
    scale = node.attr("spatial_scale", 1.0)
    default = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    rois = node[1]
    if node.attr("coordinate_transformation_mode", default) == "half_pixel":
        rois = R.subtract(rois, const(np.asarray(0.5 / scale, node.dtype(1))))
    batch = unsqueeze(cast(node[2], node.dtype(1)), [1])
    size = (node.attr("output_height", 1), node.attr("output_width", 1))
    return vision.roi_align(
        node[0],
        R.concatenate([batch, rois], axis=1),
        size,
        scale,
        node.attr("sampling_ratio", 0) or -1,
    )


@convert("NonMaxSuppression")
def non_max_suppression(node: Node) -> Expr:
    """Refuse: the number of boxes that remain depends on their scores."""
    raise node.error(
        "a result whose shape depends on values",
        "a network up to its boxes and scores",
        "Cut the model before this node (onnx.utils.extract_model) and run it on the CPU",
    )
