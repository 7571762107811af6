"""Convolutions and transposed convolutions over one, two or three axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import InvalidModel
from ..call import Call, Value, converter
from .window import window

_SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


def _rank(call: Call) -> int:
    rank = call.rank() - 2
    if rank not in _SPATIAL:
        raise call.unsupported(f"of a tensor of {rank + 2} dimensions", "3, 4 or 5 dimensions")
    return rank


@converter("Conv")
def conv(call: Call) -> Value:
    rank = _rank(call)
    shape, group = call.shape(1), int(call.attrs.get("group", 1))
    channels = call.dims()[1]
    if shape[1] * group != channels or shape[0] % group:
        raise InvalidModel(
            f"Conv {call.name!r} of {channels} channels, with a filter of shape {shape} and "
            f"{group} groups",
            f"{shape[1] * group} channels",
        )
    w = window(call, shape[2:])
    return _with_bias(call, convolve(call, call.x(0), call.x(1), w, group), rank)


def convolve(call: Call, x: Any, weight: Any, w: Any, group: int) -> Value:
    """A convolution of expressions without bias."""
    rank = len(w.kernel)
    spatial = _SPATIAL[rank]
    return call.make(
        f"nn.conv{rank}d",
        x,
        weight,
        strides=list(w.strides),
        padding=w.padding,
        dilation=list(w.dilations),
        groups=group,
        data_layout="NC" + spatial,
        kernel_layout="OI" + spatial,
    )


def _with_bias(call: Call, result: Value, rank: int) -> Value:
    if not call.has(2):
        return result
    if call.builder.has("nn.bias_add"):
        return call.make("nn.bias_add", result, call.x(2))
    return call.do("Add", result, call.reshape(call.value(2), (1, -1, *(1,) * rank)))


@converter("ConvTranspose")
def conv_transpose(call: Call) -> Value:
    """The padding follows from ``output_shape`` where that is given."""
    rank, sizes = _rank(call), call.shape()[2:]
    kernel = call.shape(1)[2:]
    strides = tuple(call.attrs.get("strides", (1,) * rank))
    dilations = tuple(call.attrs.get("dilations", (1,) * rank))
    extra = list(call.attrs.get("output_padding", (0,) * rank))
    pads = list(call.attrs.get("pads", (0,) * (2 * rank)))
    before, after = pads[:rank], pads[rank:]
    auto = call.attrs.get("auto_pad", "NOTSET") or "NOTSET"
    wanted = call.attrs.get("output_shape")
    if wanted is None and auto in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [size * stride for size, stride in zip(sizes, strides, strict=True)]
    if auto == "VALID":
        before = after = [0] * rank
    full = [(sizes[i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 for i in range(rank)]
    if wanted is not None:
        for i in range(rank):
            total = full[i] + extra[i] - int(wanted[len(wanted) - rank + i])
            extra[i] += max(0, -total)  # further than the windows reach
            total = max(0, total)
            # Of an odd total SAME_UPPER has more behind, all others more before.
            before[i] = total // 2 if auto == "SAME_UPPER" else total - total // 2
            after[i] = total - before[i]
    return _with_bias(call, _transposed(call, strides, dilations, before, after, extra), rank)


def _transposed(
    call: Call, strides: Any, dilations: Any, before: list[int], after: list[int], extra: list[int]
) -> Value:
    """The windows summed up, then cropped and extended by zeros: TVM takes no negative padding,
    and none behind the result of a stride or more."""
    rank = len(before)
    spatial = _SPATIAL[rank]
    pads, more = [*before, *after], [0] * rank
    crop = [0] * rank
    for i in range(rank):
        behind = pads[rank + i] - extra[i]
        if behind >= 0:
            pads[rank + i] = behind
        else:
            pads[rank + i], more[i] = 0, -behind
        crop[i] = more[i] if more[i] >= strides[i] else 0
        more[i] -= crop[i]
    result = call.make(
        f"nn.conv{rank}d_transpose",
        call.x(0),
        call.x(1),
        strides=list(strides),
        padding=pads,
        output_padding=more,
        dilation=list(dilations),
        groups=int(call.attrs.get("group", 1)),
        data_layout="NC" + spatial,
        kernel_layout="IO" + spatial,
    )
    if any(crop):
        result = call.do("Pad", result, np.array([0, 0] + [0] * rank + [0, 0] + crop))
    return result


@converter("DeformConv")
def deform_conv(call: Call) -> Value:
    """Deformable convolution, (n, c, h, w): bilinear samples at shifted places, then a product."""
    if call.rank() != 4:
        raise call.unsupported(f"of a tensor of {call.rank()} dimensions", "4 dimensions")
    weight = call.shape(1)
    w = window(call, weight[2:])
    n, c, height, width = call.shape()
    oh, ow = w.output((height, width))
    group, parts = int(call.attrs.get("group", 1)), int(call.attrs.get("offset_group", 1))
    places = weight[2] * weight[3]
    base = np.zeros((places, 2, oh, ow), "float32")
    for p in range(places):
        ky, kx = divmod(p, weight[3])
        base[p, 0] = (np.arange(oh) * w.strides[0] - w.before[0] + ky * w.dilations[0])[:, None]
        base[p, 1] = (np.arange(ow) * w.strides[1] - w.before[1] + kx * w.dilations[1])[None, :]
    base = base.astype(call.const(0).dtype)
    offset = call.reshape(call.value(2), (n, parts, places, 2, oh, ow))
    at = call.do("Add", offset, base)
    y, x = (call.do("Gather", at, np.array(i), axis=3) for i in (0, 1))
    data = call.reshape(call.value(0), (n, parts, c // parts, height * width))
    flat = (n, parts, 1, places * oh * ow)
    total: Value = None
    y0, x0 = call.do("Floor", y), call.do("Floor", x)
    for dy in (0, 1):
        for dx in (0, 1):
            ys, xs = (call.do("Add", v, call.const(d)) for v, d in ((y0, dy), (x0, dx)))
            share: Value = None
            for at_, whole, size in ((y, ys, height), (x, xs, width)):
                near = call.do("Sub", call.const(1), call.do("Abs", call.do("Sub", at_, whole)))
                inside = call.do("And", call.do("GreaterOrEqual", whole, call.const(0)),
                                 call.do("Less", whole, call.const(size)))  # fmt: skip
                near = call.do("Where", inside, near, call.const(0))
                share = near if share is None else call.do("Mul", share, near)
            rows, columns = (
                call.do("Cast", call.do("Clip", v, call.const(0), call.const(s - 1)), to=7)
                for v, s in ((ys, height), (xs, width))
            )
            index = call.do("Add", call.do("Mul", rows, np.array(width)), columns)
            index = call.do("Expand", call.reshape(index, flat),
                            np.array([n, parts, c // parts, flat[-1]]))  # fmt: skip
            part = call.do("GatherElements", data, index, axis=3)
            part = call.do("Mul", part, call.reshape(share, flat))
            total = part if total is None else call.do("Add", total, part)
    if call.has(4):
        total = call.do("Mul", total, call.reshape(call.value(4), flat))
    columns = call.reshape(total, (n, group, c // group * places, oh * ow))
    filters = call.reshape(call.value(1), (group, weight[0] // group, weight[1] * places))
    result = call.reshape(call.do("MatMul", filters, columns), (n, weight[0], oh, ow))
    if call.has(3):
        result = call.do("Add", result, call.reshape(call.value(3), (1, -1, 1, 1)))
    return result
