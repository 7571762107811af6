"""2d pooling in NHWC as loops: explicit padding, sums in float32."""

from __future__ import annotations

import tvm
from tvm import relax, te, topi

from ..graph.expr import ints, padding4, shape_of
from ..ir.dtypes import widened
from .default import FUSABLE, default_legalize


def max_pool2d(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    if not _plain_nhwc(call):
        return default_legalize(bb, call)
    return bb.call_te(
        _pool, call.args[0], **_window(call), average=False, count_padding=False,
        primfunc_name_hint="max_pool2d", primfunc_attrs=FUSABLE,
    )  # fmt: skip


def avg_pool2d(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    if not _plain_nhwc(call):
        return default_legalize(bb, call)
    return bb.call_te(
        _pool, call.args[0], **_window(call), average=True,
        count_padding=bool(call.attrs.count_include_pad),
        primfunc_name_hint="avg_pool2d", primfunc_attrs=FUSABLE,
    )  # fmt: skip


def _plain_nhwc(call: relax.Call) -> bool:
    attrs = call.attrs
    return (
        str(attrs.layout) == "NHWC"
        and str(attrs.out_layout or "NHWC") == "NHWC"
        and ints(attrs.dilation) == (1, 1)
    )


def _window(call: relax.Call) -> dict[str, tuple[int, ...]]:
    """Window, stride, padding (top, left) and output size; the type already knows ceil_mode."""
    window, stride = ints(call.attrs.pool_size), ints(call.attrs.strides)
    return {
        "window": (window[0], window[-1]),
        "stride": (stride[0], stride[-1]),
        "padding": padding4(call.attrs.padding),
        "out_size": shape_of(call)[1:3],
    }


def _pool(
    x: te.Tensor,
    window: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    out_size: tuple[int, ...],
    average: bool,
    count_padding: bool,
) -> te.Tensor:
    """Pooling of (n, h, w, c) over explicit padding; sums are in float32.

    Without ``count_padding`` an average divides by the number of pixels inside the image. With
    it, pixels that only ceil_mode reaches, beyond the declared padding, still do not count.
    """
    window, stride, padding, out_size = (
        tuple(int(v) for v in t) for t in (window, stride, padding, out_size)
    )
    n, h, w, c = (int(d) for d in x.shape)
    dtype = str(x.dtype)
    reach = [(out_size[i] - 1) * stride[i] + window[i] - padding[i] for i in range(2)]
    after = [max(reach[0] - h, 0), max(reach[1] - w, 0)]
    fill = tvm.tirx.const(0.0, dtype) if average else tvm.te.min_value(dtype)
    padded = x
    if any(padding[:2]) or any(after):
        before = [0, padding[0], padding[1], 0]
        padded = topi.nn.pad(x, before, [0, after[0], after[1], 0], fill, name="padded")
    r, s = (te.reduce_axis((0, window[i]), name="rs"[i]) for i in range(2))
    acc = widened(dtype) if average else dtype

    def element(b, p, q, ch):  # type: ignore[no-untyped-def]
        value = padded[b, p * stride[0] + r, q * stride[1] + s, ch]
        if average:
            return te.sum(value.astype(acc), axis=[r, s])
        return te.max(value, axis=[r, s])

    pooled = te.compute((n, *out_size, c), element, name="pooled")
    if not average:
        return pooled
    bounds = [(h, padding[0], padding[2]), (w, padding[1], padding[3])]

    def count(i: int, p: tvm.tirx.Expr) -> tvm.tirx.Expr:
        size, front, back = bounds[i]
        start = p * stride[i] - front
        low, high = (-front, size + back) if count_padding else (0, size)
        return te.min(start + window[i], high) - te.max(start, low)

    def divided(b, p, q, ch):  # type: ignore[no-untyped-def]
        area = (count(0, p) * count(1, q)).astype(acc)
        return (pooled[b, p, q, ch] / area).astype(dtype)

    return te.compute(pooled.shape, divided, name="average")


def adaptive_avg_pool2d(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Lower windows of one size to means of blocks, which several threads share; of other sizes,
    to sums over the longest window."""
    layout, size = str(call.attrs.layout), shape_of(call)
    if layout not in ("NHWC", "NCHW"):
        return default_legalize(bb, call)
    shape, h = shape_of(call.args[0]), layout.index("H")
    if not any(shape[axis] % size[axis] for axis in (h, h + 1)):
        windows = [(size[axis], shape[axis] // size[axis]) for axis in (h, h + 1)]
        blocks = (*shape[:h], *windows[0], *windows[1], *shape[h + 2 :])
        return relax.op.mean(bb.emit(relax.op.reshape(call.args[0], blocks)), [h + 1, h + 3])
    return bb.call_te(
        _uneven_means, call.args[0], size=size, first=h,
        primfunc_name_hint="adaptive_avg_pool2d", primfunc_attrs=FUSABLE,
    )  # fmt: skip


def _uneven_means(x: te.Tensor, size: tuple[int, ...], first: int) -> te.Tensor:
    """Means of windows along axis ``first`` and the next: number i of n of an axis of s elements
    covers i*s/n to (i+1)*s/n, rounded outwards."""
    axes, dtype, first = (int(first), int(first) + 1), str(x.dtype), int(first)
    size, acc = tuple(int(d) for d in size), widened(str(x.dtype))
    sizes = {axis: int(x.shape[axis]) for axis in axes}

    def start(axis: int, i: int | tvm.tirx.Expr) -> tvm.tirx.Expr:
        return te.floordiv(i * sizes[axis], size[axis])

    def end(axis: int, i: int | tvm.tirx.Expr) -> tvm.tirx.Expr:
        return te.floordiv((i + 1) * sizes[axis] + size[axis] - 1, size[axis])

    def longest(axis: int) -> int:
        n, s = size[axis], sizes[axis]
        return max(-(-(i + 1) * s // n) - i * s // n for i in range(n))

    reach = {axis: te.reduce_axis((0, longest(axis)), name="rs"[axis - first]) for axis in axes}

    def summed(*at: tvm.tirx.Expr) -> tvm.tirx.Expr:
        places, inside = list(at), []
        for axis in axes:
            place = start(axis, at[axis]) + reach[axis]
            inside.append(place < end(axis, at[axis]))
            places[axis] = te.min(place, sizes[axis] - 1)
        value = tvm.tirx.Select(tvm.tirx.all(*inside), x(*places), tvm.tirx.const(0, dtype))
        return te.sum(value.astype(acc), axis=list(reach.values()))

    total = te.compute(size, summed, name="pooled")

    def divided(*at: tvm.tirx.Expr) -> tvm.tirx.Expr:
        rows, columns = (end(axis, at[axis]) - start(axis, at[axis]) for axis in axes)
        return (total(*at) / (rows * columns).astype(acc)).astype(dtype)

    return te.compute(size, divided, name="average")
