"""Operators that convoy writes as loops itself: TVM's own version accumulates in 16 bit, divides
what it need not, or knows only NCHW. Everything else uses TVM's legalisation."""

from __future__ import annotations

import math
from collections.abc import Callable

import tvm
from tvm import relax, te, topi

from ..graph.expr import (
    as_numpy,
    dtype_of,
    ints,
    is_const,
    make_const,
    op_name,
    padding4,
    rank_of,
    shape_of,
)

#: Elementwise operators behind such a kernel are fused into it (relay's kOutEWiseFusable).
_FUSABLE = {"op_pattern": 4}

#: Block annotation: vectors along the last axis must not be longer than this.
VECTOR_LIMIT = "convoy.vector_limit"

Legalizer = Callable[[relax.BlockBuilder, relax.Call], relax.Expr]


def legalize_ops() -> tvm.transform.Pass:
    """LegalizeOps with convoy's versions."""
    return relax.transform.LegalizeOps(
        {
            "relax.nn.conv2d": _conv2d,
            "relax.nn.max_pool2d": _max_pool2d,
            "relax.nn.avg_pool2d": _avg_pool2d,
            "relax.nn.adaptive_avg_pool2d": _adaptive_avg_pool2d,
            "relax.concat": _concat,
            "relax.mean": _mean,
            "relax.nn.nll_loss": _nll_loss,
            "relax.nn.softmax": _softmax,
            "relax.nn.log_softmax": _softmax,
        }
    )


def _default(name: str, bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return tvm.ir.Op.get(name).get_attr("FLegalize")(bb, call)


def _wide(dtype: str) -> str:
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def _conv2d(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Depthwise with constant weights: the filter becomes (r, s, k), so that the weights of
    neighbouring channels are neighbours too. All else is TVM's."""
    attrs, (data, kernel) = call.attrs, call.args
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout or "NHWC"))
    depthwise = int(attrs.groups) == shape_of(data)[-1] > 1
    if layouts != ("NHWC", "OHWI", "NHWC") or not depthwise or not is_const(kernel):
        return _default("relax.nn.conv2d", bb, call)
    weights = make_const(as_numpy(kernel)[..., 0].transpose(1, 2, 0))
    return bb.call_te(
        _depthwise, data, weights, stride=ints(attrs.strides), padding=padding4(attrs.padding),
        dilation=ints(attrs.dilation), out_shape=shape_of(call), out_dtype=dtype_of(call),
        primfunc_name_hint="depthwise_conv2d", primfunc_attrs=_FUSABLE,
    )  # fmt: skip


