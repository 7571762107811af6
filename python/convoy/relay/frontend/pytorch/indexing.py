"""Slices, gathers and scatters."""

from __future__ import annotations

from typing import Any

import numpy as np

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import (
    broadcast_shape,
    broadcast_to,
    cast,
    const,
    dims,
    dtype_of,
    infer_shape,
    rank,
    reshape,
    scalar_like,
    select,
    transpose,
    unsqueeze,
    value_of,
)
from convoy.relay.frontend.indices import taken, wrapped
from convoy.relay.frontend.pytorch.registry import Call, convert
from convoy.relay.op import tensor as R


@convert("select", "select_copy")
def convert_select(call: Call) -> Expr:
    axis, index = call.axis(), call.get("index")
    if isinstance(index, Expr) and value_of(index) is None:
        return taken(call["self"], index, axis)
    return select(call["self"], axis, call.whole(index))


@convert("slice", "slice_copy")
def convert_slice(call: Call) -> Expr:
    data, axis = call["self"], call.axis() if call.get("dim") is not None else 0
    size = dims(data)[axis]
    start, end, step = call.get("start", 0), call.get("end", 2**31 - 1), call.get("step", 1)
    if any(isinstance(v, Expr) and value_of(v) is None for v in (start, end)):
        return R.take(data, _places(call, start, end, call.whole(step), axis), axis=axis)
    start, end = call.whole(start), min(call.whole(end), 2**31 - 1)
    if isinstance(size, int):
        start, end, step = slice(start, end, step).indices(size)
        if (start, end, step) == (0, size, 1):
            return data
    elif start == 0 and end >= 2**31 - 1 and step == 1:
        return data
    return R.strided_slice(data, begin=[start], end=[end], strides=[step], axes=[axis])


def _places(call: Call, start: Any, end: Any, step: int, axis: int) -> Expr:
    """Return the places of a slice whose bounds are computed at run time."""
    size = dims(call["self"])[axis]
    if not isinstance(size, int):
        size = R.take(R.shape_of(call["self"], "int64"), const(np.int64(axis)), axis=0)
    limits = [cast(call.tensor(v), "int64") for v in (0, size)]

    def clipped(bound: Any) -> Expr:
        place = cast(reshape(call.tensor(bound), ()), "int64")
        place = R.where(R.less(place, limits[0]), R.add(place, limits[1]), place)
        return R.minimum(R.maximum(place, limits[0]), limits[1])

    first = clipped(start)
    last = R.maximum(clipped(end), first)
    return R.arange(first, last, const(np.int64(step)), dtype="int64")


@convert("narrow")
def narrow(call: Call) -> Expr:
    start, length = call.get("start"), call.whole(call.get("length"))
    axis = call.axis()
    if isinstance(start, Expr) and value_of(start) is None:
        places = R.add(cast(reshape(start, (1,)), "int64"), const(np.arange(length)))
        return taken(call["self"], places, axis)
    start = call.whole(start)
    start = start + infer_shape(call["self"])[axis] if start < 0 else start
    return R.strided_slice(call["self"], begin=[start], end=[start + length], axes=[axis])


@convert("index_select")
def index_select(call: Call) -> Expr:
    return R.take(call["self"], call["index"], axis=call.axis())


@convert("take")
def take(call: Call) -> Expr:
    flat = R.reshape(call["self"], (-1,))
    return R.take(flat, wrapped(call["index"], dims(flat)[0]), axis=0)


@convert("gather")
def gather(call: Call) -> Expr:
    """Gather; axes of the indices may be shorter than those of the data."""
    data, index, axis = call["self"], call["index"], call.axis()
    shape, wanted = infer_shape(data), infer_shape(index)
    if not shape:
        return data
    for other, size in enumerate(wanted):
        if other != axis and size < shape[other]:
            data = R.strided_slice(data, begin=[0], end=[size], axes=[other])
    return R.gather(data, axis, index)


@convert("take_along_dim")
def take_along(call: Call) -> Expr:
    axis = call.axis()
    return R.gather(call["self"], axis, wrapped(call["indices"], dims(call["self"])[axis]))


def _tuples(call: Call, indices: list[Any], shape: tuple[int, ...]) -> tuple[Expr, list[int]]:
    """Return the indices that are given, broadcast and stacked in front, and their axes."""
    axes = [a for a, i in enumerate(indices) if i is not None]
    given = [wrapped(call.tensor(indices[a]), shape[a]) for a in axes]
    common = broadcast_shape(*(infer_shape(g) for g in given))
    spread = [unsqueeze(broadcast_to(cast(g, "int64"), common), [0]) for g in given]
    return (spread[0] if len(spread) == 1 else R.concatenate(spread, axis=0)), axes


def _with_masks(call: Call, indices: list[Any]) -> list[Any]:
    """Replace constant masks by the places where they hold.

    Raises:
        UnsupportedOp: A mask that is computed: the shape of the result depends on its values.
    """
    result: list[Any] = []
    for index in indices:
        if index is None or dtype_of(call.tensor(index)) not in ("bool", "uint8"):
            result.append(index)
            continue
        mask = value_of(index)
        if mask is None:
            raise call.error(
                "a computed mask among other indices, with which the shape depends on values",
                "indices, or the mask alone",
                "Use torch.where instead of indexing by a mask",
            )
        result.extend(const(places.astype("int64")) for places in np.nonzero(mask))
    return result


