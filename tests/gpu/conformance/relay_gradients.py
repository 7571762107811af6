"""TVM 0.18's tests of a convolution's gradients as Relay operators, outside of its BYOC tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from convoy import relay

from ...relay.reference import conv_transpose
from .case import Case, NotCompiled, Tensor
from .relay_cutlass import module
from .wgrad import conv_wgrad

SUITE = "0.18 gradients"
FIRST_ORDER = "relay.transform.gradient: convoy differentiates Relax modules"

Array = np.ndarray


def _wgrad(dy: tuple[int, ...], x: tuple[int, ...], stride: int, pad: int, groups: int = 1) -> Case:
    inputs = {"dy": Tensor(dy, "float32"), "x": Tensor(x, "float32")}
    attrs = {
        "kernel_size": (3, 3), "strides": (stride, stride), "padding": (pad, pad),
        "groups": groups, "channels": dy[1],
    }  # fmt: skip

    def reference(dy: Array, x: Array) -> Array:
        return conv_wgrad(dy, x, (3, 3), (stride,) * 2, (pad,) * 2, groups)

    make = module(inputs, lambda g, d: relay.nn.conv2d_backward_weight(g, d, **attrs))
    name = f"stride {stride}, pad {pad}" + ", depthwise" * (groups > 1)
    return Case(SUITE, "test_conv2d_backward_weight", name, make, inputs, reference, 1e-4, "cudnn")


def _transpose(layout: str, kernel_layout: str, test: str) -> Case:
    last = layout == "NHWC"
    plain = {"I": 3, "O": 10, "H": 3, "W": 3}
    inputs = {
        "x": Tensor((1, 18, 18, 3) if last else (1, 3, 18, 18), "float32"),
        "w": Tensor(tuple(plain[a] for a in kernel_layout), "float32"),
    }
    attrs: dict[str, Any] = {
        "channels": 10, "kernel_size": (3, 3), "strides": (2, 2), "padding": (1, 1),
        "output_padding": (1, 1), "data_layout": layout, "kernel_layout": kernel_layout,
    }  # fmt: skip

    def reference(x: Array, w: Array) -> Array:
        w = w.transpose([kernel_layout.index(a) for a in "IOHW"])
        x = x.transpose(0, 3, 1, 2) if last else x
        y = conv_transpose(x, w, (2, 2), [(1, 1)] * 2, (1, 1), (1, 1))
        return y.transpose(0, 2, 3, 1) if last else y

    make = module(inputs, lambda x, w: relay.nn.conv2d_transpose(x, w, **attrs))
    name = f"{layout} {kernel_layout}"
    return Case(SUITE, test, name, make, inputs, reference, 1e-5, "cudnn")


CASES = [
    _wgrad((2, 8, 32, 32), (2, 4, 32, 32), 1, 1),
    _wgrad((2, 16, 15, 15), (2, 3, 32, 32), 2, 0),
    _wgrad((1, 16, 32, 32), (1, 16, 32, 32), 1, 1, groups=16),
    _transpose("NCHW", "IOHW", "test_conv2d_transpose_nchw_run"),
    _transpose("NCHW", "OIHW", "test_conv2d_transpose_nchw_run"),
    _transpose("NHWC", "HWOI", "test_conv2d_transpose_nhwc_run"),
    _transpose("NHWC", "IHWO", "test_conv2d_transpose_nhwc_cudnn"),
]
NOT_COMPILED = [
    NotCompiled(SUITE, "test_conv2d_grad", "5 cases of numeric differentiation", FIRST_ORDER),
    NotCompiled(SUITE, "test_conv2d_backward_weight_infer_type", "2 programs", FIRST_ORDER),
    NotCompiled("0.18 CUTLASS", "test_conv2d_bwd", "float32 and float16", FIRST_ORDER),
]