def _depthwise(x, w, stride, padding, dilation, out_shape, out_dtype):  # type: ignore[no-untyped-def]
    """x (n, h, w, c), filter (r, s, k) with k a multiple of c -> (n, p, q, k)."""
    stride, padding, dilation = (tuple(int(v) for v in t) for t in (stride, padding, dilation))
    c, k = int(x.shape[3]), int(w.shape[2])
    padded = x
    if any(padding):
        before, after = (0, *padding[:2], 0), (0, *padding[2:], 0)
        padded = topi.nn.pad(x, before, after, tvm.tirx.const(0.0, str(x.dtype)), name="padded")
    r, s = (te.reduce_axis((0, int(w.shape[i])), name="rs"[i]) for i in range(2))

    def element(b, p, q, ch):  # type: ignore[no-untyped-def]
        row, column = p * stride[0] + r * dilation[0], q * stride[1] + s * dilation[1]
        source = ch if k == c else te.indexdiv(ch, k // c)
        value = padded[b, row, column, source].astype(out_dtype)
        return te.sum(value * w[r, s, ch].astype(out_dtype), axis=[r, s])

    return te.compute(tuple(int(d) for d in out_shape), element, name="depthwise")


def _max_pool2d(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    if not _plain_nhwc(call):
        return _default("relax.nn.max_pool2d", bb, call)
    return bb.call_te(
        _pool, call.args[0], **_window(call), average=False, count_padding=False,
        primfunc_name_hint="max_pool2d", primfunc_attrs=_FUSABLE,
    )  # fmt: skip


def _avg_pool2d(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    if not _plain_nhwc(call):
        return _default("relax.nn.avg_pool2d", bb, call)
    return bb.call_te(
        _pool, call.args[0], **_window(call), average=True,
        count_padding=bool(call.attrs.count_include_pad),
        primfunc_name_hint="avg_pool2d", primfunc_attrs=_FUSABLE,
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
    acc = _wide(dtype) if average else dtype

    def element(b, p, q, ch):  # type: ignore[no-untyped-def]
        value = padded[b, p * stride[0] + r, q * stride[1] + s, ch]
        if average:
            return te.sum(value.astype(acc), axis=[r, s])
        return te.max(value, axis=[r, s])

    pooled = te.compute((n, *out_size, c), element, name="pooled")
    if not average:
        return pooled
    bounds = [(h, padding[0], padding[2]), (w, padding[1], padding[3])]

    def count(i, p):  # type: ignore[no-untyped-def]
        size, front, back = bounds[i]
        start = p * stride[i] - front
        low, high = (-front, size + back) if count_padding else (0, size)
        return te.min(start + window[i], high) - te.max(start, low)

    def divided(b, p, q, ch):  # type: ignore[no-untyped-def]
        area = (count(0, p) * count(1, q)).astype(acc)
        return (pooled[b, p, q, ch] / area).astype(dtype)

    return te.compute(pooled.shape, divided, name="average")


def _adaptive_avg_pool2d(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    dtype = dtype_of(call)
    layout, size = str(call.attrs.layout), shape_of(call)
    if dtype == _wide(dtype):
        return _default("relax.nn.adaptive_avg_pool2d", bb, call)
    out = [size[layout.index("H")], size[layout.index("W")]]

    def pooled(x: te.Tensor) -> te.Tensor:
        wide = topi.cast(x, "float32")
        return topi.cast(topi.nn.adaptive_pool(wide, out, "avg", layout), dtype)

    return bb.call_te(pooled, call.args[0], primfunc_name_hint="adaptive_avg_pool2d")


def _mean(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    dtype, shape = dtype_of(call), shape_of(call.args[0])
    if dtype not in ("float32", "float16", "bfloat16"):
        return _default("relax.mean", bb, call)
    rank = rank_of(call.args[0])
    axes = list(range(rank)) if call.attrs.axis is None else ints(call.attrs.axis)
    axes = sorted(a % rank for a in axes)
    count = 1
    for axis in axes:
        count *= shape[axis]

    def mean(x: te.Tensor) -> te.Tensor:
        total = topi.sum(topi.cast(x, _wide(dtype)), axis=axes, keepdims=bool(call.attrs.keepdims))
        scale = tvm.tirx.const(1.0 / count, _wide(dtype))
        return te.compute(total.shape, lambda *i: (total(*i) * scale).astype(dtype), name="mean")

    return bb.call_te(
        mean, call.args[0], primfunc_name_hint="mean", primfunc_attrs={"op_pattern": 4}
    )


def _concat(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Along the last axis in steps of up to eight channels, if the parts allow: the choice of the
    part is then the same for a whole vector, which the schedule makes one load."""
    fields = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else []
    rank = rank_of(call)
    if not fields or call.attrs.axis is None or int(call.attrs.axis) % rank != rank - 1:
        return _default("relax.concat", bb, call)
    step = math.gcd(8, *(shape_of(field)[-1] for field in fields))
    if step == 1:
        return _default("relax.concat", bb, call)
    return bb.call_te(
        _concat_last, list(fields), step=step, primfunc_name_hint="concat",
        primfunc_attrs={"op_pattern": 2},  # injective
    )  # fmt: skip


def _concat_last(parts, step):  # type: ignore[no-untyped-def]
    step = int(step)
    widths = [int(part.shape[-1]) for part in parts]
    shape = (*parts[0].shape[:-1], sum(widths))

    def element(*index):  # type: ignore[no-untyped-def]
        *outer, c = index
        start = shape[-1] - widths[-1]
        value = parts[-1](*outer, c - start)
        for part, width in zip(parts[-2::-1], widths[-2::-1], strict=True):
            end, start = start, start - width
            below = te.indexdiv(c, step) < end // step
            value = tvm.tirx.if_then_else(below, part(*outer, c - start), value)
        return value

    return te.compute(shape, element, name="concat", attrs={VECTOR_LIMIT: step})


def _nll_loss(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Of (n, classes) without weights: terms and their sum apart, which TVM sums in one thread."""
    from ..ops.gpu import emit_sums, on_gpu  # these import the schedules, which import this module
    from ..tir.channel_sums import ChannelSums

    if len(call.args) != 2 or rank_of(call.args[0]) != 2:
        return _default("relax.nn.nll_loss", bb, call)
    ignored, dtype = int(call.attrs.ignore_index), dtype_of(call)
    reduction = str(call.attrs.reduction)
    fused = on_gpu() and reduction == "mean" and dtype == "float32"
    # Kernels by themselves, so that their results can be read as columns without a copy.
    alone = {"primfunc_attrs": {"op_pattern": 8}} if fused else {}

    def terms(scores: te.Tensor, labels: te.Tensor) -> te.Tensor:
        zero = tvm.tirx.const(0.0, dtype)

        def term(n):  # type: ignore[no-untyped-def]
            label = labels[n]
            return tvm.tirx.if_then_else(label != ignored, zero - scores[n, label], zero)

        return te.compute(labels.shape, term, name="terms")

    def counted(labels: te.Tensor) -> te.Tensor:
        return te.compute(labels.shape, lambda n: (labels[n] != ignored).astype(dtype), name="used")

    each = bb.emit(bb.call_te(terms, *call.args, primfunc_name_hint="nll_terms", **alone))
    if reduction != "mean":
        return each if reduction == "none" else bb.emit(relax.op.sum(each))
    used = bb.emit(bb.call_te(counted, call.args[1], primfunc_name_hint="nll_used", **alone))
    if not fused:
        return bb.emit(relax.op.divide(bb.emit(relax.op.sum(each)), bb.emit(relax.op.sum(used))))
    sums = ChannelSums(
        "nll_loss", shape_of(each)[0], 1, (dtype, dtype), 0, 1,
        lambda x, v, first: (x[0], x[1]), lambda s, v, first: [s[0] / s[1]],
    )  # fmt: skip
    return bb.emit(relax.op.reshape(bb.emit(emit_sums(bb, sums, [each, used], [])), ()))


def _softmax(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """TVM's own, marked as a reduction: a cast in front of it is computed with it."""
    function = topi.nn.softmax if op_name(call) == "relax.nn.softmax" else topi.nn.log_softmax
    return bb.call_te(
        function, call.args[0], axis=int(call.attrs.axis), primfunc_attrs={"op_pattern": 3}
    )
