"""Gradients of operators that move elements: slices, padding, stacking, resizing."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op
from tvm.relax.op.grad import no_grad

from ..errors import UnsupportedOp
from ..graph.expr import dtype_of, ints, shape_of
from .gradient import rule_for


@rule_for("strided_slice")
def _strided_slice(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    """Pad with zeros the elements that the slice skipped: between strides, before and after."""
    x, axes, begin, _, *strides = call.args
    shape, sizes = shape_of(x), list(shape_of(dy))
    steps = [int(s) for s in strides[0].fields] if strides else [1] * len(axes.fields)
    if any(step < 1 for step in steps):
        raise UnsupportedOp("the gradient of a slice that runs backwards", "positive strides")
    grown, pads = dy, [0] * (2 * len(shape))
    for axis, first, step in zip(axes.fields, begin.fields, steps, strict=True):
        at, size = int(axis) % len(shape), shape[int(axis) % len(shape)]
        start = int(first) + (size if int(first) < 0 else 0)
        start = min(max(start, 0), size)
        if step > 1:
            count = sizes[at]
            apart = [*sizes[:at], count, 1, *sizes[at + 1 :]]
            zeros = [0] * (2 * len(apart))
            zeros[2 * at + 3] = step - 1
            sizes[at] = count * step
            spread = ctx.emit(op.nn.pad(ctx.emit(op.reshape(grown, apart)), zeros))
            grown = ctx.emit(op.reshape(spread, sizes))
            if (excess := start + sizes[at] - size) > 0:
                sizes[at] -= excess
                grown = ctx.emit(op.strided_slice(grown, [at], [0], [sizes[at]]))
        pads[2 * at], pads[2 * at + 1] = start, size - start - sizes[at]
    return [op.nn.pad(grown, pads), *(no_grad(argument) for argument in call.args[1:])]


@rule_for("nn.pad")
def _pad(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    """Cut off the padding; insert zeros where negative widths cut off data."""
    mode, widths = str(call.attrs.pad_mode), ints(call.attrs.pad_width)
    if mode != "constant":
        raise UnsupportedOp(f"the gradient of nn.pad with mode {mode}", "constant padding")
    begin = [max(width, 0) for width in widths[::2]]
    ends = [size - max(w, 0) for size, w in zip(shape_of(dy), widths[1::2], strict=True)]
    kept = op.strided_slice(dy, list(range(len(ends))), begin, ends)
    if min(widths) >= 0:
        return [kept]
    return [op.nn.pad(ctx.emit(kept), [max(-width, 0) for width in widths])]


@rule_for("tile")
def _tile(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    """The sum of all copies."""
    shape, repeats = shape_of(call.args[0]), ints(call.attrs.repeats)
    shape = (1,) * (len(repeats) - len(shape)) + shape
    repeats = (1,) * (len(shape) - len(repeats)) + repeats
    apart = [size for pair in zip(repeats, shape, strict=True) for size in pair]
    summed = op.sum(ctx.emit(op.reshape(dy, apart)), list(range(0, len(apart), 2)))
    return [op.reshape(summed, shape_of(call.args[0]))]


@rule_for("arange")
def _arange(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    return [no_grad(argument) for argument in call.args]


@rule_for("split")
def _split(
    y: relax.Var, call: relax.Call, dy: relax.Expr, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    """The parts joined; that of a single part is no tuple."""
    joins = isinstance(dy.ty, tvm.ir.TupleType)
    return [op.concat(dy, int(call.attrs.axis)) if joins else dy]


@rule_for("concat")
def _concat(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    axis = int(call.attrs.axis)
    sizes = [int(ty.shape.values[axis]) for ty in call.args[0].ty.fields]
    return [relax.Tuple(_parts(dy, sizes, axis, ctx))]


@rule_for("stack")
def _stack(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    count, axis = len(call.args[0].ty.fields), int(call.attrs.axis)
    parts = _parts(dy, [1] * count, axis % len(shape_of(y)), ctx)
    return [relax.Tuple([ctx.emit(op.squeeze(part, [axis])) for part in parts])]


def _parts(
    expr: relax.Expr, sizes: Sequence[int], axis: int, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    """Parts of these sizes; TVM splits nothing into a tuple of one."""
    if len(sizes) == 1:
        return [expr]
    parts = ctx.emit(op.split(expr, np.cumsum(sizes)[:-1].tolist(), axis))
    return [ctx.emit(relax.TupleGetItem(parts, i)) for i in range(len(sizes))]


@rule_for("image.resize2d")
def _resize2d(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    """Resizing is linear in each direction: the gradient multiplies by the transposed matrices.
    Where pixels are only repeated, it is a sum over windows."""
    x, attrs = call.args[0], call.attrs
    layout, dtype = str(attrs.layout), dtype_of(x)
    if sorted(layout) != sorted("NCHW"):
        raise UnsupportedOp(f"the gradient of image.resize2d in layout {layout}", "NCHW or NHWC")
    options = (
        str(attrs.method), str(attrs.coordinate_transformation_mode), str(attrs.rounding_method),
        float(attrs.cubic_alpha), int(attrs.cubic_exclude), float(attrs.extrapolation_value),
    )  # fmt: skip
    old, new = (
        {letter: shape_of(v)[layout.index(letter)] for letter in layout} for v in (x, y)
    )  # fmt: skip
    if any(roi != 0 for roi in map(float, attrs.roi)):
        raise UnsupportedOp("the gradient of image.resize2d with an roi", "the whole image")
    rows, cols = (_matrix(old[letter], new[letter], *options) for letter in "HW")
    dy = ctx.emit(op.astype(dy, dtype)) if dtype_of(dy) != dtype else dy
    factors = [new[letter] // old[letter] for letter in "HW"]
    if all(
        np.array_equal(matrix, np.repeat(np.eye(matrix.shape[1]), factor, axis=0))
        for matrix, factor in zip((rows, cols), factors, strict=True)
    ):
        means = ctx.emit(op.nn.avg_pool2d(dy, factors, factors, layout=layout))
        many = relax.const(factors[0] * factors[1], dtype)
        return [op.multiply(means, many), no_grad(call.args[1])]
    n, c = old["N"], old["C"]
    back = relax.const(np.ascontiguousarray(rows.T).astype(dtype))
    if layout.index("C") < layout.index("W"):  # both maps last
        nchw = ctx.emit(op.permute_dims(dy, [layout.index(letter) for letter in "NCHW"]))
        across = ctx.emit(op.matmul(nchw, relax.const(cols.astype(dtype))))
        dx = ctx.emit(op.matmul(back, across))
        return [op.permute_dims(dx, ["NCHW".index(a) for a in layout]), no_grad(call.args[1])]
    nhwc = ctx.emit(op.permute_dims(dy, [layout.index(letter) for letter in "NHWC"]))
    flat = ctx.emit(op.reshape(nhwc, [n, new["H"], new["W"] * c]))
    down = ctx.emit(op.matmul(back, flat))
    lines = ctx.emit(op.reshape(down, [n * old["H"], new["W"], c]))
    sides = relax.const(np.ascontiguousarray(cols.T).astype(dtype))
    dx = op.reshape(op.matmul(sides, lines), [n, old["H"], old["W"], c])
    return [op.permute_dims(dx, ["NHWC".index(a) for a in layout]), no_grad(call.args[1])]


@functools.lru_cache(maxsize=256)
def _matrix(
    old: int, new: int, method: str, mode: str, rounding: str, alpha: float, exclude: int,
    extrapolation: float,
) -> np.ndarray:  # fmt: skip
    """(new, old) weights of resizing one axis, in float64: TVM's own kernel on unit vectors."""
    import tvm

    x = relax.Var("x", relax.TensorType((1, old, old, old), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            resized = op.image.resize2d(
                x, (new, old), layout="NHWC", method=method, rounding_method=rounding,
                coordinate_transformation_mode=mode, cubic_alpha=alpha, cubic_exclude=exclude,
                extrapolation_value=extrapolation,
            )  # fmt: skip
            y = builder.emit_output(resized)
        builder.emit_func_output(y)
    vm = relax.VirtualMachine(tvm.compile(builder.get(), "llvm"), tvm.cpu())
    units = np.repeat(np.eye(old, dtype="float32")[None, :, None], old, axis=2)
    return vm["main"](tvm.runtime.tensor(units)).numpy()[0, :, 0].astype("float64")
