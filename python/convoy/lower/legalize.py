"""Legalization: Relax operators to TIR loops.

The table below replaces legalizations that accumulate in 16 bit, divide where a multiplication
does, or support NCHW alone. Every other operator keeps the one it is registered with.
"""

from __future__ import annotations

import math

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
from ..graph.target import on_gpu
from ..ir.dtypes import FLOAT_DTYPES, widened
from ..ops.activation import legalize_softplus
from ..ops.batch_norm import GRAD_STATS, STATS
from ..ops.conv_attrs import has_normal_layouts
from ..ops.layer_norm_backward import BACKWARD as LAYER_NORM
from ..ops.pool_backward import MAX_POOL
from ..tir.channel_sums import ChannelSums
from ..tir.loads import VECTOR_LIMIT
from . import (
    legalize_bfloat16,
    legalize_nan,
    legalize_norm,
    legalize_pool,
    legalize_resize,
    legalize_take,
    legalize_tanh,
    legalize_training,
)
from .default import FUSABLE, default_legalize
from .legalize_training import emit_sums
from .spread import MEAN, PRODUCT


def legalize_ops(keep_nan: bool = True) -> tvm.transform.Pass:
    """Build TVM's LegalizeOps with convoy's legalizations.

    Args:
        keep_nan: relu, clip, maximum and the like of NaN are NaN.
    """
    return relax.transform.LegalizeOps(
        {
            "relax.astype": legalize_bfloat16.astype,
            "relax.nn.conv2d": _conv2d,
            "relax.matmul": _matmul,
            "relax.nn.group_norm": legalize_norm.norm,
            "relax.nn.instance_norm": legalize_norm.norm,
            "relax.nn.max_pool2d": legalize_pool.max_pool2d,
            "relax.nn.avg_pool2d": legalize_pool.avg_pool2d,
            "relax.nn.adaptive_avg_pool2d": legalize_pool.adaptive_avg_pool2d,
            "relax.image.resize2d": legalize_resize.resize2d,
            "relax.concat": _concat,
            "relax.full": _full,
            "relax.full_like": _full,
            "relax.mean": _mean,
            "relax.take": legalize_take.take,
            "relax.tanh": legalize_tanh.tanh,
            "relax.nn.nll_loss": _nll_loss,
            "relax.nn.softmax": _softmax,
            "relax.nn.log_softmax": _softmax,
            "relax.nn.softplus": legalize_softplus,
            STATS: legalize_training.batch_norm_stats,
            GRAD_STATS: legalize_training.batch_norm_grad_stats,
            LAYER_NORM: legalize_training.layer_norm_backward,
            MAX_POOL: legalize_training.max_pool2d_backward,
            **(legalize_nan.legalizations() if keep_nan else {}),
        }
    )


