"""Pad groups of elements along an axis with zeros in the weights that a value is computed from, so
that no kernel pads it at run time."""

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

_VIEWS = relax_ops("reshape permute_dims")
#: Operators through which padding can be moved to the weights.
PASSED = _VIEWS | relax_ops("add multiply divide astype strided_slice")


@dataclass(frozen=True)
class Groups:
    """An axis of ``count`` groups of ``size`` elements, each to be padded to ``target``."""

    axis: int
    count: int
    size: int
    target: int

    @property
    def extent(self) -> int:
        """Elements of the axis without padding."""
        return self.count * self.size

    def padded_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape with this axis padded."""
        return (*shape[: self.axis], self.count * self.target, *shape[self.axis + 1 :])

    def in_operand(self, view: relax.Call) -> Groups | None:
        """The same groups in the operand of a reshape or permutation; None if an axis of it does
        not hold whole groups."""
        if op_name(view) == "relax.permute_dims":
            axes = view.attrs.axes
            places = ints(axes) if axes is not None else range(rank_of(view))[::-1]
            return replace(self, axis=places[self.axis] % rank_of(view))
        shape, behind = shape_of(view.args[0]), math.prod(shape_of(view)[self.axis + 1 :])
        for axis, size in enumerate(shape):
            if math.prod(shape[axis + 1 :]) == behind and size % self.size == 0 and size > 1:
                return replace(self, axis=axis, count=size // self.size)
        return None


class WeightPadding:
    """Padded values of a rewriter, computed from padded weights."""

    def __init__(self, rewriter: Rewriter, may_pad: Callable[[relax.Expr], bool]) -> None:
        """``may_pad`` tells whether a matmul may be computed with padded weights instead."""
        self._rewriter, self._may_pad = rewriter, may_pad
        self._known: dict[tuple[relax.Expr, Groups], relax.Expr | None] = {}
        #: Values that are sliced from padded ones, with their groups and these.
        self._sliced: dict[relax.Expr, tuple[Groups, relax.Expr]] = {}

    def add_slice(self, value: relax.Expr, groups: Groups, padded: relax.Expr) -> None:
        """Note that a value is sliced from one that is padded with zeros."""
        self._sliced[value] = groups, padded

    def padded(self, value: relax.Expr, groups: Groups) -> relax.Expr | None:
        """The value with padded groups; None if its weights cannot be padded instead, or for an
        axis of one element, along which operands broadcast."""
        if groups.extent == 1:
            return None
        key = value, groups
        if key not in self._known:
            self._known[key] = self._made(value, groups)
        return self._known[key]

    def sliced_groups(self, value: relax.Expr, axis: int) -> Groups | None:
        """The groups along an axis that were sliced from padded ones, seen through views."""
        if value in self._sliced:
            own, _ = self._sliced[value]
            return own if own.axis == axis else None
        view = self._rewriter.producer(value)
        if view is None or op_name(view) not in _VIEWS:
            return None
        elements = Groups(axis, shape_of(view)[axis], 1, 1)  # whose last ones the groups are of
        inner = elements.in_operand(view)
        found = self.sliced_groups(view.args[0], inner.axis) if inner is not None else None
        if found is None or shape_of(view)[axis] % found.size:
            return None
        return replace(found, axis=axis, count=shape_of(view)[axis] // found.size)

    def _made(self, value: relax.Expr, groups: Groups) -> relax.Expr | None:
        if value in self._sliced:
            own, padded = self._sliced[value]
            return padded if own == groups else None
        if is_const(value):
            return padded_const(value, groups)
        made = self._rewriter.producer(value)
        name = op_name(made)
        if made is None or name not in PASSED | {"relax.matmul"}:
            return None
        if name == "relax.matmul":
            return self._matmul(made, groups) if self._may_pad(value) else None
        if name in _VIEWS:
            return self._view(made, groups)
        if name == "relax.strided_slice":
            return self._slice(made, groups)
        if name == "relax.astype":
            return self._with_operands(made, self.padded(made.args[0], groups))
        if name == "relax.add":
            return self._sum(made, groups)
        return self._scaled(made, groups)

    def _matmul(self, made: relax.Call, groups: Groups) -> relax.Expr | None:
        """A matmul by constant weights, whose columns the groups are."""
        weights = made.args[1]
        last = groups.axis == rank_of(made) - 1
        if not last or not is_const(weights) or rank_of(weights) != 2:
            return None
        padded = padded_const(weights, replace(groups, axis=1))
        return self._with_operands(made, made.args[0], padded)

    def _view(self, made: relax.Call, groups: Groups) -> relax.Expr | None:
        inner = groups.in_operand(made)
        data = self.padded(made.args[0], inner) if inner is not None else None
        if data is None or op_name(made) == "relax.permute_dims":
            return self._with_operands(made, data)
        return self._rewriter.emit(relax.op.reshape(data, groups.padded_shape(shape_of(made))))

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
        data = self.padded(x, replace(groups, count=whole // size))
        if data is None:
            return None
        return self._rewriter.emit(relax.op.strided_slice(data, axes, begins, ends, strides))

    def _sum(self, made: relax.Call, groups: Groups) -> relax.Expr | None:
        """A sum of tensors that all have the axis: one that broadcasts is not zero behind the
        groups."""
        operands = []
        for arg in made.args:
            axis = groups.axis - rank_of(made) + rank_of(arg)
            if axis < 0 or shape_of(arg)[axis] != groups.extent:
                return None
            operands.append(self.padded(arg, replace(groups, axis=axis)))
        return self._with_operands(made, *operands)

    def _scaled(self, made: relax.Call, groups: Groups) -> relax.Expr | None:
        """A tensor times or over constants that do not vary along the axis, where zeros stay
        zeros."""
        data, scale = made.args
        if not is_const(scale):
            return None
        axis, values = groups.axis - rank_of(made) + rank_of(scale), as_numpy(scale)
        varies = axis >= 0 and shape_of(scale)[axis] != 1
        if varies or not (np.isfinite(values.astype(np.float64)).all() and values.all()):
            return None
        if shape_of(data) != shape_of(made):
            return None
        return self._with_operands(made, self.padded(data, groups), scale)

    def _with_operands(self, made: relax.Call, *operands: relax.Expr | None) -> relax.Expr | None:
        """The same call of other operands; None if one of them is missing."""
        found = [one for one in operands if one is not None]
        return self._rewriter.emit(call_like(made, found)) if len(found) == len(operands) else None


def padded_const(const: relax.Expr, groups: Groups) -> relax.Expr:
    """A constant with zeros behind each group."""
    array = as_numpy(const)
    shape = array.shape
    split = (*shape[: groups.axis], groups.count, groups.size, *shape[groups.axis + 1 :])
    width = [(0, 0)] * len(split)
    width[groups.axis + 1] = (0, groups.target - groups.size)
    return make_const(
        np.pad(array.reshape(split), width).reshape(groups.padded_shape(shape)), dtype_of(const)
    )