@convert("index", "_unsafe_index")
def index(call: Call) -> Expr:
    """Index by tensors; None keeps an axis."""
    data = call["self"]
    tensors = [(a, i) for a, i in enumerate(call.get("indices")) if i is not None]
    if len(tensors) == 1 and _is_computed_mask(tensors[0][1]):
        return _selected(data, tensors[0][1], tensors[0][0])
    indices = _with_masks(call, list(call.get("indices")))
    while indices and indices[-1] is None:
        indices.pop()
    given = [a for a, i in enumerate(indices) if i is not None]
    if not given:
        return data
    if len(given) == 1:
        axis = given[0]
        return taken(data, call.tensor(indices[axis]), axis)
    places, axes = _tuples(call, indices, infer_shape(data))
    rest = [a for a in range(rank(data)) if a not in axes]
    result = R.gather_nd(transpose(data, axes + rest), places, index_rank=len(axes))
    wide = rank(places) - 1
    if axes == list(range(axes[0], axes[-1] + 1)) and axes[0]:
        # Adjacent indices: their axes stay where they were.
        lead = list(range(wide, wide + axes[0]))
        order = lead + list(range(wide)) + list(range(wide + axes[0], rank(result)))
        result = transpose(result, order)
    return result


@convert("index_put", "_unsafe_index_put", "_index_put_impl")
def index_put(call: Call) -> Expr:
    """Write, or add, values at the places that tensors of indices or a mask give."""
    data, values = call["self"], cast(call["values"], dtype_of(call["self"]))
    raw = list(call.get("indices"))
    shape = infer_shape(data)
    masks = [i for i in raw if i is not None and dtype_of(i) in ("bool", "uint8")]
    if len(masks) == 1 and len(raw) == 1 and value_of(masks[0]) is None:
        if infer_shape(values) not in ((), (1,)) or call.get("accumulate"):
            raise call.error("several values at a mask that is computed", "one value")
        mask = reshape(masks[0], dims(masks[0]) + (1,) * (rank(data) - rank(masks[0])))
        return R.where(cast(mask, "bool"), reshape(values, ()), data)
    indices = _with_masks(call, raw)
    places, axes = _tuples(call, indices, shape)
    rest = [a for a in range(rank(data)) if a not in axes]
    moved = transpose(data, axes + rest)
    adjacent = axes == list(range(axes[0], axes[-1] + 1))
    where_ = axes[0] if adjacent else 0
    wide = dims(places)[1:]
    kept = [shape[a] for a in rest]
    target = broadcast_to(values, (*kept[:where_], *wide, *kept[where_:]))
    order = list(range(where_, where_ + len(wide)))
    target = transpose(target, order + [a for a in range(rank(target)) if a not in order])
    mode = "add" if call.get("accumulate") else "update"
    result = R.scatter_nd(moved, places, target, mode)
    back = [(axes + rest).index(a) for a in range(rank(data))]
    return transpose(result, back)


_REDUCTIONS = {
    "sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "amax": "max", "amin": "min",
    "mean": "mean",
}  # fmt: skip


@convert("scatter", "scatter_add", "scatter_reduce")
def scatter(call: Call) -> Expr:
    """Write or reduce along an axis.

    Raises:
        UnsupportedOp: A reduction that leaves out the values that were there.
    """
    data, places, axis = call["self"], call["index"], call.axis()
    if 0 in infer_shape(places):
        return data
    source = call.get("src")
    if source is None:
        source = call.get("value")
    mode = call.get("reduce")
    if call.short == "scatter_add":
        mode = "add"
    if not isinstance(source, Expr):
        source = broadcast_to(scalar_like(source, data), infer_shape(places))
    source = cast(source, dtype_of(data))
    for other, size in enumerate(infer_shape(places)):
        if size < infer_shape(source)[other]:
            source = R.strided_slice(source, begin=[0], end=[size], axes=[other])
    if mode and not call.get("include_self", True):
        raise call.error("include_self=False", "True")
    return R.scatter_elements(data, places, source, axis, _REDUCTIONS[mode] if mode else "update")


@convert("index_add")
def index_add(call: Call) -> Expr:
    data, axis, source = call["self"], call.axis(), call["source"]
    count = infer_shape(call["index"])[0]
    shape = [count if a == axis else 1 for a in range(rank(data))]
    spread = broadcast_to(reshape(call["index"], shape), infer_shape(source))
    if call.get("alpha", 1) != 1:
        source = R.multiply(source, scalar_like(call.get("alpha"), source))
    return R.scatter_elements(data, spread, source, axis, "add")


@convert("select_scatter")
def select_scatter(call: Call) -> Expr:
    axis, index = call.axis(), call.whole(call.get("index"))
    return written(call["self"], unsqueeze(call["src"], [axis]), axis, index, index + 1, 1)


