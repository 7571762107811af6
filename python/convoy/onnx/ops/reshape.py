"""Shapes: reshapes, transposes, joins and repeats."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...errors import UnsupportedDtype
from ..call import Call, Value, converter


@converter("Shape")
def shape(call: Call) -> Value:
    start, end = call.attrs.get("start", 0), call.attrs.get("end")
    return np.array(call.shape()[start:end], "int64")


@converter("Size")
def size(call: Call) -> Value:
    return np.array(math.prod(call.shape()), "int64")


@converter("Constant")
def constant(call: Call) -> Value:
    for name, dtype in (("float", "float32"), ("int", "int64")):
        for key in (f"value_{name}", f"value_{name}s"):
            if key in call.attrs:
                return np.array(call.attrs[key], dtype)
    for key in ("value", "sparse_value"):
        if key in call.attrs:
            return call.attrs[key]
    raise UnsupportedDtype(f"constant {call.name!r} of text", "a tensor of numbers")


@converter("Reshape")
def reshape(call: Call) -> Value:
    wanted = call.ints("shape", 1)
    if wanted is None:
        raise call.unsupported("without a shape")
    old = call.shape()
    if not call.attrs.get("allowzero", 0):
        wanted = [old[i] if size == 0 else size for i, size in enumerate(wanted)]
    if -1 in wanted:
        known = math.prod(size for size in wanted if size != -1)
        wanted[wanted.index(-1)] = math.prod(old) // known if known else 0
    if math.prod(wanted) != math.prod(old):
        raise call.contradiction(f"to {tuple(wanted)}", "as many elements")
    if isinstance(call.inputs[0], np.ndarray):
        return call.inputs[0].reshape(wanted)
    if 0 in wanted:  # which Relax takes for the size that is
        return np.zeros(wanted, call.const(0).dtype)
    return call.inputs[0] if tuple(wanted) == old else call.make("reshape", call.x(), wanted)


@converter("Flatten")
def flatten(call: Call) -> Value:
    axis, old = int(call.attrs.get("axis", 1)), call.shape()
    axis = axis + len(old) if axis < 0 else axis
    return call.reshape(call.inputs[0], (math.prod(old[:axis]), math.prod(old[axis:])))


@converter("Squeeze")
def squeeze(call: Call) -> Value:
    old = call.shape()
    axes = call.ints("axes", 1)
    axes = [i for i, d in enumerate(old) if d == 1] if axes is None else axes
    axes = [axis % len(old) for axis in axes]
    if any(old[axis] != 1 for axis in axes):
        raise call.unsupported(f"of shape {old} along {axes}", "axes of size 1")
    return call.reshape(call.inputs[0], [d for i, d in enumerate(old) if i not in axes])


@converter("Unsqueeze")
def unsqueeze(call: Call) -> Value:
    axes = call.ints("axes", 1) or []
    rank = call.rank() + len(axes)
    new, old = {axis % rank for axis in axes}, iter(call.shape())
    return call.reshape(call.inputs[0], [1 if i in new else next(old) for i in range(rank)])


@converter("Transpose")
def transpose(call: Call) -> Value:
    axes = call.attrs.get("perm") or tuple(reversed(range(call.rank())))
    return call.make("permute_dims", call.x(), [int(a) for a in axes]) if axes else call.inputs[0]


@converter("Expand")
def expand(call: Call) -> Value:
    wanted = [int(d) for d in call.constant(1, "shape")]
    if all(size == 1 for size in wanted) and len(wanted) <= call.rank():
        return call.inputs[0]
    full = np.broadcast_shapes(call.shape(), wanted)
    return call.inputs[0] if full == call.shape() else call.make("broadcast_to", call.x(), full)


@converter("Tile")
def tile(call: Call) -> Value:
    """Before opset 6, along one axis."""
    if call.version < 6:
        repeats = [1] * call.rank()
        repeats[int(call.constant(2, "axis").item())] = int(call.constant(1, "repeats").item())
        return call.make("tile", call.x(), repeats)
    return call.make("tile", call.x(), [int(n) for n in call.constant(1, "repeats")])


@converter("Concat")
def concat(call: Call) -> Value:
    axis = int(call.attrs.get("axis", 1))
    values = [value for value in call.inputs if value is not None]
    filled = [i for i, _ in enumerate(values) if 0 not in call.dims(i)]
    if filled:  # TVM does not take empty tensors
        values = [values[i] for i in filled]
    if len(values) == 1:
        return values[0]
    return call.make("concat", [call.expr(value) for value in values], axis % call.rank())


@converter("ConstantOfShape")
def constant_of_shape(call: Call) -> Value:
    value = call.attrs.get("value", np.zeros(1, "float32"))
    return np.full([int(d) for d in call.constant(0, "shape")], value.item(), value.dtype)


@converter("EyeLike")
def eye_like(call: Call) -> Value:
    from onnx import helper

    dtype: Any = call.const(0).dtype
    if "dtype" in call.attrs:
        dtype = helper.tensor_dtype_to_np_dtype(int(call.attrs["dtype"]))
    rows, columns = call.shape()
    return np.eye(rows, columns, int(call.attrs.get("k", 0)), dtype)


@converter("Range")
def range_(call: Call) -> Value:
    start, limit, delta = (call.constant(i, "range") for i in range(3))
    return np.arange(start.item(), limit.item(), delta.item(), dtype=start.dtype)


@converter("DepthToSpace")
def depth_to_space(call: Call) -> Value:
    n, c, h, w = call.shape()
    b = int(call.attrs["blocksize"])
    if call.attrs.get("mode", "DCR") == "DCR":
        split, axes = (n, b, b, c // b**2, h, w), (0, 3, 4, 1, 5, 2)
    else:
        split, axes = (n, c // b**2, b, b, h, w), (0, 1, 4, 2, 5, 3)
    moved = call.do("Transpose", call.reshape(call.inputs[0], split), perm=axes)
    return call.reshape(moved, (n, c // b**2, h * b, w * b))


@converter("SpaceToDepth")
def space_to_depth(call: Call) -> Value:
    n, c, h, w = call.shape()
    b = int(call.attrs["blocksize"])
    split = call.reshape(call.inputs[0], (n, c, h // b, b, w // b, b))
    axes = (0, 3, 5, 1, 2, 4)
    if call.attrs.get("mode", "DCR") == "CRD":
        axes = (0, 1, 3, 5, 2, 4)
    return call.reshape(call.do("Transpose", split, perm=axes), (n, c * b**2, h // b, w // b))


@converter("Trilu")
def trilu(call: Call) -> Value:
    """The triangle by a mask, which all dtypes take."""
    k = int(call.constant(1, "diagonal").item()) if call.has(1) else 0
    upper = bool(call.attrs.get("upper", 1))
    rows, columns = call.shape()[-2:]
    mask = np.tri(rows, columns, k - 1 if upper else k, bool) ^ upper
    return call.do("Where", mask, call.inputs[0], call.const(0))


@converter("Col2Im")
def col2im(call: Call) -> Value:
    """Add up blocks, (n, c * block, positions), where they overlap: a transposed convolution with
    a kernel for each place in the block."""
    image = [int(d) for d in call.constant(1, "image shape")]
    block = [int(d) for d in call.constant(2, "block shape")]
    rank = len(image)
    strides = list(call.attrs.get("strides", (1,) * rank))
    dilations = list(call.attrs.get("dilations", (1,) * rank))
    pads = list(call.attrs.get("pads", (0,) * (2 * rank)))
    n, channels, _ = call.shape()
    places = math.prod(block)
    c = channels // places
    out = [
        (image[i] + pads[i] + pads[rank + i] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1
        for i in range(rank)
    ]
    x = call.reshape(call.inputs[0], (n, channels, *out))
    move = np.eye(places, dtype=call.const(0).dtype).reshape(places, 1, *block)
    kernel = np.tile(move, (c, *(1,) * (rank + 1)))
    reach = [(out[i] - 1) * strides[i] + dilations[i] * (block[i] - 1) + 1 for i in range(rank)]
    extra = [image[i] + pads[i] + pads[rank + i] - reach[i] for i in range(rank)]
    return call.do(
        "ConvTranspose", x, kernel, strides=strides, dilations=dilations, pads=pads, group=c,
        output_padding=extra,
    )  # fmt: skip
