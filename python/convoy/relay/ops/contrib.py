"""Rare operators: bit-serial arithmetic, correlation, buffers, weights of other algorithms."""

from __future__ import annotations

from typing import Any

from convoy.relay.ast import Call, Expr, op_call
from convoy.relay.lazy import relax, topi
from convoy.relay.ops.arguments import Size, both_sides, make_call, sizes
from convoy.relay.ops.convolution import make_conv
from convoy.relay.ops.registry import builder, converter, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr, ints
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.types import Any as DynamicDim
from convoy.relay.types import Dim, TensorType, Type

# ---- bits


@builder("nn.bitpack")
def bitpack(
    data: Expr,
    bits: int = 1,
    pack_axis: int = 1,
    bit_axis: int = 2,
    pack_type: str = "uint32",
    name: str = "BitPack",
) -> Call:
    """Pack one bit of each of many elements into a word.

    Args:
        bits: How many bits of an element to pack, along a new axis `bit_axis`.
        pack_axis: The axis whose elements share a word.
        pack_type: The word: "uint8" to "uint64".
    """
    attrs = {"pack_axis": pack_axis, "bit_axis": bit_axis, "pack_type": pack_type, "name": name}
    return op_call("nn.bitpack", [data], bits=bits, **attrs)


@type_rule("nn.bitpack")
def infer_bitpack(call: Inputs) -> Type:
    call.count(1)
    data, attrs = call.tensor(0), call.attrs
    if not attrs["pack_type"].startswith("uint"):
        raise call.error(f"pack_type='{attrs['pack_type']}'", "'uint8', ..., 'uint64'")
    width = int(attrs["pack_type"].removeprefix("uint"))
    axis = call.axis(attrs.get_int("pack_axis"), len(data.shape))
    shape: list[Dim] = list(data.shape)
    size = shape[axis]
    if isinstance(size, int) and size % width:
        raise call.error(f"{size} elements along axis {axis}", f"a multiple of {width}")
    shape[axis] = size // width if isinstance(size, int) else DynamicDim()
    place = attrs.get_int("bit_axis")
    place = place + len(shape) + 1 if place < 0 else place
    shape.insert(place, attrs.get_int("bits"))
    return TensorType(shape, attrs["pack_type"])


@converter("nn.bitpack")
def convert_bitpack(op: OpCall) -> RelaxExpr:
    attrs = op.attrs
    numbers = [attrs.get_int(f) for f in ("bits", "pack_axis", "bit_axis")]
    return op.te(topi.nn.bitpack, op.args[0], *numbers, attrs["pack_type"])


@builder("nn.bitserial_conv2d")
def bitserial_conv2d(
    data: Expr,
    weight: Expr,
    strides: Size = (1, 1),
    padding: Size = (0, 0),
    channels: int | None = None,
    kernel_size: Size = (3, 3),
    activation_bits: int = 1,
    weight_bits: int = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    pack_dtype: str = "uint32",
    out_dtype: str = "int16",
    unipolar: bool = True,
) -> Call:
    """Convolve values of a few bits, bit by bit."""
    return make_call(
        "nn.bitserial_conv2d", data, weight, strides=sizes(strides, 2),
        padding=both_sides(padding, 2), channels=channels, kernel_size=sizes(kernel_size, 2),
        activation_bits=activation_bits, weight_bits=weight_bits, data_layout=data_layout,
        kernel_layout=kernel_layout, pack_dtype=pack_dtype, out_dtype=out_dtype,
        unipolar=bool(unipolar),
    )  # fmt: skip


