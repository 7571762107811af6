"""Moving blocks of elements between the spatial axes and the batch or the channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.relay.ast import Call, Expr
from convoy.relay.layout import layout
from convoy.relay.lazy import relax, topi
from convoy.relay.ops.arguments import make_call
from convoy.relay.ops.registry import builder, converter, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr, ints
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.shapes import same_dim
from convoy.relay.types import Any as DynamicDim
from convoy.relay.types import Dim, TensorType, Type


def _pairs(value: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(v) for v in pair) for pair in value)


@builder("nn.space_to_batch_nd")
def space_to_batch_nd(
    data: Expr, block_shape: Sequence[int], paddings: Any, pad_value: float = 0
) -> Call:
    """Pad, then move blocks of the axes after the batch into the batch.

    Args:
        block_shape: The block along each axis.
        paddings: A pair (before, after) for each axis.
    """
    return make_call(
        "nn.space_to_batch_nd", data, block_shape=tuple(block_shape), paddings=_pairs(paddings),
        pad_value=float(pad_value),
    )  # fmt: skip


@builder("nn.batch_to_space_nd")
def batch_to_space_nd(data: Expr, block_shape: Sequence[int], crops: Any) -> Call:
    """Move blocks of the batch back to the axes after it, then crop."""
    attrs = {"block_shape": tuple(block_shape), "crops": _pairs(crops)}
    return make_call("nn.batch_to_space_nd", data, **attrs)


def _blocks(call: Inputs, name: str) -> tuple[TensorType, tuple[int, ...], list[tuple[int, int]]]:
    """Return the data, the blocks, and the pairs of an attribute."""
    call.count(1)
    data = call.tensor(0)
    block = call.ints("block_shape")
    if len(block) >= len(data.shape) or min(block, default=1) < 1:
        raise call.error(f"block_shape={list(block)} of {data}", "fewer axes, sizes over zero")
    return data, block, _pairs_of(call, name, len(block))


def _pairs_of(call: Inputs, field: str, count: int) -> list[tuple[int, int]]:
    """Return an attribute of `count` pairs of sizes."""
    value = call.attrs[field]
    if value is None or len(value) != count or any(len(pair) != 2 for pair in value):
        raise call.error(f"{field}={value}", f"{count} pairs")
    pairs = [(int(a), int(b)) for a, b in value]
    if any(min(pair) < 0 for pair in pairs):
        raise call.error(f"{field}={pairs}", "sizes of at least 0")
    return pairs


@type_rule("nn.space_to_batch_nd")
def infer_space_to_batch(call: Inputs) -> Type:
    data, block, pairs = _blocks(call, "paddings")
    batch, out = data.shape[0], list(data.shape)
    for i, (size, (before, after)) in enumerate(zip(block, pairs, strict=True), 1):
        dim = data.shape[i]
        if isinstance(dim, int):
            if (dim + before + after) % size:
                raise call.error(f"{dim + before + after} elements in blocks of {size}")
            out[i] = (dim + before + after) // size
        batch = batch * size if isinstance(batch, int) else DynamicDim()
    return TensorType([batch, *out[1:]], data.dtype)


@type_rule("nn.batch_to_space_nd")
def infer_batch_to_space(call: Inputs) -> Type:
    data, block, pairs = _blocks(call, "crops")
    batch, out = data.shape[0], list(data.shape)
    for i, (size, (before, after)) in enumerate(zip(block, pairs, strict=True), 1):
        dim = data.shape[i]
        if isinstance(dim, int):
            out[i] = dim * size - before - after
            if dim * size - before - after < 0:
                raise call.error(f"crops={pairs} of {data}")
        if isinstance(batch, int) and batch % size:
            raise call.error(f"a batch of {batch} in blocks of {size}")
        batch = batch // size if isinstance(batch, int) else DynamicDim()
    return TensorType([batch, *out[1:]], data.dtype)


@converter("nn.space_to_batch_nd")
def convert_space_to_batch(op: OpCall) -> RelaxExpr:
    pairs = op.attrs["paddings"]
    return op.te(
        topi.nn.space_to_batch_nd,
        op.args[0],
        ints(op.attrs["block_shape"]),
        ints(p[0] for p in pairs),
        ints(p[1] for p in pairs),
        float(op.attrs["pad_value"]),
    )


@converter("nn.batch_to_space_nd")
def convert_batch_to_space(op: OpCall) -> RelaxExpr:
    """Interleave blocks of the batch with their axes, then crop."""
    shape, block = op.shape(0), ints(op.attrs["block_shape"])
    rank, rest = len(block), list(shape[len(block) + 1 :])
    batch = shape[0]
    for size in block:
        batch //= size
    value = op.reshape(op.args[0], [*block, batch, *shape[1 : rank + 1], *rest])
    order = [rank]
    for i in range(rank):
        order += [rank + 1 + i, i]
    value = op.permute(value, [*order, *range(2 * rank + 1, 2 * rank + 1 + len(rest))])
    whole = [d * size for d, size in zip(shape[1:], block, strict=False)]
    value = op.reshape(value, [batch, *whole, *rest])
    ends = [w - int(p[1]) for w, p in zip(whole, op.attrs["crops"], strict=True)]
    begins = [int(p[0]) for p in op.attrs["crops"]]
    if begins == [0] * rank and ends == whole:
        return value
    axes = list(range(1, rank + 1))
    return relax.op.strided_slice(value, axes=axes, begin=begins, end=ends)


@builder("nn.depth_to_space")
def depth_to_space(data: Expr, block_size: int, layout: str = "NCHW", mode: str = "DCR") -> Call:
    """Move blocks of channels into h and w.

    Args:
        mode: "DCR" (depth, column, row) or "CDR": where the blocks are among the channels.
    """
    return make_call("nn.depth_to_space", data, block_size=block_size, layout=layout, mode=mode)


@builder("nn.space_to_depth")
def space_to_depth(data: Expr, block_size: int, layout: str = "NCHW") -> Call:
    """Move blocks of h and w into the channels."""
    return make_call("nn.space_to_depth", data, block_size=block_size, layout=layout)


@type_rule("nn.depth_to_space", "nn.space_to_depth")
def infer_depth_space(call: Inputs) -> Type:
    call.count(1)
    layout = call.layout(call.attrs["layout"], "NCHW")
    data = call.tensor(0, 4)
    block = call.attrs.get_int("block_size")
    if block <= 0:
        raise call.error(f"block_size={block}", "a value over zero")
    n, c, h, w = layout.to_axes(data.shape, "NCHW")
    down = call.name == "nn.space_to_depth"
    for size, part in ((h, block), (w, block)) if down else ((c, block * block),):
        if isinstance(size, int) and not same_dim(size % part, 0):
            raise call.error(f"{data} with block_size={block}", f"multiples of {part}")

    def scaled(size: Dim, times: int, over: int) -> Dim:
        return size * times // over if isinstance(size, int) else DynamicDim()

    square = block * block
    if down:
        out = (n, scaled(c, square, 1), scaled(h, 1, block), scaled(w, 1, block))
    else:
        out = (n, scaled(c, 1, square), scaled(h, block, 1), scaled(w, block, 1))
    return TensorType(layout.from_axes(out, "NCHW"), data.dtype)


@converter("nn.depth_to_space", "nn.space_to_depth")
def convert_depth_space(op: OpCall) -> RelaxExpr:
    """Emit a reshape, a transpose and a reshape."""
    attrs = op.attrs
    found = layout(attrs["layout"], "NCHW")
    block = attrs.get_int("block_size")
    n, c, h, w = (int(d) for d in found.to_axes(op.shape(0), "NCHW"))  # type: ignore[arg-type]
    value = op.permute(op.args[0], [found.index(a) for a in "NCHW"])
    if op.name == "nn.space_to_depth":
        value = op.reshape(value, (n, c, h // block, block, w // block, block))
        value = op.permute(value, (0, 3, 5, 1, 2, 4))
        value = op.reshape(value, (n, c * block * block, h // block, w // block))
    else:
        inner = c // (block * block)
        if attrs["mode"] == "DCR":
            value = op.reshape(value, (n, block, block, inner, h, w))
            value = op.permute(value, (0, 3, 4, 1, 5, 2))
        elif attrs["mode"] == "CDR":
            value = op.reshape(value, (n, inner, block, block, h, w))
            value = op.permute(value, (0, 1, 4, 2, 5, 3))
        else:
            raise op.unsupported(f"mode='{attrs['mode']}'", "'DCR' or 'CDR'")
        value = op.reshape(value, (n, inner, h * block, w * block))
    return op.permute(value, ["NCHW".index(a) for a in found.axes])
