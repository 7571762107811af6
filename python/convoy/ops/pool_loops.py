"""Gradients of 2d pooling as loops for any target: a gather by each input pixel."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import te, tirx

from ..ir.dtypes import widened


def first_maximum(x, y, pool_size, strides, padding, dilation):  # type: ignore[no-untyped-def]
    """The number (row by row) of the first tap of each window that equals its maximum."""
    size, stride, padding, dilation = _tuples(pool_size, strides, padding, dilation)
    _, h, w, _ = (int(d) for d in x.shape)

    def element(n, p, q, c):  # type: ignore[no-untyped-def]
        found = tirx.const(size[0] * size[1] - 1, "int32")
        for tap in reversed(range(size[0] * size[1] - 1)):
            row = p * stride[0] - padding[0] + tap // size[1] * dilation[0]
            column = q * stride[1] - padding[1] + tap % size[1] * dilation[1]
            inside = te.all(row >= 0, row < h, column >= 0, column < w)
            value = tirx.if_then_else(inside, x[n, row, column, c], tirx.min_value(str(x.dtype)))
            found = tirx.Select(
                tirx.all(value == y[n, p, q, c], inside), tirx.const(tap, "int32"), found
            )
        return found.astype("uint8" if size[0] * size[1] <= 256 else "int32")

    return te.compute(y.shape, element, name="argmax")


def _windows(size, stride, padding, dilation, shape, rows, columns):  # type: ignore[no-untyped-def]
    """For a pixel (h, w): reduction axes over the windows near it, and of each the position
    (p, q), its tap there, and whether there is such a window."""
    if dilation == (1, 1):  # windows whose first row is at most a window's height above
        count = [-(-size[i] // stride[i]) for i in range(2)]
        axes = [te.reduce_axis((0, count[i]), name="ab"[i]) for i in range(2)]

        def near(i, at, axis, limit):  # type: ignore[no-untyped-def]
            position = te.indexdiv(at + padding[i], stride[i]) - axis
            tap = at + padding[i] - position * stride[i]
            return position, tap, [position >= 0, position < limit, tap < size[i]]
    else:
        axes = [te.reduce_axis((0, size[i]), name="ab"[i]) for i in range(2)]

        def near(i, at, axis, limit):  # type: ignore[no-untyped-def]
            start = at + padding[i] - axis * dilation[i]
            position = te.indexdiv(start, stride[i])
            whole = te.indexmod(start, stride[i]) == 0
            return position, axis, [start >= 0, whole, position < limit]

    def at(h, w):  # type: ignore[no-untyped-def]
        p, r, first = near(0, h, axes[0], rows)
        q, s, second = near(1, w, axes[1], columns)
        return p, q, r, s, te.all(*first, *second)

    return axes, at


def scattered(dy, which, size, pool_size, strides, padding, dilation):  # type: ignore[no-untyped-def]
    taps, stride, padding, dilation = _tuples(pool_size, strides, padding, dilation)
    n, h, w, c = (int(d) for d in size)
    rows, columns = int(dy.shape[1]), int(dy.shape[2])
    axes, at = _windows(taps, stride, padding, dilation, (h, w), rows, columns)
    dtype = str(dy.dtype)
    acc = widened(dtype)

    def element(b, i, j, ch):  # type: ignore[no-untyped-def]
        p, q, r, s, inside = at(i, j)
        tap = (r * taps[1] + s).astype("int32")
        zero = tirx.const(0.0, acc)
        chosen = which[b, p, q, ch].astype("int32") == tap
        value = tirx.Select(chosen, dy[b, p, q, ch].astype(acc), zero)
        return te.sum(tirx.if_then_else(inside, value, zero), axis=axes)

    return _rounded(te.compute((n, h, w, c), element, name="scattered"), dtype)


def averaged(dy, x, pool_size, strides, padding, count_include_pad):  # type: ignore[no-untyped-def]
    taps, stride, padding = _tuples(pool_size, strides, padding)
    h, w = int(x.shape[1]), int(x.shape[2])
    rows, columns = int(dy.shape[1]), int(dy.shape[2])
    axes, at = _windows(taps, stride, padding, (1, 1), (h, w), rows, columns)
    dtype = str(dy.dtype)
    acc = widened(dtype)

    def length(i, position, size):  # type: ignore[no-untyped-def]
        start = position * stride[i] - padding[i]
        low, high = (-padding[i], size + padding[i + 2]) if bool(count_include_pad) else (0, size)
        return te.min(start + taps[i], high) - te.max(start, low)

    def element(b, i, j, ch):  # type: ignore[no-untyped-def]
        p, q, _, _, inside = at(i, j)
        area = (length(0, p, h) * length(1, q, w)).astype(acc)
        value = dy[b, p, q, ch].astype(acc) / area
        return te.sum(tirx.if_then_else(inside, value, tirx.const(0.0, acc)), axis=axes)

    return _rounded(te.compute(x.shape, element, name="averaged"), dtype)


def _tuples(*values: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(v) for v in value) for value in values)


def _rounded(value: te.Tensor, dtype: str) -> te.Tensor:
    if str(value.dtype) == dtype:
        return value
    return te.compute(value.shape, lambda *i: value(*i).astype(dtype), name="rounded")
