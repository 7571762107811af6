"""Indexing as PyTorch does it: negative positions, index tensors on some axes, windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op

from ..errors import UnsupportedOp
from ..graph.expr import shape_of

Emit = Callable[[relax.Expr], relax.Var]


def _select(node: Any, importer: Any) -> relax.Expr:
    """``x[..., index, ...]`` on one axis, which goes."""
    x, axis, index = importer.retrieve_args(node)
    emit, shape = importer.block_builder.emit, shape_of(x)
    axis %= len(shape)
    first = index % shape[axis]
    part = emit(op.strided_slice(x, [axis], [first], [first + 1]))
    return emit(op.reshape(part, shape[:axis] + shape[axis + 1 :]))


def _unfold(node: Any, importer: Any) -> relax.Expr:
    """Windows of an axis, ``size`` long and ``step`` apart; their elements are the last axis."""
    x, axis, size, step = importer.retrieve_args(node)
    emit, shape = importer.block_builder.emit, shape_of(x)
    axis %= len(shape)
    starts = np.arange(0, shape[axis] - size + 1, step)
    positions = relax.const(starts[:, None] + np.arange(size), "int64")
    windows = emit(op.take(x, positions, axis=axis, mode="clip"))
    order = [i for i in range(len(shape) + 1) if i != axis + 1]
    return emit(op.permute_dims(windows, [*order, axis + 1]))


def _as_strided(node: Any, importer: Any) -> relax.Expr:
    """(x, sizes, strides, offset) of what lies in the memory that PyTorch gives to ``x``."""
    x, sizes, strides, *rest = importer.retrieve_args(node)
    emit, held = importer.block_builder.emit, node.args[0].meta["val"]
    given = rest[0] if rest else node.kwargs.get("storage_offset")
    offset = held.storage_offset() if given is None else given
    order = sorted(range(held.dim()), key=held.stride, reverse=True)
    if not held.permute(order).is_contiguous() or held.storage_offset():
        raise UnsupportedOp("as_strided of a part of a tensor", "one of a whole tensor")
    positions = np.asarray(offset, "int64")
    for size, stride in zip(sizes, strides, strict=True):
        positions = positions[..., None] + np.arange(size) * stride
    if positions.size and not 0 <= positions.min() <= positions.max() < held.numel():
        raise UnsupportedOp("as_strided beyond a tensor", "positions inside of it")
    flat = emit(op.reshape(emit(op.permute_dims(x, order)), [held.numel()]))
    return emit(op.take(flat, relax.const(positions, "int64"), axis=0, mode="clip"))


class _Places:
    """The elements that index tensors name: the indexed axes come first, as one.

    Attributes:
        positions: Of the elements along that one axis; as all index tensors broadcast.
        moved: Where the result has the axes of ``positions``: at the first indexed axis where the
            indexed axes are neighbours, else in front.
    """

    def __init__(self, emit: Emit, x: relax.Expr, indices: Sequence[relax.Expr | None]) -> None:
        self._emit, self.shape = emit, shape_of(x)
        named = {i: index for i, index in enumerate(indices) if index is not None}
        axes = list(named)
        self._rest = [i for i in range(len(self.shape)) if i not in axes]
        self._order = [*axes, *self._rest]
        self.moved = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
        count, position = 1, None
        for axis in reversed(axes):
            index, size = named[axis], self.shape[axis]
            if str(index.ty.dtype) == "bool":
                raise UnsupportedOp("a mask as an index", "torch.where")
            index = emit(op.astype(index, "int64"))
            zero, length = relax.const(0, "int64"), relax.const(size, "int64")
            index = emit(op.where(op.less(index, zero), op.add(index, length), index))
            index = emit(op.multiply(index, relax.const(count, "int64"))) if count > 1 else index
            position = index if position is None else emit(op.add(position, index))
            count *= size
        self.positions, self._count = position, count
        self.rest_sizes = [self.shape[i] for i in self._rest]

    def in_front(self, x: relax.Expr) -> relax.Expr:
        """(elements of the indexed axes, the other axes)."""
        moved = self._emit(op.permute_dims(x, self._order))
        return self._emit(op.reshape(moved, [self._count, *self.rest_sizes]))

    def back(self, x: relax.Expr) -> relax.Expr:
        """The opposite of :meth:`in_front`."""
        split = self._emit(op.reshape(x, [self.shape[i] for i in self._order]))
        return self._emit(op.permute_dims(split, list(np.argsort(self._order))))

    def result_order(self, to_result: bool) -> list[int]:
        """Axes from (positions, rest) to those of a result, or back."""
        rank, rest = len(shape_of(self.positions)), len(self._rest)
        front, behind = list(range(rank)), list(range(rank, rank + rest))
        order = [*behind[: self.moved], *front, *behind[self.moved :]]
        return order if to_result else [int(i) for i in np.argsort(order)]


def _index(node: Any, importer: Any) -> relax.Expr:
    """``x[indices]`` with an index tensor, or None, for each leading axis."""
    x, indices = importer.retrieve_args(node)
    emit = importer.block_builder.emit
    places = _Places(emit, x, indices)
    given = [index for index in indices if index is not None]
    if len(given) == 1:
        return emit(op.take(x, places.positions, axis=places.moved, mode="clip"))
    found = emit(op.take(places.in_front(x), places.positions, axis=0, mode="clip"))
    return emit(op.permute_dims(found, places.result_order(to_result=True)))


def _index_put(node: Any, importer: Any) -> relax.Expr:
    """``x`` with values, which broadcast, at ``x[indices]``, or added to what is there."""
    x, indices, values, *rest = importer.retrieve_args(node)
    accumulate = bool(rest[0]) if rest else bool(node.kwargs.get("accumulate", False))
    emit = importer.block_builder.emit
    places = _Places(emit, x, indices)
    at = shape_of(places.positions)
    both = [*at, *places.rest_sizes]
    values = emit(op.broadcast_to(values, [both[i] for i in places.result_order(True)]))
    values = emit(op.permute_dims(values, places.result_order(to_result=False)))
    values = emit(op.reshape(values, [math.prod(at), *places.rest_sizes]))
    rows = emit(op.reshape(places.positions, [math.prod(at), 1]))
    reduction = "add" if accumulate else "update"
    return places.back(emit(op.scatter_nd(places.in_front(x), rows, values, reduction)))


def _slice_scatter(node: Any, importer: Any) -> relax.Expr:
    """``x`` with a source in the place of a slice: unchanged where that has no elements."""
    x, source, *_ = importer.retrieve_args(node)
    return importer._slice_scatter(node) if math.prod(shape_of(source)) else x


#: Names of reductions in TVM.
_REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


def _scatter(reduction: str | None) -> Callable[[Any, Any], relax.Expr]:
    """A converter of (x, axis, index, source): the leading part of the source that the index covers
    goes to the index's positions on the axis, or is reduced with what is there; the last argument
    names a reduction that is not given here."""

    def convert(node: Any, importer: Any) -> relax.Expr:
        x, axis, index, source, *rest = importer.retrieve_args(node)
        how = reduction or _REDUCTIONS[rest[0]]
        emit, covered = importer.block_builder.emit, shape_of(index)
        if shape_of(source) != covered:
            axes = list(range(len(covered)))
            source = emit(op.strided_slice(source, axes, [0] * len(covered), covered))
        return emit(op.scatter_elements(x, index, source, axis % len(covered), how))

    return convert


CONVERTERS = {
    "select.int": _select,
    "unfold.default": _unfold,
    "index.Tensor": _index,
    "_unsafe_index.Tensor": _index,
    "index_put.default": _index_put,
    "_unsafe_index_put.default": _index_put,
    "scatter.src": _scatter("update"),
    "scatter_add.default": _scatter("add"),
    "scatter_reduce.two": _scatter(None),
    "slice_scatter.default": _slice_scatter,
    "as_strided.default": _as_strided,
}
