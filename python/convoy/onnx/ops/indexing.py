"""Gathers, scatters and what is found by comparing."""

from __future__ import annotations

import math

import numpy as np

from ...errors import UnsupportedDtype
from ...ir.dtypes import numpy_dtype
from ..call import Call, Value, converter

#: Dtypes that TVM does not sort, and wider ones that it does.
_SORTED = {"int16": "int32", "uint16": "int32", "uint32": "int64", "bfloat16": "float32"}


def _from_front(call: Call, indices: Value, size: Value) -> Value:
    """Indices without negative ones, as int64."""
    indices = call.cast(indices, "int64")
    if isinstance(indices, np.ndarray):
        return np.where(indices < 0, indices + size, indices)
    negative = call.do("Less", indices, np.array(0))
    return call.do("Where", negative, call.do("Add", indices, size), indices)


@converter("Gather")
def gather(call: Call) -> Value:
    axis = call.axis(0)
    size = call.dims()[axis]
    array = call.array(1)
    if not isinstance(size, int):  # indices from the end wrap around
        return call.make("take", call.x(), call.x(1), axis, "wrap")
    if array is not None and (array.size == 1 or _is_run(array)) and size and call.is_static():
        first = int(array.reshape(-1)[0]) % size
        part = call.do("Slice", call.inputs[0], np.array([first]),
                       np.array([first + array.size]), np.array([axis]))  # fmt: skip
        shape = call.shape()
        return call.reshape(part, (*shape[:axis], *array.shape, *shape[axis + 1 :]))
    indices = call.expr(_from_front(call, call.value(1), np.array(size)))
    return call.make("take", call.x(), indices, axis, "clip")


def _is_run(array: np.ndarray) -> bool:
    """Whether indices are one after the other, from the front."""
    return (
        array.ndim == 1 and array.size > 0 and array[0] >= 0 and bool((np.diff(array) == 1).all())
    )


@converter("GatherElements")
def gather_elements(call: Call) -> Value:
    axis = call.axis(0)
    indices = _from_front(call, call.value(1), np.array(call.shape()[axis]))
    return call.make("gather_elements", call.x(), call.expr(indices), axis)


@converter("GatherND")
def gather_nd(call: Call) -> Value:
    """One gather of rows: coordinates become positions in the flattened axes."""
    batch = int(call.attrs.get("batch_dims", 0))
    data, indices = call.shape(), call.shape(1)
    depth = indices[-1]
    axes, rest = data[batch : batch + depth], data[batch + depth :]
    flat = call.reshape(call.inputs[0], (math.prod(data[:batch]) * math.prod(axes), *rest))
    positions = _positions(call, call.value(1), axes)
    if batch:
        groups = np.arange(math.prod(data[:batch])).reshape(
            *data[:batch], *(1,) * (len(indices) - 1 - batch)
        )
        positions = call.do("Add", positions, groups * math.prod(axes))
    return call.do("Gather", flat, positions, axis=0)


def _positions(call: Call, indices: Value, axes: tuple[int, ...]) -> Value:
    """Positions in flattened ``axes`` of coordinates in the last axis, which goes."""
    indices = call.cast(indices, "int64")
    sizes = np.array(axes, "int64")
    negative = call.do("Less", indices, np.array(0))
    indices = call.do("Where", negative, call.do("Add", indices, sizes), indices)
    strides = np.array([math.prod(axes[i + 1 :]) for i in range(len(axes))], "int64")
    weighted = call.do("Mul", indices, strides)
    return call.do("ReduceSum", weighted, np.array([-1]), keepdims=0)


@converter("Scatter")
def scatter(call: Call) -> Value:
    return call.do("ScatterElements", *call.inputs, **call.attrs)


@converter("ScatterElements")
def scatter_elements(call: Call) -> Value:
    axis = call.axis(0)
    indices = _from_front(call, call.value(1), np.array(call.shape()[axis]))
    return _scatter(call, call.value(0), indices, call.value(2), axis)


@converter("ScatterND")
def scatter_nd(call: Call) -> Value:
    sizes, indices = call.shape(), call.shape(1)
    depth = indices[-1]
    positions = call.reshape(_positions(call, call.value(1), sizes[:depth]), (-1,))
    rest = math.prod(sizes[depth:])
    if rest != 1:
        positions = call.do("Mul", call.reshape(positions, (-1, 1)), np.array(rest))
        positions = call.reshape(call.do("Add", positions, np.arange(rest)), (-1,))
    data, updates = (call.reshape(call.value(i), (-1,)) for i in (0, 2))
    return call.reshape(_scatter(call, data, positions, updates, 0), sizes)


