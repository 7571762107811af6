"""Pooling, flattening and padding."""

from __future__ import annotations

from convoy.relay.infer.nn_conv import paddings
from convoy.relay.infer.rules import Inputs, is_int, rule, same_dim
from convoy.relay.types import Any, Dim, TensorType, Type

_SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


def _pool(call: Inputs, rank: int) -> TensorType:
    """out = (in + padding - ((k - 1) * dilation + 1)) / stride + 1, rounded by ceil_mode."""
    attrs, spatial = call.attrs, _SPATIAL[rank]
    layout = call.layout(attrs["layout"], "NC" + spatial)
    data = call.tensor(0, len(layout.parts))
    out_layout = attrs["out_layout"]
    if out_layout and out_layout != attrs["layout"]:
        raise call.error(f"out_layout='{out_layout}'", f"'{attrs['layout']}' or none")
    pool, strides = call.positive("pool_size", rank), call.positive("strides", rank)
    dilation = call.positive("dilation", rank)
    shape = list(data.shape)
    for i, (before, after) in enumerate(paddings(call, rank)):
        at = layout.index(spatial[i])
        size = shape[at]
        if not isinstance(size, int):
            shape[at] = Any()
            continue
        room = size + before + after - ((pool[i] - 1) * dilation[i] + 1)
        if room < 0:
            raise call.error(
                f"a window of {pool[i]} over {size} along {spatial[i]}", "a smaller one"
            )
        if attrs["ceil_mode"]:
            room += strides[i] - 1
        shape[at] = room // strides[i] + 1
    return TensorType(shape, data.dtype)


@rule("nn.max_pool1d", "nn.avg_pool1d")
def pool1d(call: Inputs) -> Type:
    call.count(1)
    return _pool(call, 1)


@rule("nn.max_pool2d", "nn.avg_pool2d")
def pool2d(call: Inputs) -> Type:
    call.count(1)
    return _pool(call, 2)


@rule("nn.max_pool3d", "nn.avg_pool3d")
def pool3d(call: Inputs) -> Type:
    call.count(1)
    return _pool(call, 3)


@rule("nn.max_pool2d_grad", "nn.avg_pool2d_grad")
def pool2d_grad(call: Inputs) -> Type:
    """The gradient of the pooled tensor (argument 0) carried back to the data (argument 1)."""
    call.count(2)
    return call.tensor(1)


@rule("nn.global_max_pool2d", "nn.global_avg_pool2d")
def global_pool2d(call: Inputs) -> Type:
    call.count(1)
    return _resized(call, "HW", (1, 1))


def _resized(call: Inputs, spatial: str, size: tuple[Dim, ...]) -> Type:
    layout = call.layout(call.attrs["layout"], "NC" + spatial)
    data = call.tensor(0, len(layout.parts))
    shape = list(data.shape)
    for axis, out in zip(spatial, size, strict=False):
        shape[layout.index(axis)] = out
    return TensorType(shape, data.dtype)


@rule(*(f"nn.adaptive_{kind}_pool{rank}d" for kind in ("avg", "max") for rank in (1, 2, 3)))
def adaptive_pool(call: Inputs) -> Type:
    """The output has `output_size`; none keeps the input's size, one value is for all axes."""
    call.count(1)
    rank = int(call.name[-2])
    size = call.attrs["output_size"]
    if not size:
        return call.tensor(0, 2 + rank)
    size = call.ints("output_size")
    if len(size) not in (1, rank) or any(s <= 0 for s in size):
        raise call.error(f"output_size={list(size)}", f"1 or {rank} values over zero")
    return _resized(call, _SPATIAL[rank], size * rank if len(size) == 1 else size)


@rule("nn.batch_flatten")
def batch_flatten(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    if not data.shape:
        raise call.error("a scalar", "a tensor")
    rest: Dim = 1
    for size in data.shape[1:]:
        rest = rest * size if is_int(rest, size) else Any()  # type: ignore[operator]
    return TensorType((data.shape[0], rest), data.dtype)


@rule("nn.pad", "nn.mirror_pad")
def pad(call: Inputs) -> Type:
    call.count(2 if call.name == "nn.pad" else 1)
    data = call.tensor(0)
    widths = call.attrs["pad_width"]
    ok = widths is not None and len(widths) == len(data.shape)
    if not ok or not all(isinstance(w, tuple) and len(w) == 2 and is_int(*w) for w in widths):
        raise call.error(f"pad_width={widths}", f"{len(data.shape)} pairs of integers")
    if call.name == "nn.pad":
        fill = call.tensor(1)
        if fill.shape not in ((), (1,)):
            raise call.error(f"a fill value of type {fill}", "a scalar")
    shape = [
        d + b + a if isinstance(d, int) else d
        for d, (b, a) in zip(data.shape, widths, strict=False)
    ]
    if any(isinstance(d, int) and d < 0 for d in shape):
        raise call.error(f"pad_width={widths} of {data}", "a result of at least no elements")
    return TensorType(shape, data.dtype)


@rule("nn.upsampling")
def upsampling(call: Inputs) -> Type:
    call.count(1)
    layout = call.layout(call.attrs["layout"], "NCHW")
    data = call.tensor(0, len(layout.parts))
    shape = list(data.shape)
    for axis, scale in (("H", call.attrs["scale_h"]), ("W", call.attrs["scale_w"])):
        size = shape[layout.index(axis)]
        if not 0 < scale < 1e6:
            raise call.error(f"scale_{axis.lower()}={scale}", "a scale over zero")
        # TVM rounds half to even.
        shape[layout.index(axis)] = round(size * scale) if isinstance(size, int) else Any()
    return TensorType(shape, data.dtype)


@rule("nn.depth_to_space", "nn.space_to_depth")
def depth_space(call: Inputs) -> Type:
    call.count(1)
    layout = call.layout(call.attrs["layout"], "NCHW")
    data = call.tensor(0, 4)
    block = call.attrs.get_int("block_size")
    if block <= 0:
        raise call.error(f"block_size={block}", "a value over zero")
    n, c, h, w = layout.to_axes(data.shape, "NCHW")
    down = call.name == "nn.space_to_depth"
    for size, part in ((h, block), (w, block)) if down else ((c, block * block),):
        if isinstance(size, int) and not same_dim(size % part, 0):
            raise call.error(f"{data} with block_size={block}", f"multiples of {part}")

    def scaled(size: Dim, times: int, over: int) -> Dim:
        return size * times // over if isinstance(size, int) else Any()

    square = block * block
    if down:
        out = (n, scaled(c, square, 1), scaled(h, 1, block), scaled(w, 1, block))
    else:
        out = (n, scaled(c, 1, square), scaled(h, block, 1), scaled(w, block, 1))
    return TensorType(layout.from_axes(out, "NCHW"), data.dtype)
