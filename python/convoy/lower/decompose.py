"""Rewrite operators that TVM cannot compile, or not well, into others."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from tvm import relax
from tvm.relax import op

from ..graph.expr import (
    as_numpy,
    dtype_of,
    ints,
    is_const,
    is_tensor,
    make_const,
    op_name,
    rank_of,
    relax_ops,
    shape_of,
)
from ..graph.rewriter import Rewriter
from ..graph.target import on_gpu
from ..ir.dtypes import HALF_DTYPES
from .bools import OF_BOOLS

#: Missing in TVM.
_ANYWHERE = relax_ops("ewise_fma nn.pixel_shuffle")
#: A median is sorted by the host, which cannot read a GPU's memory; a split copies all parts, where
#: slices are fused with what reads them.
_ON_GPU = relax_ops("median split")
#: TVM has no kernel of bfloat16, or one that takes its bits for those of a float16.
_ORDERS = relax_ops("sort argsort topk median argmax argmin")
#: Of one block each.
_DEVIATIONS = relax_ops("variance std")
#: Fewer results than this, of more elements each, leave most of a GPU idle: estimated.
_SMS, _LONG = 132, 1 << 15
#: Over one element they are element-wise, and fused as such.
_NORMS = relax_ops("nn.layer_norm nn.softmax")
#: TVM folds a number over zero, which it refuses.
_QUOTIENTS = relax_ops("divide floor_divide")
#: TVM expects indices of all other axes than that of the scatter.
_SCATTERS = relax_ops("scatter_elements")
#: Of one block for each row.
_SOFTMAX = relax_ops("nn.softmax nn.log_softmax")


class Decompose(Rewriter):
    """Decompose ``ops``; a module without any of them is returned unchanged."""

    ops: ClassVar[frozenset[str]] = (
        _ANYWHERE
        | _ON_GPU
        | _ORDERS
        | _DEVIATIONS
        | _NORMS
        | _QUOTIENTS
        | _SCATTERS
        | _SOFTMAX
        | OF_BOOLS.keys()
    )

    def takes(self, value: relax.Expr) -> bool:
        return super().takes(value) and _concerned(value)

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        name = op_name(call)
        if name in OF_BOOLS:
            return OF_BOOLS[name](self.emit, call)
        if name == "relax.ewise_fma":
            return op.add(self.emit(op.multiply(call.args[0], call.args[1])), call.args[2])
        if name == "relax.nn.pixel_shuffle":
            return self._pixel_shuffle(call.args[0], int(call.attrs.upscale_factor), shape_of(old))
        if name == "relax.median":
            return self._median(call, old) if on_gpu() else self._in_float32(call)
        if name in _NORMS and _is_of_one_element(old):
            return self._norm(call)
        if name in _SOFTMAX:  # of long rows
            return self._softmax(call, name == "relax.nn.log_softmax")
        if name == "relax.split":
            return self._split(call, old)
        if name in _QUOTIENTS:  # an infinity, or NaN of zero
            infinite = np.copysign(np.inf, as_numpy(call.args[1]).astype("float32"))
            return op.multiply(call.args[0], make_const(infinite, dtype_of(call)))
        if name in _SCATTERS:
            return self._scatter(call, old)
        if name in _ORDERS:
            return self._in_float32(call)
        return self._deviation(call)

    def _in_float32(self, call: relax.Call) -> relax.Expr:
        """An operator on bfloat16, whose values have the same order in float32."""
        x, *others = call.args
        wide = self.emit(op.astype(x, "float32"))
        found = self.emit(relax.Call(call.op, [wide, *others], call.attrs))
        if is_tensor(found):
            return self._narrowed(found)
        count = len(found.ty.fields)
        parts = [self.emit(relax.TupleGetItem(found, i)) for i in range(count)]
        return relax.Tuple([self.emit(self._narrowed(part)) for part in parts])

    def _narrowed(self, value: relax.Expr) -> relax.Expr:
        """A value in bfloat16; places are integers."""
        return op.astype(value, "bfloat16") if dtype_of(value) == "float32" else value

    def _pixel_shuffle(self, x: relax.Expr, factor: int, shape: tuple[int, ...]) -> relax.Expr:
        """(..., c * f * f, h, w) -> (..., c, h * f, w * f)"""
        *outer, c, rows, cols = shape
        n = len(outer)
        parts = (*outer, c, factor, factor, rows // factor, cols // factor)
        apart = self.emit(op.reshape(x, parts))
        order = [*range(n + 1), n + 3, n + 1, n + 4, n + 2]
        return op.reshape(self.emit(op.permute_dims(apart, order)), shape)

    def _split(self, call: relax.Call, old: relax.Call) -> relax.Expr:
        axis = int(call.attrs.axis) % rank_of(old.args[0])
        parts, start = [], 0
        for field in old.ty.fields:
            end = start + int(field.shape.values[axis])
            part = op.strided_slice(call.args[0], [axis], [start], [end], assume_inbound=True)
            parts.append(self.emit(part))
            start = end
        return relax.Tuple(parts)

    def _scatter(self, call: relax.Call, old: relax.Call) -> relax.Expr:
        """A scatter into the part of the data that the indices cover, beside the rest."""
        (x, *operands), attrs = call.args, call.attrs
        sizes, covered = shape_of(old), shape_of(old.args[1])
        wholes, axes = [], _uncovered(old)
        for axis in axes:
            wholes.append(x)
            x = self.emit(op.strided_slice(x, [axis], [0], [covered[axis]]))
        x = self.emit(op.scatter_elements(x, *operands, int(attrs.axis), str(attrs.reduction)))
        for axis in reversed(axes):
            rest = op.strided_slice(wholes.pop(), [axis], [covered[axis]], [sizes[axis]])
            x = self.emit(op.concat([x, self.emit(rest)], axis))
        return x

    def _norm(self, call: relax.Call) -> relax.Expr:
        """The norm of single elements: of finite ones the shift or 1, and NaN of all others."""
        x, *scale = call.args
        one, nan = (make_const(np.array(value), dtype_of(x)) for value in (1.0, np.nan))
        value = self.reshaped(scale[1], (1,)) if scale else one
        return op.where(self.emit(op.isfinite(x)), value, nan)

    def _deviation(self, call: relax.Call) -> relax.Expr:
        """The mean of the squares of distances from the mean, or its root, in float32."""
        (x,), axes, dtype = call.args, call.attrs.axis, dtype_of(call.args[0])
        if dtype in HALF_DTYPES:
            x = self.emit(op.astype(x, "float32"))
        mean = self.emit(op.mean(x, axes, True))
        distance = self.emit(op.subtract(x, mean))
        square = self.emit(op.multiply(distance, distance))
        found = self.emit(op.mean(square, axes, bool(call.attrs.keepdims)))
        if op_name(call) == "relax.std":
            found = self.emit(op.sqrt(found))
        return op.astype(found, dtype) if dtype in HALF_DTYPES else found

    def _softmax(self, call: relax.Call, logarithm: bool) -> relax.Expr:
        """The softmax of long rows in float32, or its logarithm. The distance from the maximum is
        computed by each of its readers."""
        (x,), axis, dtype = call.args, int(call.attrs.axis), dtype_of(call.args[0])
        if dtype in HALF_DTYPES:
            x = self.emit(op.astype(x, "float32"))
        largest = self.emit(op.max(x, axis, True))
        shares = self.emit(op.exp(self.emit(op.subtract(x, largest))))
        total = self.emit(op.sum(shares, axis, True))
        distance = self.emit(op.subtract(x, largest))
        if logarithm:
            found = op.subtract(distance, self.emit(op.log(total)))
        else:
            found = op.divide(self.emit(op.exp(distance)), total)
        return op.astype(self.emit(found), dtype) if dtype in HALF_DTYPES else found

    def _median(self, call: relax.Call, old: relax.Call) -> relax.Expr:
        """The lower of the two middle values of an even number, and its place for one axis."""
        x, axes = call.args[0], call.attrs.axis
        if axes is None or not len(axes):
            x = self.emit(op.reshape(x, (math.prod(shape_of(x)),)))
            axis = 0
        else:
            axis = int(axes[0]) % rank_of(x)
        middle = make_const(np.array([(shape_of(x)[axis] - 1) // 2], "int64"))
        places = self.emit(op.argsort(x, axis, False, "int64"))
        place = self.emit(op.take(places, middle, axis))
        value = self.emit(op.gather_elements(x, place, axis))
        if is_tensor(old):
            return op.reshape(value, shape_of(old))
        sizes = [tuple(int(d) for d in part.shape.values) for part in old.ty.fields]
        both = zip((value, place), sizes, strict=True)
        return relax.Tuple([self.emit(op.reshape(part, size)) for part, size in both])


def _concerned(call: relax.Call) -> bool:
    name = op_name(call)
    if name in OF_BOOLS:
        return dtype_of(call.args[0]) == "bool"
    if name in _NORMS | _SOFTMAX:
        return on_gpu() and (_is_of_one_element(call) or _has_long_rows(call))
    if name in _DEVIATIONS:
        return on_gpu() and _is_long(call)
    if name in _QUOTIENTS:
        x, divisor = call.args
        return is_const(divisor) and "float" in dtype_of(x) and not as_numpy(divisor).any()
    if name in _SCATTERS:
        return bool(_uncovered(call))
    if name in _ORDERS and dtype_of(call.args[0]) == "bfloat16":
        return True
    return name in _ANYWHERE or (on_gpu() and name in _ON_GPU)


def _uncovered(scatter: relax.Call) -> list[int]:
    """Axes that the indices of a scatter cover a part of, but for the one that it is along."""
    sizes, covered = shape_of(scatter), shape_of(scatter.args[1])
    along = int(scatter.attrs.axis) % len(sizes)
    return [i for i, size in enumerate(covered) if i != along and size < sizes[i]]


def _is_long(deviation: relax.Call) -> bool:
    """Whether a block for each result, or one thread for a scalar, takes longer than several
    kernels of the whole GPU."""
    results = math.prod(shape_of(deviation))
    count = math.prod(shape_of(deviation.args[0])) // max(1, results)
    return not rank_of(deviation) or (results < _SMS and count > _LONG)


def _has_long_rows(softmax: relax.Call) -> bool:
    """Whether the rows of a softmax are few, and too long for a block each."""
    if op_name(softmax) not in _SOFTMAX:
        return False
    shape = shape_of(softmax)
    length = shape[int(softmax.attrs.axis)]
    return length > _LONG and math.prod(shape) < _SMS * length


def _is_of_one_element(norm: relax.Call) -> bool:
    """Whether a norm is over a single element, with a scale and a shift if it is a layer norm."""
    shape, attrs = shape_of(norm.args[0]), norm.attrs
    if op_name(norm) == "relax.nn.softmax":
        return shape[int(attrs.axis)] == 1
    if op_name(norm) not in _NORMS:
        return False
    finite = attrs.epsilon > 0  # else the inverse of the deviation is infinite
    complete = bool(attrs.scale and attrs.center and finite)
    return complete and all(shape[axis] == 1 for axis in ints(attrs.axes))
