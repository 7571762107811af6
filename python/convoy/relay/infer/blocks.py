"""Operators that take windows, blocks and regions out of tensors, and a few rare ones."""

from __future__ import annotations

from convoy.relay.infer.nn_conv import paddings
from convoy.relay.infer.rules import Inputs, broadcast, is_int, rule
from convoy.relay.infer.shape import constant_ints
from convoy.relay.types import Any, Dim, TensorType, Type


def _pairs(call: Inputs, field: str, count: int) -> list[tuple[int, int]]:
    """An attribute of `count` pairs of sizes."""
    value = call.attrs[field]
    if value is None or len(value) != count or any(len(pair) != 2 for pair in value):
        raise call.error(f"{field}={value}", f"{count} pairs")
    pairs = [(int(a), int(b)) for a, b in value]
    if any(min(pair) < 0 for pair in pairs):
        raise call.error(f"{field}={pairs}", "sizes of at least 0")
    return pairs


@rule("nn.dilate")
def dilate(call: Inputs) -> Type:
    """Values with gaps between them: (d - 1) * stride + 1 elements."""
    call.count(1)
    data = call.tensor(0)
    strides = call.positive("strides", len(data.shape))
    sizes = zip(data.shape, strides, strict=True)
    return TensorType(
        [(d - 1) * s + 1 if isinstance(d, int) else Any() for d, s in sizes], data.dtype
    )


def _blocks(call: Inputs, name: str) -> tuple[TensorType, tuple[int, ...], list[tuple[int, int]]]:
    """The tensor, the sizes of its blocks, and the pairs of attribute ``name``."""
    call.count(1)
    data = call.tensor(0)
    block = call.ints("block_shape")
    if len(block) >= len(data.shape) or min(block, default=1) < 1:
        raise call.error(f"block_shape={list(block)} of {data}", "fewer axes, sizes over zero")
    return data, block, _pairs(call, name, len(block))


@rule("nn.space_to_batch_nd")
def space_to_batch(call: Inputs) -> Type:
    data, block, pairs = _blocks(call, "paddings")
    batch, out = data.shape[0], list(data.shape)
    for i, (size, (before, after)) in enumerate(zip(block, pairs, strict=True), 1):
        dim = data.shape[i]
        if isinstance(dim, int):
            if (dim + before + after) % size:
                raise call.error(f"{dim + before + after} elements in blocks of {size}")
            out[i] = (dim + before + after) // size
        batch = batch * size if isinstance(batch, int) else Any()
    return TensorType([batch, *out[1:]], data.dtype)


@rule("nn.batch_to_space_nd")
def batch_to_space(call: Inputs) -> Type:
    data, block, pairs = _blocks(call, "crops")
    batch, out = data.shape[0], list(data.shape)
    for i, (size, (before, after)) in enumerate(zip(block, pairs, strict=True), 1):
        dim = data.shape[i]
        if isinstance(dim, int):
            out[i] = dim * size - before - after
            if dim * size - before - after < 0:
                raise call.error(f"crops={pairs} of {data}")
        if isinstance(batch, int) and batch % size:
            raise call.error(f"a batch of {batch} in blocks of {size}")
        batch = batch // size if isinstance(batch, int) else Any()
    return TensorType([batch, *out[1:]], data.dtype)


@rule("nn.upsampling3d")
def upsampling3d(call: Inputs) -> Type:
    call.count(1)
    layout = call.layout(call.attrs["layout"], "NCDHW")
    data = call.tensor(0, len(layout.parts))
    shape = list(data.shape)
    for axis in "DHW":
        scale, i = call.attrs[f"scale_{axis.lower()}"], layout.index(axis)
        if not 0 < scale < 1e6:
            raise call.error(f"scale_{axis.lower()}={scale}", "a number over zero")
        size = shape[i]
        shape[i] = round(size * scale) if isinstance(size, int) else Any()
    return TensorType(shape, data.dtype)


