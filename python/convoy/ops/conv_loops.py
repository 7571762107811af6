"""The gradients of a convolution as loops, for every stride, padding, dilation and grouping.

Correct on any target, fast on none: on a GPU a library kernel replaces them if there is one.
"""

from __future__ import annotations

from tvm import te, tirx

from ..ir.dtypes import widened
from .conv_attrs import ConvAttrs


def dgrad(dy: te.Tensor, w: te.Tensor, conv: ConvAttrs) -> te.Tensor:
    """dy (n, p, q, k), w (k, r, s, c / groups) -> dx (n, h, w, c) with (h, w) = ``conv.size``, and
    the same over any other number of spatial axes.

    A gather: each pixel adds, over all filter taps, the output pixels that read it there:
    ``p * stride = h + pad - r * dilation``.
    """
    n, *outputs, k = dy.shape
    _, *window, c_group = (int(d) for d in w.shape)
    k_group, acc = int(k) // conv.groups, widened(conv.out_dtype)
    rk = te.reduce_axis((0, k_group), name="rk")
    taps = [te.reduce_axis((0, extent), name=f"r{i}") for i, extent in enumerate(window)]

    def element(b, *index):  # type: ignore[no-untyped-def]
        *pixel, c = index
        place, inside = [], []
        for i, tap in enumerate(taps):
            start = pixel[i] + conv.padding[i] - conv.dilation[i] * tap
            place.append(te.indexdiv(start, conv.strides[i]))
            inside += [start >= 0, place[i] < outputs[i]]
            inside += [te.indexmod(start, conv.strides[i]) == 0] if conv.strides[i] > 1 else []
        channel = rk if conv.groups == 1 else te.indexdiv(c, c_group) * k_group + rk
        own = c if conv.groups == 1 else te.indexmod(c, c_group)
        term = dy(b, *place, channel).astype(acc) * w(channel, *taps, own).astype(acc)
        return _sum_inside(inside, term, [*taps, rk], acc)

    shape = (n, *conv.size, c_group * conv.groups)
    return _cast(te.compute(shape, element, name="dgrad"), conv.out_dtype)


def wgrad(dy: te.Tensor, x: te.Tensor, conv: ConvAttrs) -> te.Tensor:
    """dy (n, p, q, k), x (n, h, w, c) -> dw (k, r, s, c / groups) with (r, s) = ``conv.size``."""
    n, *outputs, k = dy.shape
    _, *inputs, c = x.shape
    c_group, k_group = int(c) // conv.groups, int(k) // conv.groups
    acc = widened(conv.out_dtype)
    b = te.reduce_axis((0, n), name="b")
    pixel = [te.reduce_axis((0, extent), name="pq"[i]) for i, extent in enumerate(outputs)]

    def element(out, *index):  # type: ignore[no-untyped-def]
        *taps, ch = index
        place, inside = [], []
        for i, tap in enumerate(taps):
            place.append(pixel[i] * conv.strides[i] - conv.padding[i] + tap * conv.dilation[i])
            inside += [place[i] >= 0, place[i] < inputs[i]]
        channel = ch if conv.groups == 1 else te.indexdiv(out, k_group) * c_group + ch
        term = dy(b, *pixel, out).astype(acc) * x(b, *place, channel).astype(acc)
        return _sum_inside(inside, term, [b, *pixel], acc)

    shape = (k, *conv.size, c_group)
    return _cast(te.compute(shape, element, name="wgrad"), conv.out_dtype)


def _sum_inside(
    inside: list[tirx.Expr], term: tirx.Expr, axes: list[tirx.IterVar], dtype: str
) -> tirx.Expr:
    """The sum along axes of a term, which is zero outside of the data."""
    padded = tirx.if_then_else(te.all(*inside), term, tirx.const(0.0, dtype))
    return te.sum(padded, axis=axes)


def _cast(value: te.Tensor, dtype: str) -> te.Tensor:
    if str(value.dtype) == dtype:
        return value
    return te.compute(value.shape, lambda *i: value(*i).astype(dtype), name="rounded")
