"""Padding by values, and dilation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.relay.ast import Call, Expr
from convoy.relay.builder import const, numpy_dtype
from convoy.relay.lazy import relax, te, tirx, topi
from convoy.relay.ops.arguments import known, make_call
from convoy.relay.ops.registry import builder, converter, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr, ints, is_const
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.shapes import computed, is_int
from convoy.relay.types import TensorType, Type


@builder("nn.pad")
def pad(
    data: Expr,
    pad_width: Any,
    pad_value: Any = 0,
    pad_mode: str = "constant",
) -> Call:
    """Pad each axis by (before, after).

    Args:
        pad_width: A pair for each axis, which may be computed. Negative widths crop.
        pad_value: A number or a scalar expression.
        pad_mode: "constant", "edge" or "reflect".
    """
    if not isinstance(pad_value, Expr):
        pad_value = const(pad_value)
    pad_width = known(pad_width)
    if isinstance(pad_width, Expr):
        attrs = {"pad_width": None, "pad_mode": pad_mode}
        return make_call("dyn.nn.pad", data, pad_width, pad_value, **attrs)
    return make_call("nn.pad", data, pad_value, pad_width=pad_width, pad_mode=pad_mode)


@builder("nn.mirror_pad")
def mirror_pad(data: Expr, pad_width: Sequence[Sequence[int]], mode: str = "SYMMETRIC") -> Call:
    """Pad each axis by its mirror image.

    Args:
        pad_width: A pair (before, after) for each axis.
        mode: "SYMMETRIC" repeats the border, "REFLECT" does not.
    """
    return make_call("nn.mirror_pad", data, mode=mode, pad_width=pad_width)


@type_rule("nn.pad", "nn.mirror_pad")
def infer_pad(call: Inputs) -> Type:
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
        computed(lambda n, more=b + a: n + more, d)
        for d, (b, a) in zip(data.shape, widths, strict=False)
    ]
    if any(isinstance(d, int) and d < 0 for d in shape):
        raise call.error(f"pad_width={widths} of {data}", "a result of at least no elements")
    return TensorType(shape, data.dtype)


@converter("nn.pad")
def convert_pad(op: OpCall) -> RelaxExpr:
    """Crop where widths are negative, then pad."""
    attrs, pairs = op.attrs, op.attrs["pad_width"]
    mode = attrs["pad_mode"]
    data = _cropped(op, pairs)
    before, after = ([max(0, int(p[side])) for p in pairs] for side in (0, 1))
    if mode == "constant":
        fill = op.args[1]
        if not is_const(fill):
            return op.te(_pad_with, data, op.reshape(fill, ()), before, after)
        width = [v for pair in zip(before, after, strict=True) for v in pair]
        value = fill.value.numpy().reshape(()).astype(numpy_dtype(op.type(0).dtype))
        return relax.op.nn.pad(data, width, pad_value=value.item())
    if mode == "edge":
        return op.te(topi.nn.replicate_pad, data, before, after)
    if mode == "reflect":
        return op.te(topi.nn.reflect_pad, data, before, after)
    raise op.unsupported(f"pad_mode='{mode}'", "'constant', 'edge' or 'reflect'")


def _cropped(op: OpCall, pairs: Sequence[Sequence[int]]) -> RelaxExpr:
    """Emit the slice that negative widths stand for."""
    axes = [i for i, pair in enumerate(pairs) if min(pair) < 0]
    if not axes:
        return op.args[0]
    shape = op.shape(0)
    begin = [max(0, -int(pairs[a][0])) for a in axes]
    end = [shape[a] + min(0, int(pairs[a][1])) for a in axes]
    return op.emit(relax.op.strided_slice(op.args[0], axes=axes, begin=begin, end=end))


def _pad_with(data, fill, before, after):  # type: ignore[no-untyped-def]
    """Pad a te.Tensor by the value of a scalar one."""
    shape = [b + d + a for b, d, a in zip(before, data.shape, after, strict=True)]

    def at(*index):  # type: ignore[no-untyped-def]
        inside = [
            tirx.all(i >= b, i < b + d) for i, b, d in zip(index, before, data.shape, strict=True)
        ]
        source = [i - b for i, b in zip(index, before, strict=True)]
        value = fill().astype(data.dtype)
        return tirx.if_then_else(tirx.all(*inside), data(*source), value) if inside else value

    return te.compute(shape, at)


@converter("nn.mirror_pad")
def convert_mirror_pad(op: OpCall) -> RelaxExpr:
    pairs = op.attrs["pad_width"]
    before, after = [int(p[0]) for p in pairs], [int(p[1]) for p in pairs]
    if min(before + after) < 0:
        raise op.unsupported(f"pad_width={pairs}", "widths of at least 0")
    return op.te(topi.nn.mirror_pad, op.args[0], before, after, mode=op.attrs["mode"])


@builder("nn.dilate")
def dilate(data: Expr, strides: Sequence[int], dilation_value: float = 0.0) -> Call:
    """Insert `strides - 1` elements of `dilation_value` between neighbors of each axis."""
    return make_call(
        "nn.dilate", data, strides=tuple(strides), dilation_value=float(dilation_value)
    )


@type_rule("nn.dilate")
def infer_dilate(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    strides = call.positive("strides", len(data.shape))
    sizes = zip(data.shape, strides, strict=True)
    return TensorType(
        [computed(lambda n, step=s: (n - 1) * step + 1, d) for d, s in sizes], data.dtype
    )


@converter("nn.dilate")
def convert_dilate(op: OpCall) -> RelaxExpr:
    value = float(op.attrs["dilation_value"])
    return op.te(topi.nn.dilate, op.args[0], ints(op.attrs["strides"]), value)