@rule("sliding_window")
def sliding_window(call: Inputs) -> Type:
    """The axes before `axis`, the number of windows, then the window."""
    call.count(1)
    data = call.tensor(0)
    axis = call.axis(call.attrs.get_int("axis"), len(data.shape))
    rest = data.shape[axis:]
    window, strides = (call.positive(f, len(rest)) for f in ("window_shape", "strides"))
    counts: list[Dim] = []
    for dim, size, stride in zip(rest, window, strides, strict=True):
        if isinstance(dim, int) and dim < size:
            raise call.error(f"a window of {size} in {dim} elements")
        counts.append((dim - size) // stride + 1 if isinstance(dim, int) else Any())
    return TensorType((*data.shape[:axis], *counts, *window), data.dtype)


@rule("invert_permutation")
def invert_permutation(call: Inputs) -> Type:
    call.count(1)
    return call.tensor(0, 1)


@rule("strided_set")
def strided_set(call: Inputs) -> Type:
    call.count(5)
    return call.tensor(0)


@rule("unravel_index")
def unravel_index(call: Inputs) -> Type:
    call.count(2)
    indices, shape = call.tensor(0), call.tensor(1, 1)
    if len(indices.shape) > 1:
        raise call.error(f"argument 0 is {indices}", "a scalar or a vector")
    return TensorType((shape.shape[0], *indices.shape), indices.dtype)


@rule("searchsorted")
def searchsorted(call: Inputs) -> Type:
    call.count(2)
    sequence, values = call.tensor(0), call.tensor(1)
    if len(sequence.shape) != 1 and sequence.shape[:-1] != values.shape[:-1]:
        raise call.error(f"{values} in {sequence}", "equal leading axes, or a vector")
    return TensorType(values.shape, call.attrs["dtype"])


@rule("adv_index")
def adv_index(call: Inputs) -> Type:
    """data[i, j, ...] with index tensors that broadcast together."""
    call.count(1)
    data, *indices = call.tensors(0)
    if not 1 <= len(indices) <= len(data.shape):
        raise call.error(f"{len(indices)} indices of {data}")
    shape: tuple[Dim, ...] | None = ()
    for index in indices:
        shape = broadcast(shape, index.shape) if shape is not None else None
    if shape is None:
        raise call.error(f"indices {', '.join(map(str, indices))}", "shapes that broadcast")
    return TensorType((*shape, *data.shape[len(indices) :]), data.dtype)


@rule("fixed_point_multiply")
def fixed_point_multiply(call: Inputs) -> Type:
    call.count(1)
    if call.tensor(0).dtype != "int32":
        raise call.error(f"a {call.tensor(0)}", "int32")
    return call.tensor(0)


@rule("nn.nll_loss")
def nll_loss(call: Inputs) -> Type:
    """predictions (n, c, ...), targets (n, ...), weights (c)."""
    call.count(3)
    predictions, targets = call.tensor(0), call.tensor(1)
    reduction = call.attrs["reduction"]
    if reduction not in ("none", "sum", "mean"):
        raise call.error(f"reduction='{reduction}'", "'none', 'sum' or 'mean'")
    return TensorType(targets.shape if reduction == "none" else (), predictions.dtype)


@rule("image.crop_and_resize")
def crop_and_resize(call: Inputs) -> Type:
    """Regions (n, 4) of pictures, all in one size."""
    call.count(3)
    layout = call.layout(call.attrs["layout"], "NCHW")
    data, boxes = call.tensor(0, len(layout.parts)), call.tensor(1, 2)
    shape = list(data.shape)
    shape[layout.index("N")] = boxes.shape[0]
    for axis, size in zip("HW", call.positive("crop_size", 2), strict=True):
        shape[layout.index(axis)] = size
    return TensorType(shape, call.out_dtype(data.dtype))


@rule("image.dilation2d")
def dilation2d(call: Inputs) -> Type:
    """A maximum of window plus weight, which has an (i, h, w) of its own."""
    call.count(2)
    layout = call.layout(call.attrs["data_layout"], "NCHW")
    kernel = call.layout(call.attrs["kernel_layout"], "IHW")
    data = call.tensor(0, 4)
    n, c, *size = layout.to_axes(data.shape, "NCHW")
    _, *window = kernel.to_axes(call.tensor(1, 3).shape, "IHW")
    strides, dilation = call.positive("strides", 2), call.positive("dilations", 2)
    out: list[Dim] = []
    for i, (before, after) in enumerate(paddings(call, 2)):
        if not is_int(size[i], window[i]):
            out.append(Any())
            continue
        room = int(size[i]) + before + after - (int(window[i]) - 1) * dilation[i] - 1  # type: ignore[arg-type]
        if room < 0:
            raise call.error(f"a window larger than {data}")
        out.append(room // strides[i] + 1)
    return TensorType(layout.from_axes((n, c, *out), "NCHW"), call.out_dtype(data.dtype))


@rule("vision.roi_align", "vision.roi_pool")
def roi(call: Inputs) -> Type:
    """Regions (n, 5) of pictures, all in one size."""
    call.count(2)
    layout = call.layout(call.attrs["layout"], "NCHW")
    data, rois = call.tensor(0, 4), call.tensor(1, 2)
    height, width = call.positive("pooled_size", 2)
    channels = layout.to_axes(data.shape, "NCHW")[1]
    return TensorType(
        layout.from_axes((rois.shape[0], channels, height, width), "NCHW"), data.dtype
    )


def static_slice(call: Inputs) -> tuple[tuple[int, ...], ...]:
    """Begin, end and strides of strided_set, which must be constants."""
    return tuple(constant_ints(call, i) for i in (2, 3, 4))
