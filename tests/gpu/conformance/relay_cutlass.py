"""TVM 0.18's tests of its CUTLASS integration."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from convoy import relay

from ...relay.reference import conv, conv_transpose, erf, sigmoid
from .case import Case, NotCompiled, Tensor
from .wgrad import conv_wgrad

SUITE = "0.18 CUTLASS"
M, N, K = 96, 64, 64
UINT8 = "uint8 data: the kernels multiply int8 by int8"
BATCHED = "batched GEMMs: kernels of cuBLASLt"
UNKNOWN = "unknown sizes: kernels are chosen for known ones; TVM compiles it"
PACKED = "a packed function of TVM's C++ runtime, which no Relay program calls"

Array = np.ndarray
Epilogue = Callable[[Any], Any]


def _case(test: str, name: str, module: Any, inputs: Any, reference: Any, **more: Any) -> Case:
    tolerance = more.pop("tolerance", 1e-5)
    return Case(SUITE, test, name, module, inputs, reference, tolerance, "cutlass", **more)


def module(inputs: dict[str, Tensor], build: Callable[..., Any]) -> Callable[[], Any]:
    """A maker of a module whose parameters are the inputs, in order."""

    def make() -> Any:
        params = [relay.var(n, shape=t.shape, dtype=t.dtype) for n, t in inputs.items()]
        function = relay.Function(params, build(*params))
        return relay.transform.InferType()(relay.IRModule.from_expr(function))

    return make


# ---- products


def gelu(x: Any, dtype: str) -> Any:
    scaled = x * relay.const(1 / math.sqrt(2), dtype)
    wide = relay.erf(scaled.astype("float32")).astype(dtype)
    return (wide * relay.const(0.5, dtype) + relay.const(0.5, dtype)) * x


def _dense(
    name: str, out: str, n: int = N, bias: bool = False, after: str = "", **more: Any
) -> Case:
    dtype = more.pop("dtype", "float16")
    inputs = {"data": Tensor((M, K), dtype), "weight": Tensor((n, K), dtype, bound=True)}
    if bias:
        inputs["bias"] = Tensor((n,), out, bound=True)

    def build(data: Any, weight: Any, *rest: Any) -> Any:
        y = relay.nn.dense(data, weight, out_dtype=out)
        y = relay.nn.bias_add(y, rest[0]) if rest else y
        if after == "relu":
            return relay.nn.relu(y)
        return gelu(y, out) if after == "gelu" else y

    def reference(data: Array, weight: Array, bias: Array | float = 0.0) -> Array:
        y = data @ weight.T + bias
        if after == "relu":
            return np.maximum(y, 0)
        return y * (0.5 + 0.5 * erf(y / math.sqrt(2))) if after == "gelu" else y

    test = "test_dense" + "_bias" * (bias and n == N) + (f"_{after}" if after else "")
    more["rounded" if after == "gelu" else "exact"] = True
    return _case(test, name, module(inputs, build), inputs, reference, **more)


def _dense_of_unknown(name: str, out: str, tolerance: float) -> Case:
    def make() -> Any:
        data, weight = (relay.var(n, shape=(relay.Any(), K), dtype="float16") for n in "xw")
        body = relay.nn.dense(data, weight, out_dtype=out)
        return relay.IRModule.from_expr(relay.Function([data, weight], body))

    inputs = {"x": Tensor((M, K)), "w": Tensor((N, K))}
    return _case(
        "test_dense_dynamic", name, make, inputs, lambda x, w: x @ w.T,
        tolerance=tolerance, machine=True, declined=UNKNOWN,
    )  # fmt: skip


def _batch_matmul(name: str, unknown: bool = False) -> Case:
    def make() -> Any:
        lead = (relay.Any(), relay.Any()) if unknown else None
        x, y = (
            relay.var(n, shape=(*(lead or (8, rows)), K), dtype="float16")
            for n, rows in (("x", M), ("y", N))
        )
        body = relay.nn.batch_matmul(x, y, out_dtype="float16")
        return relay.IRModule.from_expr(relay.Function([x, y], body))

    inputs = {"x": Tensor((8, M, K)), "y": Tensor((8, N, K))}
    return _case(
        "test_batch_matmul", name, make, inputs, lambda x, y: x @ y.transpose(0, 2, 1),
        machine=unknown, declined=UNKNOWN if unknown else BATCHED, exact=not unknown,
    )  # fmt: skip


PRODUCTS = [
    _dense("float16", "float16"),
    _dense("float16 to float32", "float32"),
    _dense("bias, 65 columns", "float16", n=N + 1, bias=True),
    _dense("int8", "int32", dtype="int8"),
    _dense("tf32", "float32", dtype="float32", precision="tf32", tolerance=1e-2),
    _dense("float32 (3xtf32 there)", "float32", dtype="float32"),
    _dense("float16", "float16", bias=True),
    _dense("float16 to float32", "float32", bias=True),
    _dense("float16", "float16", bias=True, after="relu"),
    _dense("float16 to float32", "float32", bias=True, after="relu"),
    _dense("float16", "float16", bias=True, after="gelu", tolerance=1e-3),
    _dense("float16 to float32", "float32", bias=True, after="gelu", tolerance=1e-3),
    _dense_of_unknown("float16", "float16", 1e-5),
    _dense_of_unknown("float16 to float32", "float32", 1e-4),
    _batch_matmul("8 products"),
    _batch_matmul("unknown batch and rows", unknown=True),
]


# ---- forward convolutions


def _conv(
    test: str,
    name: str,
    epilogue: Epilogue = lambda y: y,
    function: Callable[[Array], Array] = lambda y: y,
    *,
    shape: tuple[int, ...] = (16, 16, 32, 32),
    filters: int = 32,
    dtypes: tuple[str, str, str] = ("float16", "float16", "float16"),
    bias: bool = False,
    batch: Any = None,
    **more: Any,
) -> Case:
    inputs = {
        "data": Tensor(shape, dtypes[0]),
        "weight": Tensor((filters, shape[1], 3, 3), dtypes[1], bound=True),
    }
    if bias:
        inputs["bias"] = Tensor((filters,), dtypes[2], bound=True)

    def make() -> Any:
        params = [
            relay.var(n, shape=(batch or t.shape[0], *t.shape[1:]), dtype=t.dtype)
            if n == "data"
            else relay.var(n, shape=t.shape, dtype=t.dtype)
            for n, t in inputs.items()
        ]
        y = relay.nn.conv2d(
            params[0], params[1], channels=filters, kernel_size=(3, 3), padding=(1, 1),
            out_dtype=dtypes[2],
        )  # fmt: skip
        y = relay.nn.bias_add(y, params[2]) if bias else y
        return relay.IRModule.from_expr(relay.Function(params, epilogue(y)))

    def reference(data: Array, weight: Array, bias: Array | None = None) -> Array:
        y = conv(data, weight, (1, 1), [(1, 1), (1, 1)], (1, 1))
        return function(y if bias is None else y + bias.reshape(1, -1, 1, 1))

    return _case(test, name, make, inputs, reference, **more)


def silu(y: Any) -> Any:
    return y * relay.sigmoid(y)


def hardswish(y: Any) -> Any:
    three, six = relay.const(3, "float16"), relay.const(6, "float16")
    return y * (relay.clip(y + three, 0, 6) / six)


def np_silu(y: Array) -> Array:
    return y * sigmoid(y)


def np_hardswish(y: Array) -> Array:
    return y * np.clip(y + 3, 0, 6) / 6


_HALF_TO_FLOAT = ("float16", "float16", "float32")
CONVOLUTIONS = [
    _conv("test_conv2d", "3 channels", shape=(16, 3, 32, 32), exact=True),
    _conv("test_conv2d", "16 channels", exact=True),
    _conv("test_conv2d", "unknown batch", batch=relay.Any(), machine=True, declined=UNKNOWN),
    _conv("test_conv2d", "float32 (3xtf32 there)", dtypes=("float32",) * 3, exact=True),
    _conv("test_conv2d", "int8", dtypes=("int8", "int8", "int32"), exact=True),
    _conv("test_conv2d", "uint8 by int8", dtypes=("uint8", "int8", "int32"), declined=UINT8),
    _conv(
        "test_conv2d", "uint8 by int8, 3 channels", shape=(16, 3, 32, 32),
        dtypes=("uint8", "int8", "int32"), declined=UINT8,
    ),
    _conv("test_conv2d_fusion", "bias", bias=True, exact=True),
    _conv("test_conv2d_fusion", "bias, relu", relay.nn.relu, lambda y: np.maximum(y, 0),
          bias=True, exact=True),
    _conv("test_conv2d_fusion", "bias, sigmoid", relay.sigmoid, sigmoid, bias=True),
    _conv("test_conv2d_fusion", "bias, sigmoid, fast math", relay.sigmoid, sigmoid, bias=True,
          tolerance=1e-3),
    _conv("test_conv2d_fusion", "bias, sigmoid, to float32", relay.sigmoid, sigmoid, bias=True,
          dtypes=_HALF_TO_FLOAT),
    _conv("test_conv2d_fusion", "bias, silu, to float32", silu, np_silu, bias=True,
          dtypes=_HALF_TO_FLOAT),
    _conv("test_conv2d_fusion", "bias, hardswish", hardswish, np_hardswish, bias=True,
          tolerance=5e-2),
]  # fmt: skip


def _residual(name: str, build: Callable[..., Any], function: Any, tolerance: float = 1e-5) -> Case:
    inputs = {
        "data": Tensor((16, 16, 32, 32)),
        "weight": Tensor((16, 16, 3, 3), bound=True),
        "bias": Tensor((16,), bound=True),
    }

    def expr(data: Any, weight: Any, bias: Any) -> Any:
        y = relay.nn.conv2d(data, weight, channels=16, kernel_size=(3, 3), padding=(1, 1))
        return build(relay.nn.bias_add(y, bias), data)

    def reference(data: Array, weight: Array, bias: Array) -> Array:
        y = conv(data, weight, (1, 1), [(1, 1), (1, 1)], (1, 1)) + bias.reshape(1, -1, 1, 1)
        return function(y, data)

    return _case("test_conv2d_residual_block", name, module(inputs, expr), inputs, reference,
                 tolerance=tolerance, rounded=True)  # fmt: skip


RESIDUALS = [
    _residual("relu(b + x)", lambda b, x: relay.nn.relu(b + x), lambda b, x: np.maximum(b + x, 0)),
    _residual("relu(b) + x", lambda b, x: relay.nn.relu(b) + x, lambda b, x: np.maximum(b, 0) + x),
    _residual("sigmoid(b) * x", lambda b, x: relay.sigmoid(b) * x, lambda b, x: sigmoid(b) * x),
    _residual("relu(silu(b) * x)", lambda b, x: relay.nn.relu(silu(b) * x),
              lambda b, x: np.maximum(np_silu(b) * x, 0)),
    _residual("relu(hardswish(b) + x)", lambda b, x: relay.nn.relu(hardswish(b) + x),
              lambda b, x: np.maximum(np_hardswish(b) + x, 0), 5e-2),
]  # fmt: skip


# ---- gradients


def _dgrad(stride: int) -> Case:
    inputs = {
        "data": Tensor((16, 8, 32 // stride, 32 // stride), "float32"),
        "weight": Tensor((8, 16, 3, 3), "float32", bound=True),
    }
    attrs = {
        "channels": 16, "kernel_size": (3, 3), "padding": (1, 1), "strides": (stride, stride),
        "output_padding": (stride - 1, stride - 1),
    }  # fmt: skip

    def reference(data: Array, weight: Array) -> Array:
        return conv_transpose(
            data, weight, (stride,) * 2, [(1, 1)] * 2, (stride - 1,) * 2, (1, 1)
        )  # fmt: skip

    build = module(inputs, lambda d, w: relay.nn.conv2d_transpose(d, w, **attrs))
    return _case("test_conv2d_transpose", f"stride {stride}", build, inputs, reference,
                 tolerance=1e-3)  # fmt: skip


def _wgrad(stride: int, slices: int) -> Case:
    inputs = {
        "grad": Tensor((16, 8, 32 // stride, 32 // stride)),
        "data": Tensor((16, 16, 32, 32)),
    }
    attrs = {
        "kernel_size": (3, 3), "padding": (1, 1), "strides": (stride, stride), "channels": 8,
        "out_dtype": "float32",
    }  # fmt: skip

    def reference(grad: Array, data: Array) -> Array:
        return conv_wgrad(grad, data, (3, 3), (stride,) * 2, (1, 1))

    build = module(inputs, lambda g, d: relay.nn.conv2d_backward_weight(g, d, **attrs))
    name = f"stride {stride}, split-K {slices} there"
    return _case("test_conv2d_backward_weight", name, build, inputs, reference, tolerance=5e-3)


def _chain() -> Case:
    inputs = {
        "data": Tensor((M, K)),
        "weight": Tensor((N, K), bound=True),
        "second": Tensor((K, M), bound=True),
    }

    def build(data: Any, weight: Any, second: Any) -> Any:
        y = relay.transpose(relay.nn.dense(data, weight), (1, 0))
        return relay.nn.dense(y, second)

    def reference(data: Array, weight: Array, second: Array) -> Array:
        return (data @ weight.T).astype("float16").astype("float64").T @ second.T

    return _case("test_dense_transpose_dense", "plain", module(inputs, build), inputs, reference,
                 exact=True, rounded=True)  # fmt: skip


CASES = [
    *PRODUCTS,
    *CONVOLUTIONS,
    *RESIDUALS,
    *[_dgrad(stride) for stride in (1, 2)],
    *[_wgrad(stride, slices) for stride in (1, 2) for slices in (1, 8)],
    _chain(),
]
NOT_COMPILED = [
    NotCompiled(SUITE, "test_group_gemm_sm90", "float16 and float8", PACKED),
    NotCompiled(SUITE, "test_fp8_gemm_sm90", "e4m3 and e5m2", PACKED),
]
