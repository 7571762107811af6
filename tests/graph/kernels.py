"""Kernels as the lowering makes them, one operator or a fused chain at a time, for schedule tests
on the CPU (tests/emulation) and on the GPU: Relax in, one PrimFunc and numpy references out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.relax import op

from convoy.lower.accumulate import AccumulateInFloat32
from convoy.lower.executable import lower
from convoy.lower.passes import fuse_passes
from convoy.ops.conv_backward import conv2d_dgrad

from ..helpers.stock import machine

TARGET = tvm.target.Target("nvidia/nvidia-h100", host="llvm")


@dataclass
class Case:
    """A module of one kernel: ``build`` maps (builder, parameters) to the result."""

    name: str
    shapes: list[tuple[int, ...]]
    dtypes: list[str]
    build: object
    rule: str  # the schedule rule that should take it
    build_reference: object = None  # where TVM's CPU pipeline cannot compile ``build``

    def module(self) -> tvm.IRModule:
        bb = relax.BlockBuilder()
        params = [
            relax.Var(f"p{i}", relax.TensorType(s, d))
            for i, (s, d) in enumerate(zip(self.shapes, self.dtypes, strict=True))
        ]
        with bb.function("main", params):
            with bb.dataflow():
                out = bb.emit_output(self.build(bb.emit, *params))
            bb.emit_func_output(out)
        return bb.get()

    def inputs(self, seed: int = 0) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        arrays = zip(self.shapes, self.dtypes, strict=True)
        return [rng.standard_normal(s, "float32").astype(d) for s, d in arrays]

    def fused(self) -> tvm.IRModule:
        with TARGET:
            mod = AccumulateInFloat32()(self.module())
            return tvm.transform.Sequential(fuse_passes())(mod)

    def kernel(self) -> tuple[tirx.PrimFunc, list[np.ndarray]]:
        """The kernel before it is scheduled, with its operands and a result of NaN or 77. Constants
        of the module, such as weights of a depthwise filter, are operands of the kernel too."""
        fused = self.fused()
        (func,) = [f for f in fused.functions.values() if isinstance(f, tirx.PrimFunc)]
        (call,) = [
            binding.value
            for block in fused["main"].body.blocks
            for binding in block.bindings
            if isinstance(binding.value, relax.Call) and "call_tir" in str(binding.value.op)
        ]
        params = dict(zip(fused["main"].params, self.inputs(), strict=True))
        operands = [
            params[arg] if isinstance(arg, relax.Var) else arg.value.numpy()
            for arg in call.args[1].fields
        ]
        shape, dtype = [int(size) for size in call.ty.shape.values], str(call.ty.dtype)
        return func, [*operands, np.full(shape, np.nan if "float" in dtype else 77, dtype)]

    def executable(self, target: tvm.target.Target) -> relax.VMExecutable:
        return lower(self.module(), target, cuda_graph=False)

    def reference(self, inputs: list[np.ndarray]) -> np.ndarray:
        """Float32 result of TVM's own CPU pipeline on the module without any rounding between."""
        build = self.build_reference or self.build
        wide = Case(self.name, self.shapes, ["float32"] * len(self.shapes), build, "")
        main = machine(wide.module())["main"]
        args = [tvm.runtime.tensor(i.astype("float32")) for i in inputs]
        return main(*args).numpy()


def cuda_source(func: tirx.PrimFunc) -> str:
    """The CUDA of a scheduled kernel, without what TVM puts before it."""
    mod = tvm.IRModule({"main": func.with_attr("global_symbol", "k")})
    with TARGET:
        built = tvm.compile(mod, TARGET)
    source = built.mod.imports[0].inspect_source()
    return source[source.rindex('extern "C" __global__') :]


def affine_relu(emit, x, scale, shift):
    return emit(op.nn.relu(emit(op.add(emit(op.multiply(x, scale)), shift))))


def pad_transposed(emit, x):
    """What a causal convolution over a signal does to a network's input."""
    padded = emit(op.nn.pad(x, [0, 0, 0, 0, 2, 0]))
    return emit(op.permute_dims(emit(op.reshape(padded, (1, 32, 1, 66))), [0, 2, 3, 1]))


def entry(emit, x, dtype="float16", pad=1):
    y = emit(op.astype(emit(op.permute_dims(x, [0, 2, 3, 1])), dtype))
    return emit(op.nn.pad(y, [0, 0, 0, 0, 0, 0, 0, pad])) if pad else y


def conv(emit, x, w, **attrs):
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_layout": "NHWC"}
    return emit(op.nn.conv2d(x, w, **layouts, **attrs))


def excitation(gate):
    """The end of a squeeze-and-excitation block."""

    def build(emit, x, squeezed, w, b):
        return emit(op.multiply(x, emit(gate(emit(op.add(conv(emit, squeezed, w), b))))))

    return build


