"""Rules of operators that name their layout: convolutions, pooling, resizing."""

from __future__ import annotations

from collections.abc import Sequence

from convoy.relay.attrs import Attrs
from convoy.relay.transform.layouts.names import axes, factor, index, is_convertible
from convoy.relay.transform.layouts.rules.rule import (
    InferCorrectLayoutOutput,
    Layouts,
    rule_for,
    with_changes,
)
from convoy.relay.types import Type

_CONVOLUTIONS = tuple(
    f"{kind}{rank}d{end}"
    for kind in ("nn.conv", "qnn.conv")
    for rank in (1, 2, 3)
    for end in ("", "_transpose")
)


@rule_for(*_CONVOLUTIONS, "nn.contrib_conv2d_NCHWc", "nn.contrib_depthwise_conv2d_NCHWc")
def _convolution(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    given = [attrs["data_layout"], attrs["kernel_layout"], *["C"] * (len(old) - 2)]
    return InferCorrectLayoutOutput(given, [attrs["out_layout"] or attrs["data_layout"]], attrs)


@rule_for("nn.deformable_conv2d")
def _deformable(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    data = attrs["data_layout"]
    given = [data, data, attrs["kernel_layout"]]
    return InferCorrectLayoutOutput(given, [attrs["out_layout"] or data], attrs)


_POOLS = (
    *(f"nn.{kind}_pool{rank}d" for kind in ("max", "avg") for rank in (1, 2, 3)),
    *(f"nn.adaptive_{kind}_pool{rank}d" for kind in ("max", "avg") for rank in (1, 2, 3)),
    "nn.global_max_pool2d", "nn.global_avg_pool2d", "qnn.avg_pool2d", "image.resize1d",
    "image.resize2d", "image.resize3d", "vision.roi_align", "vision.roi_pool",
)  # fmt: skip


@rule_for(*_POOLS)
def _pool(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    """Follow the input to channels first or last, unless the layout of the result is given."""
    found = attrs["layout"]
    spatial = "".join(a for a in axes(found) if a not in "NC")
    unchanged = old[0] in (None, found)  # else a script asked for this layout
    if unchanged and not attrs.get("out_layout") and new and is_convertible(new[0] or "", found):
        wanted = new[0] or found
        is_known = axes(wanted) in ("NC" + spatial, f"N{spatial}C")
        if is_known and all(factor(wanted, a) == 1 for a in spatial):
            found = wanted
            attrs = with_changes(attrs, layout=found)
    return InferCorrectLayoutOutput([found, *["C"] * (len(old) - 1)], [found], attrs)


@rule_for("vision.roi_align", "vision.roi_pool")
def _roi(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    return InferCorrectLayoutOutput([attrs["layout"], "NC"], [attrs["layout"]], attrs)


@rule_for("nn.upsampling", "nn.upsampling3d")
def _upsampling(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    """Follow an input whose spatial axes stay where they are."""
    found = attrs["layout"]
    if new and new[0] and is_convertible(new[0], found):
        spatial = [a for a in axes(found) if a not in "NC"]
        if all(index(new[0], a) == index(found, a) and factor(new[0], a) == 1 for a in spatial):
            found = new[0]
            attrs = with_changes(attrs, layout=found)
    return InferCorrectLayoutOutput([found, *[""] * (len(old) - 1)], [found], attrs)


@rule_for("layout_transform")
def _layout_transform(
    attrs: Attrs, new: Layouts | None, old: Layouts, types: Sequence[Type]
) -> InferCorrectLayoutOutput:
    """Start from the layout that the input has now."""
    source, target = attrs["src_layout"], attrs["dst_layout"]
    if new and new[0] and is_convertible(new[0], target):
        source = new[0]
        attrs = with_changes(attrs, src_layout=source)
    return InferCorrectLayoutOutput([source], [target], attrs)
