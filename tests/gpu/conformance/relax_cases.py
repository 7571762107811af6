"""TVM 0.27's tests of its CUTLASS and cuDNN integrations, which are about Relax modules."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op

from ...relay.reference import conv, erf, normalized, sigmoid
from .case import Case, NotCompiled, Tensor
from .relay_cutlass import BATCHED

CUTLASS, CUDNN = "0.27 CUTLASS", "0.27 cuDNN"
SYMBOLIC = "symbolic sizes: refused with DynamicShape, nothing is compiled"
ATTENTION = "attention: kernels of its own and of cuDNN"
NORM = "layer and RMS norm: kernels of TVM's"
PACKED_WEIGHTS = "int4 and int8 weights decoded in TIR: no kernel decodes its operands"

Array = np.ndarray
Build = Callable[..., Any]


def module(inputs: dict[str, Tensor], build: Build) -> Callable[[], Any]:
    """A maker of a Relax module with one dataflow block; ``build`` emits into its builder."""

    def make() -> Any:
        builder = relax.BlockBuilder()
        params = [relax.Var(n, relax.TensorType(t.shape, t.dtype)) for n, t in inputs.items()]
        with builder.function("main", params):
            with builder.dataflow():
                result = builder.emit_output(build(builder.emit, *params))
            builder.emit_func_output(result)
        return builder.get()

    return make


# ---- convolutions

_ACTIVATIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Array], Array]]] = {
    "none": (lambda y: y, lambda y: y),
    "relu": (op.nn.relu, lambda y: np.maximum(y, 0)),
    "silu": (op.nn.silu, lambda y: y * sigmoid(y)),
    "gelu": (op.nn.gelu, lambda y: y * (0.5 + 0.5 * erf(y / math.sqrt(2)))),
}


def _conv(
    suite: str,
    name: str,
    x: tuple[int, ...],
    w: tuple[int, ...],
    bias: bool = False,
    activation: str = "none",
    residual: str = "none",
    *,
    dtype: str = "float16",
    layout: str = "NHWC",
    tolerance: float = 1e-5,
    broadcast: bool = False,
) -> Case:
    """``residual`` is "add" or "mul" of the input, with "_relu" behind it."""
    last = layout == "NHWC"
    inputs = {"data": Tensor(x, dtype), "weight": Tensor(w, dtype)}
    filters = (1, 1, 1, w[0]) if last else (1, w[0], 1, 1)
    if bias:
        inputs["bias"] = Tensor(filters, dtype)
    if broadcast:
        inputs["other"] = Tensor(filters, dtype)
    on_graph, in_numpy = _ACTIVATIONS[activation]

    def build(emit: Any, data: Any, weight: Any, *rest: Any) -> Any:
        y = emit(
            op.nn.conv2d(
                data,
                weight,
                padding=(1, 1),
                data_layout=layout,
                kernel_layout="OHWI" if last else "OIHW",
            )
        )
        y = emit(op.add(y, rest[0])) if bias else y
        y = emit(on_graph(y)) if activation != "none" else y
        if broadcast:
            return op.add(y, rest[-1])
        if residual != "none":
            y = emit((op.add if "add" in residual else op.multiply)(y, data))
        return op.nn.relu(y) if residual.endswith("_relu") else y

    def reference(
        data: Array, weight: Array, bias: Array | float = 0.0, other: Array | None = None
    ) -> Array:
        first = (0, 3, 1, 2) if last else (0, 1, 2, 3)
        back = (0, 2, 3, 1) if last else (0, 1, 2, 3)
        y = conv(data.transpose(first), weight.transpose(first), (1, 1), [(1, 1)] * 2, (1, 1))
        y = in_numpy(y.transpose(back) + bias)
        if other is not None:
            return y + other
        if residual != "none":
            y = y + data if "add" in residual else y * data
        return np.maximum(y, 0) if residual.endswith("_relu") else y

    exact = activation in ("none", "relu") and "mul" not in residual
    return Case(
        suite, "test_conv2d_residual_broadcast" if broadcast else "test_conv2d_offload", name,
        module(inputs, build), inputs, reference, tolerance, suite.split()[-1].lower(),
        exact=exact and dtype == "float16", rounded=residual != "none" or broadcast,
        precision=dtype,
    )  # fmt: skip


CONVOLUTIONS = [
    _conv(CUTLASS, "none", (16, 32, 32, 16), (32, 3, 3, 16)),
    _conv(CUTLASS, "bias", (40, 128, 50, 16), (16, 2, 2, 16), True),
    _conv(CUTLASS, "bias, relu", (3, 64, 64, 128), (32, 1, 1, 128), True, "relu"),
    _conv(CUTLASS, "bias, silu, 45 filters", (12, 32, 32, 16), (45, 5, 5, 16), True, "silu"),
    _conv(CUTLASS, "relu, add", (3, 64, 64, 16), (16, 3, 3, 16), False, "relu", "add"),
    _conv(CUTLASS, "relu, mul, relu", (16, 32, 32, 16), (16, 3, 3, 16), False, "relu", "mul_relu"),
    _conv(
        CUTLASS, "bias, add, relu", (40, 128, 50, 16), (16, 3, 3, 16), True, "none", "add_relu"
    ),
    _conv(CUTLASS, "silu, mul", (128, 32, 32, 16), (16, 3, 3, 16), False, "silu", "mul"),
    _conv(CUTLASS, "bias, a channel each added", (2, 64, 64, 8), (8, 3, 3, 8), True,
          broadcast=True),
    *[
        _conv(
            CUDNN, f"{layout} {name} {dtype}", x, w, bias, activation, dtype=dtype, layout=layout,
            tolerance=tolerance,
        )
        for layout, x, w, limits in [
            ("NHWC", (16, 32, 32, 16), (32, 3, 3, 16), (2.5e-2, 3e-1)),
            ("NCHW", (16, 16, 32, 32), (32, 16, 3, 3), (1e-2, 1e-1)),
        ]
        for name, bias, activation, dtype, tolerance in [
            ("none", False, "none", "float32", limits[0]),
            ("bias", True, "none", "float32", limits[0]),
            ("bias, relu", True, "relu", "float32", limits[0]),
            ("bias, relu", True, "relu", "float16", limits[1]),
        ]
    ],
]  # fmt: skip


def _two_convs() -> Case:
    inputs = {
        "data": Tensor((16, 32, 32, 8)),
        "first": Tensor((8, 3, 3, 8)),
        "second": Tensor((8, 3, 3, 8)),
    }
    layouts = {"padding": (1, 1), "data_layout": "NHWC", "kernel_layout": "OHWI"}

    def build(emit: Any, data: Any, first: Any, second: Any) -> Any:
        return op.nn.conv2d(emit(op.nn.conv2d(data, first, **layouts)), second, **layouts)

    def reference(data: Array, first: Array, second: Array) -> Array:
        y = data.transpose(0, 3, 1, 2)
        for weight in (first, second):
            y = conv(y, weight.transpose(0, 3, 1, 2), (1, 1), [(1, 1)] * 2, (1, 1))
            y = y.astype("float16").astype("float64")
        return y.transpose(0, 2, 3, 1)

    return Case(CUTLASS, "test_kernel_sharing", "two of one kernel", module(inputs, build), inputs,
                reference, 1e-5, "cutlass", exact=True, rounded=True)  # fmt: skip


# ---- products


def _matmul(
    x: tuple[int, ...],
    y: tuple[int, ...],
    transposed: bool = False,
    epilogue: str = "none",
    residual: str = "none",
) -> Case:
    """``epilogue``: "bias", or "bias_" with an activation. ``y`` is before transposition."""
    bias = epilogue != "none"
    activation = epilogue.partition("_")[2] or "none"
    on_graph, in_numpy = _ACTIVATIONS[activation]
    stored = (*y[:-2], y[-1], y[-2]) if transposed else y
    inputs = {"x": Tensor(x), "y": Tensor(stored)}
    if bias:
        inputs["bias"] = Tensor((y[-1],))

    def build(emit: Any, a: Any, b: Any, *rest: Any) -> Any:
        if transposed:
            axes = [*range(len(y) - 2), len(y) - 1, len(y) - 2]
            b = emit(op.permute_dims(b, axes))
        z = emit(op.matmul(a, b))
        z = emit(op.add(z, rest[0])) if bias else z
        z = emit(on_graph(z)) if activation != "none" else z
        if residual != "none":
            z = emit((op.add if "add" in residual else op.multiply)(z, a))
        return op.nn.relu(z) if residual.endswith("_relu") else z

    def reference(x: Array, y: Array, bias: Array | float = 0.0) -> Array:
        z = in_numpy(x @ (np.swapaxes(y, -1, -2) if transposed else y) + bias)
        if residual != "none":
            z = z + x if "add" in residual else z * x
        return np.maximum(z, 0) if residual.endswith("_relu") else z

    flat = len(x) == len(y) == 2
    name = f"{x} by {y}, {'transposed, ' * transposed}{epilogue}, {residual}"
    return Case(CUTLASS, "test_matmul_offload", name, module(inputs, build), inputs, reference,
                1e-2, "cutlass", rounded=True, declined="" if flat else BATCHED)  # fmt: skip


PRODUCTS = [
    _matmul((32, 6), (6, 16)),
    _matmul((4, 16), (16, 128), True, "bias_relu"),
    _matmul((35, 16), (16, 128), False, "bias_gelu"),
    _matmul((6, 32, 8), (6, 8, 10), False, "bias"),
    _matmul((6, 32, 8), (6, 8, 10), True),
    _matmul((6, 32, 8), (8, 10)),
    _matmul((10, 16, 8), (8, 10), True, "bias_relu"),
    _matmul((32, 8), (10, 8, 10), False, "bias_relu"),
    _matmul((32, 8), (10, 8, 10), True, "bias_gelu"),
    _matmul((3, 6, 32, 8), (8, 10), False, "bias"),
    _matmul((32, 8), (5, 3, 8, 10), False, "bias_gelu"),
    _matmul((5, 3, 32, 8), (5, 3, 8, 10), True, "bias_relu"),
    _matmul((3, 2, 4, 16, 15), (1, 1, 15, 2), True, "bias_gelu"),
    _matmul((32, 8), (8, 8), False, "bias", "add"),
    _matmul((4, 16), (16, 16), True, "bias_relu", "add_relu"),
    _matmul((8, 32, 8), (8, 8, 8), False, "bias", "add"),
    _matmul((5, 3, 32, 32), (5, 3, 32, 32), True, "bias_relu", "mul"),
]


# ---- what no backend takes: correct, by TVM


def _attention(name: str, q_len: int, kv_len: int, **options: Any) -> Case:
    batch, heads, size = 4, 8, 16
    inputs = {
        "q": Tensor((batch, q_len, heads, size)),
        "k": Tensor((batch, kv_len, heads, size)),
        "v": Tensor((batch, kv_len, heads, size)),
    }
    if options.pop("bias", False):
        inputs["bias"] = Tensor((batch, heads, q_len, kv_len))

    def build(emit: Any, q: Any, k: Any, v: Any, *bias: Any) -> Any:
        return op.nn.attention(q, k, v, *bias, **options)

    def reference(q: Array, k: Array, v: Array, bias: Array | float = 0.0) -> Array:
        scores = np.einsum("bqhd,bkhd->bhqk", q, k) * options.get("scale", size**-0.5) + bias
        if options.get("causal_mask"):
            hidden = np.arange(kv_len) > np.arange(q_len)[:, None]
            scores = np.where(hidden, -np.inf, scores)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        return np.einsum("bhqk,bkhd->bqhd", weights, v)

    return Case(CUTLASS, "test_attention_offload", name, module(inputs, build), inputs, reference,
                1e-2, "cutlass", rounded=True, declined=ATTENTION)  # fmt: skip


def _layer_norm(shape: tuple[int, ...], axes: tuple[int, ...]) -> Case:
    size = tuple(shape[a] for a in axes)
    inputs = {"x": Tensor(shape), "gamma": Tensor(size), "beta": Tensor(size)}
    return Case(
        CUTLASS, "test_layer_norm", f"{shape} axes {axes}",
        module(inputs, lambda emit, x, g, b: op.nn.layer_norm(x, g, b, axes=list(axes))), inputs,
        lambda x, gamma, beta: normalized(x, axes) * gamma + beta,
        1e-2, "cutlass", rounded=True, declined=NORM,
    )  # fmt: skip


def _rms_norm(shape: tuple[int, ...], axis: int) -> Case:
    inputs = {"x": Tensor(shape), "weight": Tensor((shape[axis],))}

    def reference(x: Array, weight: Array) -> Array:
        return x / np.sqrt((x**2).mean(axis, keepdims=True) + 1e-5) * weight

    return Case(
        CUTLASS, "test_rms_norm", f"{shape} axis {axis}",
        module(inputs, lambda emit, x, w: op.nn.rms_norm(x, w, axes=[axis])), inputs, reference,
        1e-2, "cutlass", rounded=True, declined=NORM,
    )  # fmt: skip


OTHERS = [
    _attention("8 by 16", 8, 16),
    _attention("16 by 16, bias", 16, 16, bias=True),
    _attention("16 by 8, scale", 16, 8, scale=0.3),
    _attention("16 by 16, causal", 16, 16, causal_mask="TopLeft"),
    _layer_norm((16, 16), (-1,)),
    _layer_norm((4, 16, 16), (-1,)),
    _layer_norm((4, 16, 16), (-2, -1)),
    _rms_norm((4, 16, 64), -1),
]

CASES = [*CONVOLUTIONS, _two_convs(), *PRODUCTS, *OTHERS]
NOT_COMPILED = [
    NotCompiled(CUTLASS, "test_conv2d_dynamic", "batch, channels", SYMBOLIC),
    NotCompiled(CUTLASS, "test_matmul_offload", "6 of 23 with a symbolic size", SYMBOLIC),
    NotCompiled(CUTLASS, "test_batched_var_len_attention", "also the sliding window", ATTENTION),
    NotCompiled(CUTLASS, "test_fp16A_int4B_gemm", "int4 and int8 weights", PACKED_WEIGHTS),
    NotCompiled(CUDNN, "test_stacked_attention_split_offload", "BS3NH, SBN3H", ATTENTION),
]
