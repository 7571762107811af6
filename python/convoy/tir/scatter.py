"""GPU kernels that scatter updates into a tensor, a thread for each update.

Updates of the same element are combined by atomic operations on an accumulator: maxima and minima
of integers in the order of the values, sums in float32 or int32, and, where the last update wins,
the largest number of an update. TVM takes one update after the other.

Sums of floats are added up in any order, as by PyTorch; all else is the same in each run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx import Expr
from tvm.tirx.script import builder as T

from .builder import KERNEL, TIMED_BY_VALUES, coordinates, when
from .float_order import float_of, ordered_bits

_THREADS = 256
#: Elements of a tensor, at most, so that 32 bits number them.
MOST = (1 << 31) - 1
_FLOATS = ("float16", "bfloat16", "float32")
_NAN = {"max": MOST, "min": -MOST - 1}


@dataclass(frozen=True)
class Scatter:
    """Updates of one dtype into a tensor of it.

    Attributes:
        shape: Of the tensor.
        indices: Shape of the indices, whose dtype is ``index_dtype``.
        updates: Shape of the updates.
        reduction: ``update`` (the last one wins), ``add``, ``max`` or ``min``.
        axis: The axis along which indices of the updates' shape are; None where the last axis of
            the indices has the places along the first axes of the tensor.
    """

    shape: tuple[int, ...]
    indices: tuple[int, ...]
    updates: tuple[int, ...]
    dtype: str
    index_dtype: str
    reduction: str
    axis: int | None

    @property
    def supported(self) -> bool:
        shapes = (self.shape, self.indices, self.updates)
        sizes = [math.prod(shape) for shape in shapes]
        summed = dict.fromkeys(("add", "max", "min"), (*_FLOATS, "int32"))
        dtypes = {"update": (self.dtype,), **summed}.get(self.reduction, ())
        return min(sizes) > 0 and max(sizes) <= MOST and self.dtype in dtypes

    @property
    def accumulator_dtype(self) -> str:
        """Dtype of the accumulator, which has as many elements as the tensor."""
        return "float32" if self.reduction == "add" and self.dtype in _FLOATS else "int32"

    @property
    def _reads_keys(self) -> bool:
        return self.reduction in _NAN and self.dtype in _FLOATS

    def place(self, indices: tirx.Buffer, update: Expr) -> tuple[Expr, Expr]:
        """The number of the element that an update goes to, and whether there is one."""
        known, place = tirx.const(True, "bool"), tirx.const(0, "int32")
        if self.axis is None:
            length = self.indices[-1]
            rest = math.prod(self.shape[length:])
            place = update % rest
            given = [(axis, update // rest * length + axis) for axis in range(length)]
        else:
            for axis, at in enumerate(coordinates(update, self.updates)):
                if axis != self.axis:
                    place += at * math.prod(self.shape[axis + 1 :])
            given = [(self.axis, update)]
        for axis, number in given:
            index, size = indices[number], self.shape[axis]
            known = tirx.all(known, index >= -size, index < size)
            index = tirx.Select(index < 0, index + size, index).astype("int32")
            place += index * math.prod(self.shape[axis + 1 :])
        return place, known

    def encoded(self, value: Expr) -> Expr:
        """Return a value as the accumulator holds it: for maxima and minima of floats an integer in
        their order, NaN beyond all of them."""
        if self.reduction == "add":
            return value.astype(self.accumulator_dtype)
        if not self._reads_keys:
            return value
        wide = value.astype("float32")
        nan = tirx.const(_NAN[self.reduction], "int32")
        return tirx.Select(tirx.isnan(wide), nan, ordered_bits(wide))

    def decoded(self, held: Expr, data: Expr, updates: tirx.Buffer) -> Expr:
        """Return the element of the result for what the accumulator holds."""
        if self.reduction == "update":
            return tirx.if_then_else(held < 0, data, updates[tirx.max(held, 0)])
        if self._reads_keys:
            held = float_of(held)
        return held.astype(self.dtype)


def scatter_kernels(scatter: Scatter) -> tirx.PrimFunc:
    """(data, indices, updates, accumulator, result), each with one axis of all elements: three
    kernels in one function."""
    size, count = math.prod(scatter.shape), math.prod(scatter.updates)
    last_wins = scatter.reduction == "update"
    atomic = {"add": "atomicAdd", "min": "atomicMin"}.get(scatter.reduction, "atomicMax")
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name("scatter")
            T.func_attr({**KERNEL, TIMED_BY_VALUES: True})
            data = T.arg("data", T.buffer((size,), scatter.dtype))
            number_of_indices = math.prod(scatter.indices)
            indices = T.arg("indices", T.buffer((number_of_indices,), scatter.index_dtype))
            updates = T.arg("updates", T.buffer((count,), scatter.dtype))
            accumulator = T.arg("accumulator", T.buffer((size,), scatter.accumulator_dtype))
            out = T.arg("out", T.buffer((size,), scatter.dtype))
            with T.sblock("root"):
                with _threads(size) as at:
                    nothing = tirx.const(-1, "int32")
                    T.buffer_store(
                        accumulator, nothing if last_wins else scatter.encoded(data[at]), [at]
                    )
                with _threads(count) as at:
                    place, known = scatter.place(indices, at)
                    value = at if last_wins else scatter.encoded(updates[at])
                    with when(known):
                        target = T.address_of(accumulator[place])
                        T.evaluate(tirx.call_extern(accumulator.dtype, atomic, target, value))
                with _threads(size) as at:
                    T.buffer_store(out, scatter.decoded(accumulator[at], data[at], updates), [at])
        return builder.get()


@contextmanager
def _threads(count: int) -> Iterator[Expr]:
    """A kernel with a thread for each of ``count`` elements."""
    with (
        T.thread_binding(0, -(-count // _THREADS), thread="blockIdx.x") as block,
        T.thread_binding(0, _THREADS, thread="threadIdx.x") as thread,
    ):
        at = block * _THREADS + thread
        with when(at < count, count % _THREADS > 0):
            yield at