@convert("slice_scatter")
def slice_scatter(call: Call) -> Expr:
    axis = call.axis() if call.get("dim") is not None else 0
    size = infer_shape(call["self"])[axis]
    bounds = slice(call.get("start"), call.get("end"), call.get("step", 1)).indices(size)
    return written(call["self"], call["src"], axis, *bounds)


def written(data: Expr, part: Expr, axis: int, start: int, end: int, step: int) -> Expr:
    """Replace a slice of an axis."""
    shape = infer_shape(data)
    start = start + shape[axis] if start < 0 else start
    end = end + shape[axis] if end <= 0 and step == 1 and start >= end else end
    places = np.arange(shape[axis])[start:end:step]
    wanted = [len(places) if a == axis else s for a, s in enumerate(shape)]
    part = broadcast_to(cast(part, dtype_of(data)), wanted)
    if len(places) == shape[axis]:
        return part
    if step == 1:
        pieces = []
        if start:
            pieces.append(R.strided_slice(data, begin=[0], end=[start], axes=[axis]))
        pieces.append(part)
        stop = int(places[-1]) + 1 if len(places) else start
        if stop < shape[axis]:
            pieces.append(R.strided_slice(data, begin=[stop], end=[shape[axis]], axes=[axis]))
        return R.concatenate(pieces, axis=axis)
    index = places.reshape([-1 if a == axis else 1 for a in range(len(shape))])
    spread = np.broadcast_to(index, wanted).astype("int64")
    return R.scatter_elements(data, const(np.ascontiguousarray(spread)), part, axis)


@convert("_unique2")
def unique(call: Call) -> tuple[Expr, Expr, Expr]:
    """Return the distinct elements in ascending order, the number of each one, and the counts."""
    data = call["self"]
    found, _, inverse, count, counts = R.unique(reshape(data, (-1,)), True, True)
    found, counts = (
        R.strided_slice(each, const(np.zeros(1, "int32")), count, const(np.ones(1, "int32")))
        for each in (found, counts)
    )
    return found, reshape(cast(inverse, "int64"), dims(data)), cast(counts, "int64")


@convert("bincount")
def bincount(call: Call) -> Expr:
    data, weights = cast(call["self"], "int64"), call.get("weights")
    if weights is None:
        weights = R.ones_like(data)
    elif dtype_of(weights) != "float32":
        weights = cast(weights, "float64")
    size = R.max(data, axis=0, keepdims=True) + const(np.ones(1, "int64"))
    size = R.maximum(size, const(np.array([call.get("minlength", 0)], "int64")))
    zeros = R.full(scalar_like(0, weights), size, dtype_of(weights))
    return R.scatter_elements(zeros, data, weights, 0, "add")


@convert("unique_consecutive", "unique_dim")
def unique_of_slices(call: Call) -> Any:
    """Refuse: the shape of the result depends on values.

    Raises:
        UnsupportedOp: Always.
    """
    raise call.error("a result whose shape depends on values", "fixed shapes")


@convert("nonzero", "nonzero_numpy", "argwhere")
def nonzero(call: Call) -> Any:
    found = cast(R.argwhere(call["self"]), "int64")
    return columns(found, rank(call["self"])) if call.short == "nonzero_numpy" else found


def columns(places: Expr, count: int) -> list[Expr]:
    """Return the indices along each axis, of places one a row."""
    return [R.take(places, const(np.int64(axis)), axis=1) for axis in range(count)]


@convert("masked_select")
def masked_select(call: Call) -> Expr:
    shape = broadcast_shape(dims(call["self"]), dims(call["mask"]))
    return _selected(broadcast_to(call["self"], shape), broadcast_to(call["mask"], shape), 0)


def _is_computed_mask(index: Any) -> bool:
    computed = isinstance(index, Expr) and value_of(index) is None
    return computed and dtype_of(index) in ("bool", "uint8")


def _selected(data: Expr, mask: Expr, axis: int) -> Expr:
    """Take what a mask over some axes, from `axis` on, selects; they become one axis."""
    shape = dims(data)
    merged = reshape(data, (*shape[:axis], -1, *shape[axis + rank(mask) :]))
    return R.take(merged, columns(R.argwhere(reshape(mask, (-1,))), 1)[0], axis=axis)


@convert("tril", "triu")
def triangle(call: Call) -> Expr:
    upper = call.short == "triu"
    return R.trilu(call["self"], const(np.asarray(call.get("diagonal", 0), "int32")), upper)


@convert("diagonal", "diagonal_copy")
def diagonal(call: Call) -> Expr:
    """Take a diagonal of two axes, which becomes the last axis."""
    data, offset = call["self"], call.get("offset", 0)
    first, second = call.axis("dim1"), call.axis("dim2")
    shape = infer_shape(data)
    rows = np.arange(max(0, -offset), shape[first])
    columns = rows + offset
    fits = (columns >= 0) & (columns < shape[second])
    places = const(np.stack([rows[fits], columns[fits]]).astype("int64"))
    rest = [a for a in range(rank(data)) if a not in (first, second)]
    taken = R.gather_nd(transpose(data, [first, second, *rest]), places, index_rank=2)
    return transpose(taken, [*range(1, rank(taken)), 0])