@type_rule("nn.bitserial_conv2d")
def infer_bitserial_conv2d(call: Inputs) -> Type:
    call.count(2)
    attrs = call.attrs
    found = call.layout(attrs["data_layout"], "NCHW")
    data = call.tensor(0, 4)
    batch, _, *size = found.to_axes(data.shape, "NCHW")
    if attrs["channels"] is None:
        raise call.error("channels=None", "the number of output channels")
    before_after = call.ints("padding", 4)
    out: list[Dim] = []
    for axis in range(2):
        extent, window = size[axis], call.positive("kernel_size", 2)[axis]
        if isinstance(extent, int):
            room = extent + before_after[axis] + before_after[axis + 2] - window
            out.append(room // call.positive("strides", 2)[axis] + 1)
        else:
            out.append(DynamicDim())
    shape = found.from_axes((batch, attrs["channels"], *out), "NCHW")
    return TensorType(shape, call.out_dtype("int16"))


@converter("nn.bitserial_conv2d")
def convert_bitserial_conv2d(op: OpCall) -> RelaxExpr:
    attrs = op.attrs
    functions = {"NCHW": "bitserial_conv2d_nchw", "NHWC": "bitserial_conv2d_nhwc"}
    if attrs["data_layout"] not in functions:
        raise op.unsupported(f"data_layout='{attrs['data_layout']}'", "'NCHW' or 'NHWC'")
    return op.te(
        getattr(topi.nn, functions[attrs["data_layout"]]), *op.args, ints(attrs["strides"]),
        ints(attrs["padding"]), attrs.get_int("activation_bits"), attrs.get_int("weight_bits"),
        attrs["pack_dtype"], op.result.dtype, bool(attrs["unipolar"]),
    )  # fmt: skip


@builder("nn.bitserial_dense")
def bitserial_dense(
    data: Expr,
    weight: Expr,
    units: int | None = None,
    data_bits: int = 1,
    weight_bits: int = 1,
    pack_dtype: str = "uint32",
    out_dtype: str = "int16",
    unipolar: bool = True,
) -> Call:
    """Multiply matrices of values of a few bits, bit by bit; see `dense`."""
    attrs = {"pack_dtype": pack_dtype, "out_dtype": out_dtype, "unipolar": bool(unipolar)}
    attrs |= {"units": units, "data_bits": data_bits, "weight_bits": weight_bits}
    return make_call("nn.bitserial_dense", data, weight, **attrs)


@type_rule("nn.bitserial_dense")
def infer_bitserial_dense(call: Inputs) -> Type:
    call.count(2)
    data, units = call.tensor(0), call.attrs["units"]
    if not data.shape:
        raise call.error("a scalar", "a tensor")
    columns: Dim = call.tensor(1, 2).shape[0] if units is None else units
    return TensorType((*data.shape[:-1], columns), call.out_dtype("int16"))


@converter("nn.bitserial_dense")
def convert_bitserial_dense(op: OpCall) -> RelaxExpr:
    attrs = op.attrs
    bits = attrs.get_int("data_bits"), attrs.get_int("weight_bits")
    more = (attrs["pack_dtype"], op.result.dtype, bool(attrs["unipolar"]))
    return op.te(topi.nn.bitserial_dense, *op.args, *bits, *more)


# ---- correlation, buffers


@builder("nn.correlation")
def correlation(
    data1: Expr,
    data2: Expr,
    kernel_size: int,
    max_displacement: int,
    stride1: int,
    stride2: int,
    padding: Size,
    is_multiply: bool,
    layout: str,
) -> Call:
    """Correlate patches of two feature maps (FlowNet).

    Args:
        data1, data2: (n, c, h, w).
        kernel_size: The size of a patch.
        max_displacement: The largest distance of two patches.
        stride1, stride2: Steps in data1, and of displacements.
        is_multiply: Multiply elements; otherwise add up their absolute differences.
    """
    attrs = {"stride1": stride1, "stride2": stride2, "padding": sizes(padding, 2)}
    attrs |= {"is_multiply": bool(is_multiply), "layout": layout}
    attrs |= {"kernel_size": kernel_size, "max_displacement": max_displacement}
    return make_call("nn.correlation", data1, data2, **attrs)


@type_rule("nn.correlation")
def infer_correlation(call: Inputs) -> Type:
    call.count(2)
    attrs, data = call.attrs, call.tensor(0, 4)
    if attrs["layout"] != "NCHW":
        raise call.error(f"layout='{attrs['layout']}'", "'NCHW'")
    call.expect(1, data)
    padding = call.ints("padding")
    vertical, horizontal = (
        (padding[0] + padding[2], padding[1] + padding[3])
        if len(padding) == 4
        else (2 * padding[0], 2 * padding[-1])
    )
    border = attrs.get_int("max_displacement") + (attrs.get_int("kernel_size") - 1) // 2
    reach = 2 * (attrs.get_int("max_displacement") // attrs.get_int("stride2")) + 1
    out: list[Dim] = []
    for size, more in zip(data.shape[2:], (vertical, horizontal), strict=True):
        room = size + more - 2 * border if isinstance(size, int) else DynamicDim()
        stride = attrs.get_int("stride1")
        out.append(-(-room // stride) if isinstance(room, int) else room)
    return TensorType((data.shape[0], reach * reach, *out), data.dtype)


@converter("nn.correlation")
def convert_correlation(op: OpCall) -> RelaxExpr:
    attrs = op.attrs
    fields = ("kernel_size", "max_displacement", "stride1", "stride2")
    numbers = [attrs.get_int(f) for f in fields]
    padding = ints(attrs["padding"])
    return op.te(topi.nn.correlation_nchw, *op.args, *numbers, padding, bool(attrs["is_multiply"]))


@builder("nn.fifo_buffer")
def fifo_buffer(data: Expr, buffer: Expr, axis: int) -> Call:
    """Append data to a buffer along an axis, and drop as much from its front."""
    return make_call("nn.fifo_buffer", data, buffer, axis=axis)


@type_rule("nn.fifo_buffer")
def infer_fifo_buffer(call: Inputs) -> Type:
    call.count(2)
    data, buffer = call.tensor(0), call.tensor(1)
    axis = call.axis(call.attrs.get_int("axis"), len(buffer.shape))
    rest = [i for i in range(len(buffer.shape)) if i != axis]
    if len(data.shape) != len(buffer.shape) or any(
        isinstance(data.shape[i], int) and data.shape[i] != buffer.shape[i] for i in rest
    ):
        raise call.error(f"{data} into {buffer}", f"shapes that differ along axis {axis} only")
    return buffer


@converter("nn.fifo_buffer")
def convert_fifo_buffer(op: OpCall) -> RelaxExpr:
    axis = op.attrs.get_int("axis") % len(op.type(1).shape)
    new, size = op.shape(0)[axis], op.shape(1)[axis]
    joined = op.emit(relax.op.concat([op.args[1], op.args[0]], axis=axis))
    return relax.op.strided_slice(joined, axes=[axis], begin=[new], end=[new + size])


# ---- convolutions in blocks, weights of other algorithms


@builder("nn.contrib_depthwise_conv2d_nchwc")
def contrib_depthwise_conv2d_nchwc(
    data: Expr,
    kernel: Expr,
    strides: Size = (1, 1),
    padding: Size = (0, 0),
    dilation: Size = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Size | None = None,
    data_layout: str = "NCHW8c",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: str = "",
) -> Call:
    """Convolve each channel of data whose channels are split into blocks; see `conv2d`."""
    attrs = locals()
    return make_conv("nn.contrib_depthwise_conv2d_NCHWc", 2, weight=attrs.pop("kernel"), **attrs)


@builder("nn.contrib_conv2d_gemm_weight_transform")
def contrib_conv2d_gemm_weight_transform(weights: Expr, tile_N: int, tile_K: int) -> Call:
    """Tile a weight (h, w, i, o) for a convolution as a GEMM.

    Returns:
        (o / tile_N, h * w * i / tile_K, tile_N, tile_K), zeros at the ends.
    """
    attrs = {"tile_N": tile_N, "tile_K": tile_K}
    return make_call("nn.contrib_conv2d_gemm_weight_transform", weights, **attrs)


@type_rule("nn.contrib_conv2d_gemm_weight_transform")
def infer_gemm_weight(call: Inputs) -> Type:
    call.count(1)
    weight = call.tensor(0, 4)
    height, width, inner, outer = weight.concrete_shape
    rows, columns = call.attrs.get_int("tile_K"), call.attrs.get_int("tile_N")
    blocks = (-(-outer // columns), -(-(height * width * inner) // rows))
    return TensorType((*blocks, columns, rows), weight.dtype)


@converter("nn.contrib_conv2d_gemm_weight_transform")
def convert_gemm_weight(op: OpCall) -> RelaxExpr:
    height, width, inner, outer = op.shape(0)
    out, reduced, columns, rows = op.result_shape()
    matrix = op.reshape(op.args[0], (height * width * inner, outer))
    widths = [0, reduced * rows - height * width * inner, 0, out * columns - outer]
    matrix = op.emit(relax.op.nn.pad(matrix, widths))
    tiles = op.reshape(matrix, (reduced, rows, out, columns))
    return op.permute(tiles, (2, 0, 3, 1))


@builder("nn.contrib_conv2d_winograd_weight_transform")
def contrib_conv2d_winograd_weight_transform(weight: Expr, tile_size: int) -> Call:
    """Transform a weight (o, i, 3, 3) for Winograd's algorithm: (t, t, i, o)."""
    return make_call("nn.contrib_conv2d_winograd_weight_transform", weight, tile_size=tile_size)


@builder("nn.contrib_conv3d_winograd_weight_transform")
def contrib_conv3d_winograd_weight_transform(weight: Expr, tile_size: int) -> Call:
    """Transform a weight (o, i, d, h, w) for Winograd's algorithm."""
    return make_call("nn.contrib_conv3d_winograd_weight_transform", weight, tile_size=tile_size)


@type_rule(
    "nn.contrib_conv2d_winograd_weight_transform", "nn.contrib_conv3d_winograd_weight_transform"
)
def infer_winograd_weight(call: Inputs) -> Type:
    call.count(1)
    flat = call.name.startswith("nn.contrib_conv2d")
    weight = call.tensor(0, 4 if flat else 5)
    outer, inner, depth, *window = weight.shape
    size = call.attrs.get_int("tile_size")
    tile = [size + w - 1 if isinstance(w, int) else DynamicDim() for w in window]
    if flat:
        first: Dim = size + depth - 1 if isinstance(depth, int) else DynamicDim()
        return TensorType((first, *tile, inner, outer), weight.dtype)
    # A depth that Winograd's algorithm does not transform stays as it is.
    deep: Dim = depth
    if isinstance(depth, int) and 2 < depth < 8 and depth == window[0]:
        deep = size + depth - 1
    if deep != depth:
        return TensorType((deep, *tile, inner, outer), weight.dtype)
    return TensorType((*tile, depth, inner, outer), weight.dtype)


@converter(
    "nn.contrib_conv2d_winograd_weight_transform", "nn.contrib_conv3d_winograd_weight_transform"
)
def convert_winograd_weight(op: OpCall) -> RelaxExpr:
    function: Any = getattr(topi.nn, op.name.removeprefix("nn.contrib_"))
    return op.te(function, op.args[0], op.attrs.get_int("tile_size"))
