"""The gradients of a convolution as loops, for every stride, padding, dilation and grouping.

Correct on any target and fast on none: on a GPU a library computes them where one can.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm import te, tirx


def dgrad(
    dy: te.Tensor,
    w: te.Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    out_dtype: str,
) -> te.Tensor:
    """dy (n, p, q, k), w (k, r, s, c / groups) -> dx (n, h, w, c) with (h, w) = ``size``, and the
    same over any other number of spatial axes.

    A gather: each pixel looks at every filter tap and takes those that some output pixel had
    there: ``p * stride = h + pad - r * dilation``.
    """
    stride, padding, dilation, size = _tuples(stride, padding, dilation, size)
    n, *outputs, k = dy.shape
    _, *window, c_group = (int(d) for d in w.shape)
    groups, acc = int(groups), _wide(out_dtype)
    k_group = int(k) // groups
    rk = te.reduce_axis((0, k_group), name="rk")
    taps = [te.reduce_axis((0, extent), name=f"r{i}") for i, extent in enumerate(window)]

    def element(b, *index):  # type: ignore[no-untyped-def]
        *pixel, c = index
        place, inside = [], []
        for i, tap in enumerate(taps):
            start = pixel[i] + padding[i] - dilation[i] * tap
            place.append(te.indexdiv(start, stride[i]))
            inside += [start >= 0, place[i] < outputs[i]]
            inside += [te.indexmod(start, stride[i]) == 0] if stride[i] > 1 else []
        channel = rk if groups == 1 else te.indexdiv(c, c_group) * k_group + rk
        own = c if groups == 1 else te.indexmod(c, c_group)
        term = dy(b, *place, channel).astype(acc) * w(channel, *taps, own).astype(acc)
        zero = tirx.const(0.0, acc)
        return te.sum(tirx.if_then_else(te.all(*inside), term, zero), axis=[*taps, rk])

    return _cast(te.compute((n, *size, c_group * groups), element, name="dgrad"), out_dtype)


def wgrad(
    dy: te.Tensor,
    x: te.Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    out_dtype: str,
) -> te.Tensor:
    """dy (n, p, q, k), x (n, h, w, c) -> dw (k, r, s, c / groups) with (r, s) = ``size``."""
    stride, padding, dilation, size = _tuples(stride, padding, dilation, size)
    n, rows, columns, k = dy.shape
    _, height, width, c = x.shape
    groups, acc = int(groups), _wide(out_dtype)
    c_group, k_group = int(c) // groups, int(k) // groups
    b = te.reduce_axis((0, n), name="b")
    p = te.reduce_axis((0, rows), name="p")
    q = te.reduce_axis((0, columns), name="q")

    def element(out, r, s, ch):  # type: ignore[no-untyped-def]
        h = p * stride[0] - padding[0] + r * dilation[0]
        v = q * stride[1] - padding[1] + s * dilation[1]
        channel = ch if groups == 1 else te.indexdiv(out, k_group) * c_group + ch
        term = dy[b, p, q, out].astype(acc) * x[b, h, v, channel].astype(acc)
        inside = te.all(h >= 0, h < height, v >= 0, v < width)
        zero = tirx.const(0.0, acc)
        return te.sum(tirx.if_then_else(inside, term, zero), axis=[b, p, q])

    return _cast(te.compute((k, *size, c_group), element, name="wgrad"), out_dtype)


def _tuples(*values: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(v) for v in value) for value in values)


def _wide(dtype: str) -> str:
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def _cast(value: te.Tensor, dtype: str) -> te.Tensor:
    if str(value.dtype) == dtype:
        return value
    return te.compute(value.shape, lambda *i: value(*i).astype(dtype), name="rounded")
