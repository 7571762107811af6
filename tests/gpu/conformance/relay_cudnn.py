"""TVM 0.18's tests of its cuDNN integration."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from convoy import relay

from ...relay.reference import conv, conv_transpose, softmax
from .case import Case, Tensor
from .relay_cutlass import module
from .wgrad import conv_wgrad

SUITE = "0.18 cuDNN"
SOFTMAX = "softmax: a kernel of TVM's"
INTEGERS = "integers: the kernels compute in float16, bfloat16 and float32"
DOUBLE = "float64: the kernels compute in float16, bfloat16 and float32"

Array = np.ndarray
_TO_NCHW, _TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)


def _case(test: str, name: str, make: Any, inputs: Any, reference: Any, **more: Any) -> Case:
    return Case(SUITE, test, name, make, inputs, reference, more.pop("tolerance"), "cudnn", **more)


def _forward(dtype: str, out: str, layout: str, groups: int) -> Case:
    """conv_forward of (3, 4, 32, 32) with 16 filters of 3x3."""
    last = layout == "NHWC"
    inputs = {
        "x": Tensor((3, 32, 32, 4) if last else (3, 4, 32, 32), dtype),
        "w": Tensor((16, 3, 3, 4 // groups) if last else (16, 4 // groups, 3, 3), dtype),
    }
    attrs = {
        "channels": 16, "kernel_size": (3, 3), "padding": (1, 1), "groups": groups,
        "data_layout": layout, "kernel_layout": "OHWI" if last else "OIHW", "out_dtype": out,
    }  # fmt: skip

    def reference(x: Array, w: Array) -> Array:
        if last:
            x, w = x.transpose(_TO_NCHW), w.transpose(_TO_NCHW)
        y = conv(x, w, (1, 1), [(1, 1)] * 2, (1, 1), groups)
        return y.transpose(_TO_NHWC) if last else y

    name = f"{layout} {dtype} to {out}" + f", {groups} groups" * (groups > 1)
    make = module(inputs, lambda x, w: relay.nn.conv2d(x, w, **attrs))
    return _case(
        "test_conv2d", name, make, inputs, reference, tolerance=1e-2,
        declined=INTEGERS if dtype == "int8" else "",
    )  # fmt: skip


def _volume(groups: int) -> Case:
    inputs = {
        "x": Tensor((3, 4, 32, 32, 32), "float32"),
        "w": Tensor((16, 4 // groups, 3, 3, 3), "float32"),
    }
    attrs = {"channels": 16, "kernel_size": (3,) * 3, "padding": (1,) * 3, "groups": groups}

    def reference(x: Array, w: Array) -> Array:
        return conv(x, w, (1,) * 3, [(1, 1)] * 3, (1,) * 3, groups)

    make = module(inputs, lambda x, w: relay.nn.conv3d(x, w, **attrs))
    return _case("test_conv3d", f"{groups} groups", make, inputs, reference, tolerance=1e-4)


def _softmax(
    test: str, shape: tuple[int, ...], axis: int, dtype: str, log: bool = False,
    tolerance: float = 1e-3, reach: float = 1.0,
) -> Case:  # fmt: skip
    inputs = {"x": Tensor(shape, dtype, low=-reach, high=reach)}

    def reference(x: Array) -> Array:
        y = softmax(x, axis)
        return np.log(y) if log else y

    make = module(inputs, lambda x: (relay.nn.log_softmax if log else relay.nn.softmax)(x, axis))
    name = f"{'log_' * log}softmax {shape} axis {axis} {dtype}"
    return _case(test, name, make, inputs, reference, tolerance=tolerance, declined=SOFTMAX)


def _backward_data(dtype: str, layout: str, tolerance: float) -> Case:
    last = layout == "NHWC"
    inputs = {
        "dy": Tensor((3, 32, 32, 16) if last else (3, 16, 32, 32), dtype),
        "w": Tensor((16, 3, 3, 4) if last else (16, 4, 3, 3), dtype),
    }
    attrs = {
        "channels": 4, "kernel_size": (3, 3), "padding": (1, 1), "data_layout": layout,
        "kernel_layout": "IHWO" if last else "IOHW",
    }  # fmt: skip

    def reference(dy: Array, w: Array) -> Array:
        if last:
            dy, w = dy.transpose(_TO_NCHW), w.transpose(_TO_NCHW)
        y = conv_transpose(dy, w, (1, 1), [(1, 1)] * 2, (0, 0), (1, 1))
        return y.transpose(_TO_NHWC) if last else y

    make = module(inputs, lambda dy, w: relay.nn.conv2d_transpose(dy, w, **attrs))
    return _case("test_conv2d_backward_data", f"{layout} {dtype}", make, inputs, reference,
                 tolerance=tolerance)  # fmt: skip


def _backward_filter(layout: str) -> Case:
    last = layout == "NHWC"
    inputs = {
        "dy": Tensor((3, 32, 32, 16) if last else (3, 16, 32, 32), "float32"),
        "x": Tensor((3, 32, 32, 4) if last else (3, 4, 32, 32), "float32"),
    }
    attrs = {
        "kernel_size": (3, 3), "padding": (1, 1), "channels": 16, "grad_layout": layout,
        "data_layout": layout, "kernel_layout": "OHWI" if last else "OIHW",
    }  # fmt: skip

    def reference(dy: Array, x: Array) -> Array:
        if last:
            dy, x = dy.transpose(_TO_NCHW), x.transpose(_TO_NCHW)
        w = conv_wgrad(dy, x, (3, 3), (1, 1), (1, 1))
        return w.transpose(_TO_NHWC) if last else w

    make = module(inputs, lambda dy, x: relay.nn.conv2d_backward_weight(dy, x, **attrs))
    return _case("test_conv2d_backward_filter", f"{layout} float32", make, inputs, reference,
                 tolerance=1e-2)  # fmt: skip


def _flat4(padding: Sequence[int]) -> tuple[int, int, int, int]:
    top, left, bottom, right = padding if len(padding) == 4 else (*padding, *padding)
    return top, left, bottom, right


def _relay_conv(
    size: tuple[int, ...], kernel: tuple[int, int], padding: Sequence[int],
    strides: tuple[int, int], dilation: tuple[int, int], dtype: str, activation: bool | None,
) -> Case:  # fmt: skip
    n, h, w, ci, co, groups = size
    inputs = {
        "data": Tensor((n, ci, h, w), dtype),
        "weight": Tensor((co, ci // groups, *kernel), dtype),
    }
    if activation is not None:
        inputs["bias"] = Tensor((co,), dtype)
    attrs = {
        "channels": co, "kernel_size": kernel, "padding": tuple(padding), "strides": strides,
        "dilation": dilation, "groups": groups,
    }  # fmt: skip

    def build(data: Any, weight: Any, *bias: Any) -> Any:
        y = relay.nn.conv2d(data, weight, **attrs)
        y = relay.nn.bias_add(y, bias[0]) if bias else y
        return relay.nn.relu(y) if activation else y

    def reference(data: Array, weight: Array, bias: Array | None = None) -> Array:
        top, left, bottom, right = _flat4(padding)
        y = conv(data, weight, strides, [(top, bottom), (left, right)], dilation, groups)
        y = y if bias is None else y + bias.reshape(1, -1, 1, 1)
        return np.maximum(y, 0) if activation else y

    test = "test_relay_cudnn_conv2d" + "_bias_act" * (activation is not None)
    name = f"n{n} {h}x{w} {ci}->{co} {kernel[0]}x{kernel[1]} stride {strides} {dtype}"
    name += ", relu" * bool(activation)
    # TVM's own limit there is a relative 1e-2 with an absolute 30.
    return _case(test, name, module(inputs, build), inputs, reference, tolerance=1e-2,
                 rounded=True, declined=DOUBLE if dtype == "float64" else "")  # fmt: skip


_DTYPES = ("float16", "float32", "float64")
_SIZES = [(1, 16, 20, 8, 16, 1), (10, 17, 19, 16, 8, 4)]
_KERNELS = [((1, 1), (3, 1, 3, 1)), ((3, 3), (1, 2)), ((7, 2), (0, 0))]
_STEPS = [
    ((1, 1), (1, 1), "float32"),
    ((2, 1), (2, 2), "float16"),
    ((3, 3), (1, 2), "float64"),
]
_HALF = {"tolerance": 1e-2, "reach": 32.0}

CASES = [
    *[
        _forward(dtype, out, layout, groups)
        for groups in (1, 2)
        for dtype, out, layout in [
            ("float32", "float32", "NCHW"),
            ("float16", "float32", "NHWC"),
            ("float16", "float16", "NCHW"),
            ("float16", "float16", "NHWC"),
            ("int8", "int32", "NHWC"),
        ]
    ],
    *[_volume(groups) for groups in (1, 2)],
    *[
        _softmax("test_softmax", shape, axis, dtype, log)
        for log in (False, True)
        for shape, axis, dtype in [
            ((32, 10), -1, "float32"),
            ((3, 4), -1, "float32"),
            ((1, 5), -1, "float64"),
            ((1, 16, 256, 256), 1, "float32"),
            ((1, 16, 256, 256), 1, "float64"),
        ]
    ],
    _backward_data("float32", "NCHW", 1e-5),
    _backward_data("float32", "NHWC", 1e-2),
    _backward_data("float16", "NHWC", 1e-1),
    *[_backward_filter(layout) for layout in ("NCHW", "NHWC")],
    *[
        _softmax("test_relay_cudnn_softmax", shape, axis, dtype, **_HALF)
        for (shape, axis), dtype in product(
            [((200,), 0), ((13, 27), 0), ((44, 12, 67), 1), ((1, 16, 16, 8), 2),
             ((2, 4, 6, 8, 10), 3)],
            _DTYPES,
        )
    ],
    *[
        _softmax("test_relay_cudnn_log_softmax", shape, axis, dtype, log=True, **_HALF)
        for (shape, axis), dtype in product([((32, 16), -1), ((13, 27), 1)], _DTYPES)
    ],
    *[
        _relay_conv(size, *kernel, *steps, activation=None)
        for size, kernel, steps in product(_SIZES, _KERNELS, _STEPS)
    ],
    *[
        _relay_conv(size, *kernel, *steps, activation=activation)
        for size in _SIZES
        for kernel, steps in zip(_KERNELS, _STEPS, strict=True)
        for activation in (True, False)
    ],
]  # fmt: skip
