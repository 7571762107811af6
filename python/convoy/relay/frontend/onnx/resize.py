"""Resizing and sampling images."""

from __future__ import annotations

from typing import Any

from convoy.relay.ast import Expr
from convoy.relay.frontend.onnx.registry import Node, convert
from convoy.relay.frontend.resampling import Resize, resize
from convoy.relay.op import image


@convert("Upsample")
def upsample(node: Node) -> Expr:
    """Resize by factors, which are an attribute in opset 7 and an input in opset 9."""
    scales = node.attr("scales")
    if scales is None:
        scales = [float(s) for s in node.value(1)]
    return resize(node[0], _options(node, list(scales), None, range(node.rank()), "asymmetric",
                                    "floor"))  # fmt: skip


@convert("Resize")
def resize_10(node: Node) -> Expr:
    """Resize as of opset 10, which has factors alone."""
    scales = [float(s) for s in node.value(1)]
    return resize(node[0], _options(node, scales, None, range(node.rank()), "asymmetric", "floor"))


@convert("Resize", since=11)
def convert_resize(node: Node) -> Expr:
    """Resize to sizes or by factors, along all axes or those given."""
    scales = [float(s) for s in node.value(2).reshape(-1)] if node.get(2) is not None else None
    sizes = node.ints(3) if node.get(3) is not None else None
    axes = [node.axis(a) for a in node.attr("axes") or range(node.rank())]
    coordinates = node.attr("coordinate_transformation_mode", "half_pixel")
    rounding = node.attr("nearest_mode", "round_prefer_floor")
    if sizes:
        scales = None
    return resize(node[0], _options(node, scales, sizes, axes, coordinates, rounding))


def _options(
    node: Node, scales: Any, sizes: Any, axes: Any, coordinates: str, rounding: str
) -> Resize:
    shape, axes = node.shape(), list(axes)
    factors: dict[int, float] = {}
    if sizes:
        new = dict(zip(axes, sizes, strict=True))
        policy = node.attr("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            choose = min if policy == "not_larger" else max
            factor = choose(new[a] / shape[a] for a in axes)
            factors = dict.fromkeys(axes, factor)
            new = {a: int(factor * shape[a] + 0.5) for a in axes}
    elif scales:
        factors = dict(zip(axes, scales, strict=True))
        new = {a: int(shape[a] * f + 1e-6) for a, f in factors.items()}
    else:
        raise node.error("neither scales nor sizes", "one of them")
    regions = {}
    if coordinates == "tf_crop_and_resize":
        roi = node.value(1).reshape(-1)
        regions = {a: (float(roi[i]), float(roi[i + len(axes)])) for i, a in enumerate(axes)}
    mode = node.attr("mode", "nearest")
    if mode not in ("nearest", "linear", "bilinear", "cubic"):
        raise node.error(f"mode '{mode}'", "nearest, linear or cubic")
    known = (
        "half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "half_pixel_symmetric",
        "tf_crop_and_resize",
    )  # fmt: skip
    if coordinates not in known:
        raise node.error(f"coordinates '{coordinates}'", ", ".join(known))
    return Resize(
        new, factors, mode.removeprefix("bi"), coordinates, rounding,
        node.attr("cubic_coeff_a", -0.75), bool(node.attr("exclude_outside", 0)),
        bool(node.attr("antialias", 0)), regions, node.attr("extrapolation_value", 0.0),
    )  # fmt: skip


_METHODS = {
    "bilinear": "bilinear", "linear": "bilinear", "nearest": "nearest", "bicubic": "bicubic",
    "cubic": "bicubic",
}  # fmt: skip


@convert("GridSample")
def grid_sample(node: Node) -> Expr:
    """Sample at the places of a grid, whose last axis Relay has behind the batch."""
    from convoy.relay.frontend.common import transpose

    axes = node.rank() - 2
    if axes != 2:
        raise node.error(f"images of {axes} axes", "2")
    grid = transpose(node[1], (0, 3, 1, 2))
    return image.grid_sample(
        node[0],
        grid,
        method=_METHODS[node.attr("mode", "bilinear")],
        padding_mode=node.attr("padding_mode", "zeros"),
        align_corners=bool(node.attr("align_corners", 0)),
    )
