"""Converters of operators that Relay has itself, and of those that keep sizes open.

They precede the converters of :mod:`convoy.onnx.ops`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from convoy.onnx.call import CONVERTERS, Call, Converter, Value
from convoy.onnx.ops.control_flow import body
from convoy.onnx.ops.pooling import kernel_of
from convoy.onnx.ops.window import window
from convoy.relay import ast
from convoy.relay.frontend import common, windows
from convoy.relay.op import nn, vision
from convoy.relay.op import tensor as R
from convoy.relay.qnn import op as qnn

NATIVE: dict[tuple[str, str], Converter] = {}


def _native(*names: str) -> Callable[[Converter], Converter]:
    def register(function: Converter) -> Converter:
        NATIVE.update(dict.fromkeys((("", name) for name in names), function))
        return function

    return register


def _shared(call: Call) -> Value:
    return CONVERTERS["", call.op](call)


# ---- shapes, of which some sizes may be open


@_native("Shape")
def shape(call: Call) -> Value:
    sizes = call.dims()
    part = slice(call.attrs.get("start", 0), call.attrs.get("end"))
    if all(isinstance(size, int) for size in sizes[part]):
        return np.array(sizes[part], "int64")
    begin, end, _ = part.indices(len(sizes))
    return R.strided_slice(R.shape_of(call.x(), dtype="int64"), begin=[begin], end=[end])


@_native("Size")
def size(call: Call) -> Value:
    return _shared(call) if call.is_static() else R.ndarray_size(call.x(), dtype="int64")


@_native("Reshape")
def reshape(call: Call) -> Value:
    """Relay's 0 keeps a size that is open, and -1 stands for one of any."""
    if call.is_static():
        return _shared(call)
    wanted, sizes = call.ints("shape", 1) or [], call.dims()
    if not call.attrs.get("allowzero", 0):
        wanted = [
            sizes[i] if w == 0 and isinstance(sizes[i], int) else w for i, w in enumerate(wanted)
        ]
    return R.reshape(call.x(), wanted)


@_native("Flatten")
def flatten(call: Call) -> Value:
    if call.is_static() or call.attrs.get("axis", 1) != 1:
        return _shared(call)
    return nn.batch_flatten(call.x())


@_native("Squeeze")
def squeeze(call: Call) -> Value:
    if call.is_static():
        return _shared(call)
    axes = call.ints("axes", 1)
    return R.squeeze(
        call.x(), [i for i, d in enumerate(call.dims()) if d == 1] if axes is None else axes
    )


@_native("Unsqueeze")
def unsqueeze(call: Call) -> Value:
    return (
        _shared(call)
        if call.is_static()
        else common.unsqueeze(call.x(), call.ints("axes", 1) or [])
    )


# ---- pools


@_native("MaxPool", "AveragePool")
def pool(call: Call) -> Value:
    if call.outputs > 1 or not call.dtype().startswith("float"):
        return _shared(call)
    w = window(call, kernel_of(call))
    ceil = bool(call.attrs.get("ceil_mode", 0))
    if call.op == "MaxPool":
        return windows.max_pool(call.x(), w.kernel, w.strides, w.padding, w.dilations, ceil)
    include = bool(call.attrs.get("count_include_pad", 0))
    return windows.avg_pool(call.x(), w.kernel, w.strides, w.padding, w.dilations, ceil, include)


@_native("GlobalAveragePool", "GlobalMaxPool")
def global_pool(call: Call) -> Value:
    return windows.global_pool(call.x(), "avg" if call.op == "GlobalAveragePool" else "max")


# ---- others


@_native("BatchNormalization")
def batch_norm(call: Call) -> Value:
    """Exporters of old opsets name the statistics as results of inference too."""
    if call.version >= 14 or call.outputs == 1:
        return _shared(call)
    result = _shared(dataclasses.replace(call, outputs=1))
    return (result, *(call.value(i) for i in (3, 4, 3, 4)))[: call.outputs]


@_native("DequantizeLinear")
def dequantize(call: Call) -> Value:
    """`qnn.dequantize` of a constant scale and zero point."""
    scale, zero = call.array(1), call.array(2)
    plain = call.dtype() in ("int8", "uint8", "int16", "uint16", "int32")
    if call.attrs.get("block_size") or call.attrs.get("output_dtype") or not plain:
        return _shared(call)
    if scale is None or (zero is None and call.has(2)):
        return _shared(call)
    single = scale.size == 1
    point = np.zeros((), "int32") if zero is None else zero.astype("int32")
    arrays = [a.reshape(()) if single else a for a in (scale.astype("float32"), point)]
    axis = 0 if single else call.axis(1)
    result = qnn.dequantize(call.x(), *map(common.const, arrays), axis=axis)
    return call.cast(result, str(scale.dtype))


@_native("If")
def branch(call: Call) -> Value:
    """One branch where the condition is known, else both."""
    if call.array(0) is not None:
        return _shared(call)
    branches = [body(call, call.attrs[name], []) for name in ("then_branch", "else_branch")]
    if any(isinstance(value, list) or value is None for values in branches for value in values):
        raise call.unsupported("with branches that compute sequences", "tensors")
    found = [[call.expr(value) for value in values] for values in branches]
    condition = call.expr(call.reshape(call.value(0), ()))
    if len(found[0]) == 1:
        return ast.If(condition, found[0][0], found[1][0])
    both = ast.If(condition, ast.Tuple(found[0]), ast.Tuple(found[1]))
    return tuple(ast.TupleWrapper(both, len(found[0])))


@_native("RoiAlign")
def roi_align(call: Call) -> Value:
    """Samples by the size of a region are those of `vision.roi_align`."""
    if call.attrs.get("sampling_ratio", 0) > 0 or call.attrs.get("mode", "avg") != "avg":
        return _shared(call)
    scale = call.attrs.get("spatial_scale", 1.0)
    default = "half_pixel" if call.version >= 16 else "output_half_pixel"
    rois = call.value(1)
    if call.attrs.get("coordinate_transformation_mode", default) == "half_pixel":
        rois = call.do("Sub", rois, call.const(0.5 / scale, 1))
    first = call.do("Unsqueeze", call.cast(call.value(2), call.dtype(1)), np.array([1]))
    rois = call.expr(call.do("Concat", first, rois, axis=1))
    sizes = (call.attrs.get("output_height", 1), call.attrs.get("output_width", 1))
    return vision.roi_align(call.x(), rois, sizes, scale, -1)


@_native("MaxRoiPool")
def max_roi_pool(call: Call) -> Value:
    sizes = tuple(call.attrs["pooled_shape"])
    return vision.roi_pool(call.x(), call.x(1), sizes, call.attrs.get("spatial_scale", 1.0))


@_native("NonZero")
def non_zero(call: Call) -> Value:
    """The result is as long as the data has it, which `relay.vm.compile` takes."""
    return R.transpose(R.cast(R.argwhere(call.x()), "int64"), (1, 0))


@_native("BitCast")
def bit_cast(call: Call) -> Value:
    from onnx import helper

    data = call.cast(call.value(0), "uint8") if call.dtype() == "bool" else call.x()
    return R.reinterpret(data, helper.tensor_dtype_to_np_dtype(call.attrs["to"]).name)
