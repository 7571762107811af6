"""Lengthen groups of elements along an axis with zeros where a value is made from constants, so
that nothing pads it when the network runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from tvm import relax

from ..graph.expr import (
    as_numpy,
    call_like,
    dtype_of,
    ints,
    is_const,
    make_const,
    op_name,
    rank_of,
    relax_ops,
    shape_of,
)
from ..graph.rewriter import Rewriter

#: Operators through which zeros stay where they are.
_SCALES = relax_ops("multiply divide")
PASSED = _SCALES | relax_ops("add astype reshape permute_dims strided_slice")


@dataclass(frozen=True)
class Groups:
    """An axis of ``count`` groups of ``size`` elements each, which become ``target``."""

    axis: int
    count: int
    size: int
    target: int

    @property
    def extent(self) -> int:
        """Elements of the axis before."""
        return self.count * self.size

    def lengthened(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape behind."""
        return (*shape[: self.axis], self.count * self.target, *shape[self.axis + 1 :])

    def before(self, made: relax.Call) -> Groups | None:
        """The groups of what a view is made from; None if they are not whole there."""
        if op_name(made) == "relax.permute_dims":
            axes = made.attrs.axes
            places = ints(axes) if axes is not None else range(rank_of(made))[::-1]
            return replace(self, axis=places[self.axis] % rank_of(made))
        shape, behind = shape_of(made.args[0]), math.prod(shape_of(made)[self.axis + 1 :])
        for axis, size in enumerate(shape):
            if math.prod(shape[axis + 1 :]) == behind and size % self.size == 0 and size > 1:
                return replace(self, axis=axis, count=size // self.size)
        return None


class Longer:
    """Values of a rewriter with longer groups."""

    def __init__(self, rewriter: Rewriter, may_change: Callable[[relax.Expr], bool]) -> None:
        """``may_change`` tells whether a product may be computed with longer groups alone."""
        self._rewriter, self._may_change = rewriter, may_change
        self._known: dict[tuple[relax.Expr, Groups], relax.Expr | None] = {}
        #: Values that are beginnings of longer groups, with these.
        self._cut: dict[relax.Expr, tuple[Groups, relax.Expr]] = {}

    def add_cut(self, value: relax.Expr, groups: Groups, longer: relax.Expr) -> None:
        """Note that a value is cut from another one, which has zeros behind it."""
        self._cut[value] = groups, longer

    def of(self, value: relax.Expr, groups: Groups) -> relax.Expr | None:
        """The value with longer groups; None if it is not made from constants, or where the axis is
        one that operands may be spread along."""
        if groups.extent == 1:
            return None
        key = value, groups
        if key not in self._known:
            self._known[key] = self._made(value, groups)
        return self._known[key]

    def cut_of(self, value: relax.Expr, axis: int) -> Groups | None:
        """The groups along an axis that were cut from longer ones, seen through views."""
        if value in self._cut:
            own, _ = self._cut[value]
            return own if own.axis == axis else None
        made = self._rewriter.producer(value)
        if op_name(made) not in ("relax.reshape", "relax.permute_dims"):
            return None
        assert made is not None
        whole = Groups(axis, shape_of(made)[axis], 1, 1)  # whose last elements the groups are of
        before = whole.before(made)
        found = self.cut_of(made.args[0], before.axis) if before is not None else None
        if found is None or shape_of(made)[axis] % found.size:
            return None
        return replace(found, axis=axis, count=shape_of(made)[axis] // found.size)

    def _made(self, value: relax.Expr, groups: Groups) -> relax.Expr | None:
        if value in self._cut:
            own, longer = self._cut[value]
            return longer if own == groups else None
        if is_const(value):
            return lengthened(value, groups)
        made = self._rewriter.producer(value)
        if made is None:
            return None
        name = op_name(made)
        if name == "relax.matmul":
            return self._product(made, groups) if self._may_change(value) else None
        if name not in PASSED:
            return None
        if name in ("relax.reshape", "relax.permute_dims"):
            before = groups.before(made)
            data = self.of(made.args[0], before) if before is not None else None
            if data is None:
                return None
            if name == "relax.permute_dims":
                return self._emit(made, [data])
            return self._rewriter.emit(relax.op.reshape(data, groups.lengthened(shape_of(made))))
        if name == "relax.strided_slice":
            return self._slice(made, groups)
        if name == "relax.astype":
            data = self.of(made.args[0], groups)
            return self._emit(made, [data]) if data is not None else None
        return self._elementwise(made, groups)

    def _product(self, made: relax.Call, groups: Groups) -> relax.Expr | None:
        """A product with a constant matrix, whose columns the groups are."""
        matrix = made.args[1]
        last = groups.axis == rank_of(made) - 1
        if not last or not is_const(matrix) or rank_of(matrix) != 2:
            return None
        return self._emit(made, [made.args[0], lengthened(matrix, replace(groups, axis=1))])

    def _slice(self, made: relax.Call, groups: Groups) -> relax.Expr | None:
        """A slice along other axes, or one of whole groups."""
        x, axis, size = made.args[0], groups.axis, groups.size
        whole = shape_of(x)[axis]
        if whole % size or not all(isinstance(part, relax.Tuple) for part in made.args[1:]):
            return None
        axes, begins, ends, *steps = (
            [int(bound) for bound in part.fields] for part in made.args[1:]
        )
        strides = steps[0] if steps else [1] * len(axes)
        for place, one in enumerate(axes):
            if one % rank_of(x) == axis:
                begin = begins[place] + whole * (begins[place] < 0)
                if begin % size or strides[place] != 1:
                    return None
                begins[place] = begin // size * groups.target
                ends[place] = begins[place] + groups.count * groups.target
        data = self.of(x, replace(groups, count=whole // size))
        if data is None:
            return None
        return self._rewriter.emit(relax.op.strided_slice(data, axes, begins, ends, strides))

    def _elementwise(self, made: relax.Call, groups: Groups) -> relax.Expr | None:
        """A scale, whatever it is beyond the groups, or a shift, which is zero there."""
        args = []
        for arg in made.args:
            axis = groups.axis - rank_of(made) + rank_of(arg)
            if axis >= 0 and shape_of(arg)[axis] == groups.extent:
                args.append(self.of(arg, replace(groups, axis=axis)))
            else:
                args.append(arg if op_name(made) in _SCALES else None)
        if any(arg is None for arg in args) or not self._is_scaled(made, args):
            return None
        return self._emit(made, args)

    def _is_scaled(self, made: relax.Call, args: list[relax.Expr]) -> bool:
        """Whether zeros of the data are zeros of the result."""
        if op_name(made) == "relax.add":
            return True
        scale = made.args[1]
        if not args[1].same_as(scale) or not is_const(scale):
            return False
        values = as_numpy(scale).astype(np.float64)
        return bool(np.isfinite(values).all() and values.all())

    def _emit(self, made: relax.Call, args: list[relax.Expr]) -> relax.Expr:
        return self._rewriter.emit(call_like(made, args))


def lengthened(const: relax.Expr, groups: Groups) -> relax.Expr:
    """A constant with zeros behind each group."""
    array = as_numpy(const)
    shape = array.shape
    split = (*shape[: groups.axis], groups.count, groups.size, *shape[groups.axis + 1 :])
    width = [(0, 0)] * len(split)
    width[groups.axis + 1] = (0, groups.target - groups.size)
    return make_const(
        np.pad(array.reshape(split), width).reshape(groups.lengthened(shape)), dtype_of(const)
    )