def _scatter(call: Call, data: Value, places: Value, updates: Value, axis: int) -> Value:
    if 0 in call.shape(2):
        return data
    reduction = call.attrs.get("reduction", "none")
    dtype = call.dtype()
    if dtype == "bool":
        data, updates = call.cast(data, "int8"), call.cast(updates, "int8")
    how = "update" if reduction == "none" else reduction
    result = call.make(
        "scatter_elements", call.expr(data), call.expr(places), call.expr(updates), axis, how
    )
    return call.do("Cast", result, to=9) if dtype == "bool" else result


@converter("TensorScatter")
def tensor_scatter(call: Call) -> Value:
    """Write a run of updates into a cache, (batch, ..., sequence, ...), at each one's place."""
    axis = call.axis(-2)
    sizes, update = call.shape(), call.shape(1)
    rank, count = call.rank(), update[axis]
    steps = np.arange(count).reshape([-1 if i == axis else 1 for i in range(rank)])
    places: Value = steps
    if call.has(2):
        starts = call.reshape(call.value(2), [-1] + [1] * (rank - 1))
        places = call.do("Add", starts, steps)
    if call.attrs.get("mode", "linear") == "circular":
        places = call.do("Mod", places, np.array(sizes[axis]))
    places = call.do("Expand", places, np.array(update))
    return call.do("ScatterElements", call.value(0), places, call.value(1), axis=axis)


@converter("OneHot")
def one_hot(call: Call) -> Value:
    depth = int(call.constant(1, "depth").reshape(-1)[0])
    rank = call.rank()
    axis = int(call.attrs.get("axis", -1)) % (rank + 1)
    indices = _from_front(call, call.value(0), np.array(depth))
    indices = call.do("Unsqueeze", indices, np.array([axis]))
    classes = np.arange(depth).reshape([-1 if i == axis else 1 for i in range(rank + 1)])
    hit = call.do("Equal", indices, classes)
    values = call.value(2)
    off, on = (call.do("Gather", values, np.array(i), axis=0) for i in (0, 1))
    return call.do("Where", hit, on, off)


@converter("TopK")
def top_k(call: Call) -> Value:
    """Values and indices; the largest (or smallest) first."""
    k = int(call.attrs["k"]) if call.version < 10 else int(call.constant(1, "k").reshape(-1)[0])
    axis, largest, dtype = call.axis(-1), bool(call.attrs.get("largest", 1)), call.dtype()
    if dtype == "uint64":
        raise UnsupportedDtype("values of uint64", "another dtype")
    if k == 0:  # topk() of Relax takes that for all
        shape = list(call.shape())
        shape[axis] = 0
        return np.zeros(shape, numpy_dtype(dtype)), np.zeros(shape, "int64")
    x = call.expr(call.cast(call.value(0), _SORTED.get(dtype, dtype)))
    values, places = call.items(call.make("topk", x, k, axis, "both", largest, "int64"), 2)
    return call.cast(values, dtype), places


@converter("ArgMax", "ArgMin")
def arg_reduce(call: Call) -> Value:
    axis, last = call.axis(0), bool(call.attrs.get("select_last_index", 0))
    x = call.value(0)
    if not call.dtype().startswith(("float32", "float64", "int32", "int64")):
        x = call.cast(x, "float32" if "float" in call.dtype() else "int32")
    if last:
        size = call.shape()[axis]
        x = call.do("Gather", x, np.arange(size)[::-1].copy(), axis=axis)
    found = call.make(call.op.lower(), call.expr(x), axis, bool(call.attrs.get("keepdims", 1)))
    found = call.cast(found, "int64")
    return call.do("Sub", np.array(call.shape()[axis] - 1), found) if last else found


@converter("Compress")
def compress(call: Call) -> Value:
    """A gather, of a condition that is known."""
    (kept,) = np.nonzero(call.constant(1, "condition"))
    if "axis" in call.attrs:
        return call.do("Gather", call.inputs[0], kept, axis=call.axis(0))
    return call.do("Gather", call.reshape(call.inputs[0], (-1,)), kept, axis=0)
