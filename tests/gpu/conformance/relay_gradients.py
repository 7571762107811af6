"""TVM 0.18's tests of a convolution's gradients as Relay operators, outside of its BYOC tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax

from convoy import relay

from ...relay.reference import conv_transpose
from .case import Case, Tensor
from .relay_cutlass import module
from .wgrad import conv_wgrad

SUITE = "0.18 gradients"

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


def _gradient(
    suite: str,
    test: str,
    name: str,
    x: tuple[int, ...],
    w: tuple[int, ...],
    stride: int,
    pad: int,
    tolerance: float,
    groups: int = 1,
    precision: str = "float32",
) -> Case:
    """Both gradients of a convolution whose outputs are weighted and summed, by TVM's automatic
    differentiation of the converted module with convoy's rules."""
    size = [(d + 2 * pad - k) // stride + 1 for d, k in zip(x[2:], w[2:], strict=True)]
    inputs = {
        "x": Tensor(x, "float32"),
        "w": Tensor(w, "float32"),
        "dy": Tensor((x[0], w[0], *size), "float32"),
    }

    def loss(x: Any, w: Any, dy: Any) -> Any:
        y = relay.nn.conv2d(
            x, w, strides=stride, padding=pad, groups=groups, channels=inputs["w"].shape[0],
            kernel_size=inputs["w"].shape[2:],
        )  # fmt: skip
        return relay.sum(y * dy)

    def make() -> Any:
        forward = relay.to_relax(module(inputs, loss)())
        data, weight, _ = forward["main"].params
        both = relax.transform.Gradient("main", [data, weight])(forward)["main_adjoint"]
        body = relax.SeqExpr(both.body.blocks, both.body.body.fields[1])  # without the loss
        function = relax.Function(both.params, body, body.body.ty)
        return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})

    def reference(x: Array, w: Array, dy: Array) -> list[Array]:
        left = [
            d - ((p - 1) * stride + k - 2 * pad)
            for d, p, k in zip(x.shape[2:], dy.shape[2:], w.shape[2:], strict=True)
        ]
        dx = conv_transpose(dy, w, (stride,) * 2, [(pad, pad)] * 2, left, (1, 1), groups)
        return [dx, conv_wgrad(dy, x, w.shape[2:], (stride,) * 2, (pad,) * 2, groups)]

    backend = "cutlass" if "CUTLASS" in suite else "cudnn"
    return Case(suite, test, name, make, inputs, reference, tolerance, backend,
                precision=precision, rounded=True)  # fmt: skip


CASES = [
    _wgrad((2, 8, 32, 32), (2, 4, 32, 32), 1, 1),
    _wgrad((2, 16, 15, 15), (2, 3, 32, 32), 2, 0),
    _wgrad((1, 16, 32, 32), (1, 16, 32, 32), 1, 1, groups=16),
    _transpose("NCHW", "IOHW", "test_conv2d_transpose_nchw_run"),
    _transpose("NCHW", "OIHW", "test_conv2d_transpose_nchw_run"),
    _transpose("NHWC", "HWOI", "test_conv2d_transpose_nhwc_run"),
    _transpose("NHWC", "IHWO", "test_conv2d_transpose_nhwc_cudnn"),
    _gradient(SUITE, "test_conv2d_grad", "3x3", (1, 4, 16, 16), (16, 4, 3, 3), 1, 1, 1e-3),
    _gradient(SUITE, "test_conv2d_grad", "1x1", (1, 4, 16, 16), (16, 4, 1, 1), 1, 0, 1e-3),
    _gradient(SUITE, "test_conv2d_grad", "1x1, stride 2", (1, 4, 16, 16), (16, 4, 1, 1), 2, 0,
              1e-3),
    _gradient(SUITE, "test_conv2d_backward_weight_infer_type", "dense", (1, 3, 32, 32),
              (3, 3, 3, 3), 1, 1, 1e-3),
    _gradient(SUITE, "test_conv2d_backward_weight_infer_type", "depthwise", (1, 3, 32, 32),
              (3, 1, 3, 3), 1, 1, 1e-3, groups=3),
    _gradient("0.18 CUTLASS", "test_conv2d_bwd", "float32", (16, 16, 32, 32), (8, 16, 3, 3), 1, 0,
              1e-4),
    _gradient("0.18 CUTLASS", "test_conv2d_bwd", "float16", (16, 16, 32, 32), (8, 16, 3, 3), 1, 0,
              1e-2, precision="float16"),
]  # fmt: skip
