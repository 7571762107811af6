"""Operators of the domain com.microsoft that onnxruntime's optimizer of diffusion models writes."""

from __future__ import annotations

import dataclasses

from ..call import Call, Value, converter
from .microsoft import DOMAIN, channels_first, channels_last
from .normalization import group_norm


@converter("NhwcConv", domain=DOMAIN)
def nhwc_conv(call: Call) -> Value:
    """Channels are the last axis of the data, and of the filters, (k, r, s, c)."""
    x, weight = (channels_first(call, call.value(i), call.rank(i)) for i in (0, 1))
    y = call.do("Conv", x, weight, *call.inputs[2:], **call.attrs)
    return channels_last(call, y, call.rank())


@converter("GroupNorm", domain=DOMAIN)
def group_norm_activated(call: Call) -> Value:
    """Statistics of groups of channels, the last axis by default, and SiLU where asked for."""
    x, rank, last = call.value(0), call.rank(), bool(call.attrs.get("channels_last", 1))
    if last:
        x = channels_first(call, x, rank)
    weights = [call.cast(call.value(i), call.dtype()) for i in (1, 2)]
    attrs = {
        "num_groups": call.attrs["groups"],
        "epsilon": call.attrs.get("epsilon", 1e-5),
    }
    y = group_norm(dataclasses.replace(call, inputs=[x, *weights], attrs=attrs, version=21))
    if call.attrs.get("activation", 0):
        y = call.do("Mul", y, call.do("Sigmoid", y))
    return channels_last(call, y, rank) if last else y


@converter("SkipGroupNorm", domain=DOMAIN)
def skip_group_norm(call: Call) -> Value:
    """Results: the normalized sum of data, (n, h, w, c), skip and bias, and the sum itself."""
    if not call.attrs.get("channels_last", 1):
        raise call.unsupported("with channels_last=0", "channels in the last axis")
    skip = call.value(3)
    if call.rank(3) == 2:
        skip = call.reshape(skip, (-1, *(1,) * (call.rank() - 2), call.shape(3)[1]))
    total = call.do("Add", call.value(0), skip)
    if call.has(4):
        total = call.do("Add", total, call.value(4))
    y = group_norm_activated(dataclasses.replace(call, inputs=[total, *call.inputs[1:3]]))
    return (y, total) if call.outputs > 1 else y


@converter("BiasSplitGelu", domain=DOMAIN)
def bias_split_gelu(call: Call) -> Value:
    """The first half of the channels times the GELU of the second."""
    x = call.do("Add", call.value(0), call.value(1))
    left, right = call.do("Split", x, axis=-1, num_outputs=2, outputs=2)
    return call.do("Mul", left, call.do("Gelu", right))


@converter("BiasAdd", domain=DOMAIN)
def bias_add(call: Call) -> Value:
    return call.do("Add", call.do("Add", call.value(0), call.value(1)), call.value(2))