def depthwise(c, r, stride, multiplier=1, seed=3):
    """Depthwise convolution with constant weights."""
    w = np.random.default_rng(seed).standard_normal((c * multiplier, r, r, 1), "float32")

    def build(emit, x):
        weights = relax.const(w.astype(str(x.ty.dtype)))
        return conv(emit, x, weights, strides=stride, padding=r // 2, groups=c)

    return build


def dense(c, k, seed=3):
    """A product with constant weights."""
    w = np.random.default_rng(seed).standard_normal((c, k), "float32")
    return lambda emit, x: emit(op.matmul(x, relax.const(w.astype(str(x.ty.dtype)))))


def conv_transpose_nchw(emit, x, w):
    """The transposed convolution below in the only layout that TVM compiles."""
    x, w = (emit(op.permute_dims(t, [0, 3, 1, 2])) for t in (x, w))
    y = emit(op.nn.conv2d_transpose(x, w, strides=(2, 2), padding=(1, 1), output_padding=(1, 0)))
    return emit(op.permute_dims(y, [0, 2, 3, 1]))


def wide_sum(emit, x, axes):
    """A sum as networks in normal form have it: in float32."""
    total = emit(op.sum(emit(op.astype(x, "float32")), axes))
    return emit(op.astype(total, str(x.ty.dtype)))


def leaky(e, x):
    """An eighth of what is negative, by a comparison."""
    eighth, zero = (relax.const(value, str(x.ty.dtype)) for value in (0.125, 0))
    return e(op.where(e(op.greater(x, zero)), x, e(op.multiply(x, eighth))))


def small_cases() -> list[Case]:
    """One of each kind at odd sizes, small enough for the CPU."""
    h, f = "float16", "float32"
    pools = {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1), "layout": "NHWC"}
    return [
        Case("affine_relu", [(2, 5, 7, 24), (24,), (24,)], [h] * 3, affine_relu, "Elementwise"),
        Case("affine_relu_odd", [(2, 5, 7, 5), (5,), (5,)], [h] * 3, affine_relu, "Elementwise"),
        Case("affine_relu_f32", [(1, 5, 7, 12), (12,), (12,)], [f] * 3, affine_relu, "Elementwise"),
        Case("affine_relu_n1", [(1, 5, 7, 16), (16,), (16,)], [h] * 3, affine_relu, "Elementwise"),
        Case("add", [(3, 5, 7, 8)] * 2, [h] * 2, lambda e, a, b: e(op.add(a, b)), "Elementwise"),
        Case("pad_transposed", [(1, 32, 64)], [f], pad_transposed, "Elementwise"),
        Case("entry_pad", [(2, 3, 6, 10)], [f], entry, "Elementwise"),
        Case("entry_rgb", [(2, 3, 6, 16)], [f], lambda e, x: entry(e, x, h, 0), "Elementwise"),
        Case("entry_wide", [(2, 24, 6, 10)], [f], lambda e, x: entry(e, x, h, 0), "Elementwise"),
        Case(
            "exit", [(2, 6, 5, 16)], [h],
            lambda e, x: e(op.astype(e(op.permute_dims(x, [0, 3, 1, 2])), f)), "Elementwise",
        ),
        Case(
            "exit_n1", [(1, 6, 5, 16)], [h],
            lambda e, x: e(op.permute_dims(x, [0, 3, 1, 2])), "Elementwise",
        ),
        Case(
            "concat", [(2, 5, 5, 16), (2, 5, 5, 8), (2, 5, 5, 24)], [h] * 3,
            lambda e, *xs: e(op.concat(xs, axis=3)), "Elementwise",
        ),
        Case(
            "concat_odd", [(2, 5, 5, 3), (2, 5, 5, 4)], [h] * 2,
            lambda e, *xs: e(op.concat(xs, axis=3)), "Elementwise",
        ),
        Case(
            "concat_affine_relu", [(2, 5, 5, 4), (2, 5, 5, 20), (24,), (24,)], [h] * 4,
            lambda e, a, b, s, t: affine_relu(e, e(op.concat([a, b], axis=3)), s, t),
            "Elementwise",
        ),
        Case(
            "concat_of_concat_of_where", [(2, 5, 5, 16), (2, 5, 5, 8), (2, 5, 5, 8)], [h] * 3,
            lambda e, a, b, c: e(op.concat([a, e(op.concat([b, leaky(e, c)], axis=3))], axis=3)),
            "Elementwise",
        ),
        Case(
            "gate", [(2, 5, 7, 48)], [h],
            lambda e, x: e(op.multiply(
                e(op.strided_slice(x, [3], [0], [24])),
                e(op.sigmoid(e(op.strided_slice(x, [3], [24], [48])))),
            )), "Elementwise",
        ),
        Case(
            "concat_of_arithmetic", [(2, 5, 5, 16), (2, 5, 5, 24), (2, 5, 5, 8)], [h] * 3,
            lambda e, a, b, c: e(op.concat([a, e(op.sigmoid(b)), c], axis=3)), "Elementwise",
        ),
        Case(  # one operand is read by the concatenation and beside it
            "gated_concat", [(2, 5, 5, 64), (2, 5, 5, 8)], [h] * 2,
            lambda e, x, y: e(op.multiply(
                e(op.strided_slice(x, [3], [0], [32])),
                e(op.concat([e(op.strided_slice(x, [3], [32], [56])), y], axis=3)),
            )), "Elementwise",
        ),
        Case(
            "slice_unaligned", [(2, 5, 5, 24)], [h],
            lambda e, x: e(op.strided_slice(x, [3], [3], [19])), "Elementwise",
        ),
        Case(
            "max_pool", [(2, 9, 8, 16)], [h],
            lambda e, x: e(op.nn.max_pool2d(x, **pools)), "Window",
        ),
        Case(
            "max_pool_odd", [(1, 9, 8, 3)], [f],
            lambda e, x: e(op.nn.max_pool2d(x, **pools)), "Window",
        ),
        Case(
            "max_pool_affine_relu", [(2, 9, 8, 16), (16,), (16,)], [h] * 3,
            lambda e, x, s, t: affine_relu(e, e(op.nn.max_pool2d(x, **pools)), s, t), "Window",
        ),
        Case(
            "avg_pool", [(2, 9, 8, 16)], [h],
            lambda e, x: e(op.nn.avg_pool2d(x, **pools)), "Window",
        ),
        Case(
            "avg_pool_ceil_counted", [(1, 8, 7, 8)], [h],
            lambda e, x: e(
                op.nn.avg_pool2d(x, **pools, ceil_mode=True, count_include_pad=True)
            ), "Window",
        ),
        Case(
            "mean", [(3, 7, 7, 64)], [h],
            lambda e, x: e(op.mean(x, [1, 2], keepdims=True)), "ChannelReduce",
        ),
        Case(
            "mean_odd", [(2, 13, 11, 20)], [h],
            lambda e, x: e(op.mean(x, [1, 2])), "ChannelReduce",
        ),
        Case(
            "sum_rows", [(8, 1000)], [f],
            lambda e, x: e(op.sum(x, [-1], keepdims=True)), "RowReduce",
        ),
        Case(  # attention of one query: a weight for each row
            "mean_weighted", [(2, 7, 9, 24), (2, 7, 9, 1), (24,)], [h, h, h],
            lambda e, x, a, b: e(op.sum(e(op.multiply(e(op.add(x, b)), a)), [1, 2])),
            "ChannelReduce",
        ),
        Case(  # lengths of filters whose input channels are weighted
            "sum_weighted", [(1, 40, 16, 3, 3), (2, 1, 16, 1, 1)], [h, h],
            lambda e, w, s: wide_sum(e, e(op.square(e(op.multiply(w, s)))), [2, 3, 4]), "RowReduce",
        ),
        Case(
            "mean_rows_relu", [(3, 5, 7, 43)], [h],
            lambda e, x: e(op.nn.relu(e(op.mean(x, [2, 3])))), "RowReduce",
        ),
        Case(  # in several blocks, which must not write each other's channels
            "mean_of_rows", [(1, 784, 128)], [h],
            lambda e, x: e(op.mean(x, [1])), "ChannelReduce",
        ),
        Case("mean_batch", [(40, 3, 16)], [f], lambda e, x: e(op.mean(x, [0])), "ChannelReduce"),
        Case("softmax", [(3, 1000)], [h], lambda e, x: e(op.nn.softmax(x)), "FusedRows"),
        Case(
            "softmax_cast", [(2, 10)], [h],
            lambda e, x: e(op.nn.softmax(e(op.astype(x, f)))), "FusedRows",
        ),
        Case(
            "gemv", [(1, 1, 1, 96), (20, 1, 1, 96), (20,)], [h] * 3,
            lambda e, x, w, b: e(op.nn.silu(e(op.add(conv(e, x, w), b)))), "Gemv",
        ),
        Case(
            "channel_gate", [(1, 7, 6, 72), (1, 1, 1, 48), (72, 1, 1, 48), (72,)], [h] * 4,
            excitation(op.sigmoid), "ChannelGate",
        ),
        Case(
            "channel_gate_batch", [(3, 5, 5, 20), (3, 1, 1, 44), (20, 1, 1, 44), (20,)], [h] * 4,
            excitation(lambda x: op.clip(x, 0, 1)), "ChannelGate",
        ),
        Case(  # threads without channels, and vectors that not all threads of a row have
            "channel_gate_odd", [(2, 7, 7, 440), (2, 1, 1, 112), (440, 1, 1, 112), (440,)], [h] * 4,
            excitation(op.sigmoid), "ChannelGate",
        ),
        Case(
            "channel_gate_f32", [(2, 9, 8, 40), (2, 1, 1, 8), (40, 1, 1, 8), (40,)], [f] * 4,
            excitation(op.sigmoid), "ChannelGate",
        ),
        Case(
            "channel_gate_residual",
            [(2, 4, 4, 64), (2, 1, 1, 16), (64, 1, 1, 16), (64,), (2, 4, 4, 64)], [h] * 5,
            lambda e, x, *v: e(op.nn.relu(e(op.add(excitation(op.sigmoid)(e, x, *v[:3]), v[3])))),
            "ChannelGate",
        ),
        Case(
            "channel_gate_dense", [(2, 6, 6, 24), (2, 16)], [h] * 2,
            lambda e, x, s: e(
                op.multiply(e(op.reshape(e(op.sigmoid(dense(16, 24)(e, s))), (2, 1, 1, 24))), x)
            ), "ChannelGate",
        ),
        Case("gemv_odd", [(3, 1, 1, 41), (7, 1, 1, 41)], [h] * 2, conv, "Window"),
        Case("gemv_f32", [(2, 1, 1, 40), (9, 1, 1, 40)], [f] * 2, conv, "Gemv"),
        Case("gemv_dense", [(2, 64)], [h], dense(64, 10), "Gemv"),
        Case(
            "softmax_columns", [(2, 2, 16, 300)], [h],
            lambda e, x: e(op.nn.softmax(e(op.astype(x, f)), 2)), "ColumnReduce",
        ),
        Case(
            "softmax_pixels", [(1, 32, 40, 21)], [f],
            lambda e, x: e(op.nn.softmax(x)), "ColumnReduce",
        ),
        Case(
            "log_softmax_classes", [(1, 5, 32, 40)], [f],
            lambda e, x: e(op.nn.log_softmax(x, 1)), "ColumnReduce",
        ),
        Case("depthwise", [(2, 9, 8, 16)], [h], depthwise(16, 3, 2), "Window"),
        Case("depthwise_multiplier", [(1, 7, 6, 6)], [h], depthwise(6, 3, 1, 2), "Window"),
        Case("depthwise_5x5", [(1, 9, 9, 24)], [h], depthwise(24, 5, 1), "Window"),
        Case(
            "depthwise_variable", [(1, 7, 6, 8), (8, 3, 3, 1)], [h] * 2,
            lambda e, x, w: conv(e, x, w, padding=1, groups=8), "Window",
        ),
        Case(
            "conv", [(2, 9, 8, 16), (24, 3, 3, 16)], [h] * 2,
            lambda e, x, w: conv(e, x, w, strides=2, padding=1), "Window",
        ),
        Case(
            "conv_odd", [(1, 7, 6, 5), (7, 3, 2, 5)], [h] * 2,
            lambda e, x, w: conv(e, x, w, padding=(1, 0, 2, 1), dilation=2), "Window",
        ),
        Case(
            "conv_grouped", [(1, 7, 6, 32), (16, 3, 3, 8)], [h] * 2,
            lambda e, x, w: conv(e, x, w, padding=1, groups=4), "Window",
        ),
        Case(
            "conv_residual_bias_relu", [(1, 6, 6, 8), (16, 1, 1, 8), (1, 6, 6, 16), (16,)], [h] * 4,
            lambda e, x, w, r, b: e(op.nn.relu(e(op.add(e(op.add(conv(e, x, w), r)), b)))),
            "Window",
        ),
        Case(
            "conv_f32", [(1, 6, 6, 8), (12, 3, 3, 8)], [f] * 2,
            lambda e, x, w: conv(e, x, w, padding=1), "Window",
        ),
        Case(
            "conv2d_dgrad", [(1, 5, 6, 8), (8, 3, 3, 4)], [h] * 2,
            lambda e, x, w: e(conv2d_dgrad(x, w, (10, 11), strides=2, padding=1)),
            "Window", conv_transpose_nchw,
        ),
        Case(
            "matmul", [(5, 48), (48, 30)], [h] * 2, lambda e, a, b: e(op.matmul(a, b)), "Window"
        ),
        Case(
            "batch_matmul", [(2, 5, 16), (2, 16, 6)], [h] * 2,
            lambda e, a, b: e(op.matmul(a, b)), "Window",
        ),
    ]  # fmt: skip