def _conv2d(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Lower convolutions of single pixels to products with the rows of the filters. Depthwise with
    constant weights: the filter becomes (r, s, k), so that the weights of neighbouring channels are
    neighbours too. All else is TVM's."""
    attrs, (data, kernel) = call.attrs, call.args
    if not has_normal_layouts(call) or not is_const(kernel):
        return default_legalize(bb, call)
    k, *window, _ = shape_of(kernel)
    pixel = shape_of(data)[1:3] == shape_of(call)[1:3] == (1, 1)
    if on_gpu() and pixel and window == [1, 1] and int(attrs.groups) == 1:
        return _product(bb, call, make_const(as_numpy(kernel).reshape(k, -1)), "conv2d")
    if not int(attrs.groups) == shape_of(data)[-1] > 1:
        return default_legalize(bb, call)
    weights = make_const(as_numpy(kernel)[..., 0].transpose(1, 2, 0))
    return bb.call_te(
        _depthwise, data, weights, stride=ints(attrs.strides), padding=padding4(attrs.padding),
        dilation=ints(attrs.dilation), out_shape=shape_of(call), out_dtype=dtype_of(call),
        primfunc_name_hint="depthwise_conv2d", primfunc_attrs=FUSABLE,
    )  # fmt: skip


def _matmul(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Lower a matrix with constant weights to products with their columns; all else is TVM's."""
    x, weights = call.args
    if not on_gpu() or rank_of(x) != 2 or not is_const(weights) or rank_of(weights) != 2:
        return default_legalize(bb, call)
    return _product(bb, call, make_const(as_numpy(weights).T), "matmul")


def _product(bb: relax.BlockBuilder, call: relax.Call, rows: relax.Expr, name: str) -> relax.Expr:
    """``x rows^T`` along the last axis: each result is a sum along a row, as the schedule of
    products of a few rows has it."""
    dtype = dtype_of(call)

    def product(x: te.Tensor, w: te.Tensor) -> te.Tensor:
        k = te.reduce_axis((0, w.shape[1]), name="k")

        def element(*at: tvm.tirx.Expr) -> tvm.tirx.Expr:
            return te.sum(x(*at[:-1], k).astype(dtype) * w[at[-1], k].astype(dtype), axis=k)

        return te.compute((*x.shape[:-1], w.shape[0]), element, name=name)

    attrs = {**FUSABLE, PRODUCT: True}
    return bb.call_te(product, call.args[0], rows, primfunc_name_hint=name, primfunc_attrs=attrs)


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


def _mean(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """The mean of floats, added up in float32."""
    dtype, shape = dtype_of(call), shape_of(call.args[0])
    if dtype not in FLOAT_DTYPES:
        return default_legalize(bb, call)
    axes = list(range(len(shape))) if call.attrs.axis is None else ints(call.attrs.axis)
    count = math.prod(shape[axis] for axis in axes)
    wide, keepdims = widened(dtype), bool(call.attrs.keepdims)

    def mean(x: te.Tensor) -> te.Tensor:
        total = topi.sum(topi.cast(x, wide), axis=axes, keepdims=keepdims)
        scale = tvm.tirx.const(1.0 / count, wide)
        return te.compute(total.shape, lambda *i: (total(*i) * scale).astype(dtype), name="mean")

    return bb.call_te(
        mean, call.args[0], primfunc_name_hint="mean", primfunc_attrs={**FUSABLE, MEAN: True}
    )


def _concat(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Concatenate along the last axis in steps of up to eight channels if the parts allow it: the
    selection of the part is then uniform within a vector, so that the schedule can make one load of
    it."""
    fields = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else []
    rank = rank_of(call)
    if not fields or call.attrs.axis is None or int(call.attrs.axis) % rank != rank - 1:
        return default_legalize(bb, call)
    step = math.gcd(8, *(shape_of(field)[-1] for field in fields))
    if step == 1:
        return default_legalize(bb, call)
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


def _full(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """One number everywhere, which TVM does not take where it is NaN or infinite."""
    if not is_const(call.args[1]) or rank_of(call.args[1]):
        return default_legalize(bb, call)
    value = tvm.tirx.const(as_numpy(call.args[1]).item(), dtype_of(call))
    name = op_name(call).removeprefix("relax.")

    def full() -> te.Tensor:
        return te.compute(shape_of(call), lambda *_: value, name=name)

    return bb.call_te(full, primfunc_name_hint=name)


def _nll_loss(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Lower to terms, the weights of those that count, and sums, which TVM has in one block."""
    ignored, dtype = int(call.attrs.ignore_index), dtype_of(call)
    reduction = str(call.attrs.reduction)
    fused = on_gpu() and reduction == "mean" and dtype == "float32"
    # Kernels by themselves, so that their results can be read as columns without a copy.
    alone = {"primfunc_attrs": {"op_pattern": 8}} if fused else {}
    zero = tvm.tirx.const(0.0, dtype)

    def counted(labels: te.Tensor, *weights: te.Tensor) -> te.Tensor:
        def weight(*place):  # type: ignore[no-untyped-def]
            label = labels(*place)
            one = weights[0][label] if weights else tvm.tirx.const(1.0, dtype)
            return tvm.tirx.if_then_else(label != ignored, one, zero)

        return te.compute(labels.shape, weight, name="used")

    def terms(scores: te.Tensor, labels: te.Tensor, *weights: te.Tensor) -> te.Tensor:
        def term(*place):  # type: ignore[no-untyped-def]
            label = labels(*place)
            score = zero - scores(*place[:1], label, *place[1:])
            weighed = score * weights[0][label] if weights else score
            return tvm.tirx.if_then_else(label != ignored, weighed, zero)

        return te.compute(labels.shape, term, name="terms")

    each = bb.emit(bb.call_te(terms, *call.args, primfunc_name_hint="nll_terms", **alone))
    if reduction != "mean":
        return each if reduction == "none" else bb.emit(relax.op.sum(each))
    used = bb.emit(bb.call_te(counted, *call.args[1:], primfunc_name_hint="nll_used", **alone))
    if not fused:
        return bb.emit(relax.op.divide(bb.emit(relax.op.sum(each)), bb.emit(relax.op.sum(used))))
    sums = ChannelSums(
        "nll_loss", math.prod(shape_of(each)), 1, (dtype, dtype), 0, 1,
        lambda x, v, first: (x[0], x[1]), lambda s, v, first: [s[0] / s[1]],
    )  # fmt: skip
    return bb.emit(relax.op.reshape(bb.emit(emit_sums(bb, sums, [each, used], [])), ()))


def _softmax(bb: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """TVM's own, marked as a reduction: a cast in front of it is computed with it."""
    function = topi.nn.softmax if op_name(call) == "relax.nn.softmax" else topi.nn.log_softmax
    return bb.call_te(
        function, call.args[0], axis=int(call.attrs.axis), primfunc_attrs={"op_pattern": 3}
    )
