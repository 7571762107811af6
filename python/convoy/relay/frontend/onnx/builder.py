"""Emit the operators of an ONNX model as Relay.

A function of the same name takes the arguments of ``relax.op`` to those of Relay where these
differ; all other operators are the same in both.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from convoy.onnx.builder import Builder
from convoy.onnx.call import Converter
from convoy.relay.analysis.counting import op_name
from convoy.relay.ast import Call, Expr, TupleWrapper
from convoy.relay.frontend import common
from convoy.relay.frontend.elementwise import gelu, round_even, truncated_division
from convoy.relay.frontend.linear_algebra import dense, matmul
from convoy.relay.frontend.onnx.native import NATIVE
from convoy.relay.frontend.spans import mark
from convoy.relay.frontend.windows import conv, conv_transpose
from convoy.relay.op import image, nn
from convoy.relay.op import tensor as R


class RelayBuilder(Builder):
    """Expressions, without bindings."""

    native: ClassVar[Mapping[tuple[str, str], Converter]] = NATIVE

    def is_expr(self, value: Any) -> bool:
        return isinstance(value, Expr | TupleWrapper)

    def constant(self, array: np.ndarray) -> Expr:
        if not array.size:  # a module that is saved has no empty constants
            return R.zeros(array.shape, array.dtype.name)
        return common.const(array)

    def apply(self, op: str, *args: Any, **attrs: Any) -> Any:
        if (function := _OPERATORS.get(op)) is not None:
            return function(*args, **attrs)
        room, _, name = op.rpartition(".")
        return getattr(nn if room == "nn" else R, name)(*args, **attrs)

    def has(self, op: str) -> bool:
        return op == "nn.bias_add"

    def emit(self, expr: Any, name: str) -> Any:
        if not isinstance(expr, TupleWrapper):
            common.infer_type(expr)
        mark(expr, name)
        return expr

    def item(self, expr: Any, index: int) -> Expr:
        return expr[index]

    def dims(self, expr: Expr) -> tuple[Any, ...]:
        return common.dims(expr)

    def dtype(self, expr: Expr) -> str:
        return common.dtype_of(expr)


def _product(a: Expr, b: Expr) -> Expr:
    """Multiply matrices; the transpose of a weight is what `nn.dense` takes."""
    dtype = common.dtype_of(a)
    out_dtype = dtype if dtype.startswith(("int", "uint")) else ""
    if isinstance(b, Call) and op_name(b) == "transpose" and common.rank(b) == 2:
        return dense(a, b.args[0], out_dtype)
    return matmul(a, b, out_dtype)


def _conv(
    data: Expr, weight: Expr, strides: Any, padding: Any, dilation: Any, groups: int,
    data_layout: str, kernel_layout: str,
) -> Expr:  # fmt: skip
    dtype = common.dtype_of(data)
    out_dtype = dtype if dtype.startswith("int") else ""
    return conv(data, weight, None, strides, padding, dilation, groups, out_dtype)


def _conv_transpose(
    data: Expr, weight: Expr, strides: Any, padding: Any, output_padding: Any, dilation: Any,
    groups: int, data_layout: str, kernel_layout: str,
) -> Expr:  # fmt: skip
    return conv_transpose(data, weight, None, strides, padding, dilation, groups, output_padding)


def _pool(name: str) -> Callable[..., Expr]:
    def pool(
        data: Expr, size: Any, strides: Any, padding: Any, dilation: Any, ceil_mode: bool,
        count_include_pad: bool, layout: str,
    ) -> Expr:  # fmt: skip
        attrs = {"count_include_pad": count_include_pad} if name.startswith("avg") else {}
        return getattr(nn, name)(data, size, strides, dilation, padding, layout, **attrs)

    return pool


def _batch_norm(*args: Expr, axis: int, epsilon: float, training: bool) -> TupleWrapper:
    return nn.batch_norm(*args, axis=axis, epsilon=epsilon)


def _layer_norm(data: Expr, gamma: Expr, beta: Expr, axes: Sequence[int], epsilon: float) -> Expr:
    """Relay normalizes one axis: several ones are joined."""
    shape = common.dims(data)
    if len(axes) == 1:
        return nn.layer_norm(data, gamma, beta, axis=axes[0], epsilon=epsilon)
    flat = [common.reshape(v, (*common.infer_shape(v)[: -len(axes)], -1)) for v in (gamma, beta)]
    joined = common.reshape(data, (*common.infer_shape(data)[: axes[0]], -1))
    return common.reshape(nn.layer_norm(joined, *flat, axis=-1, epsilon=epsilon), shape)


def _pad(data: Expr, widths: Sequence[int], mode: str, value: float) -> Expr:
    pairs = list(zip(widths[::2], widths[1::2], strict=True))
    return nn.pad(data, pairs, common.scalar_like(value, data), mode)


def _gather(data: Expr, indices: Expr, axis: int) -> Expr:
    return R.gather(data, axis, indices)


def _take(data: Expr, indices: Expr, axis: int, mode: str) -> Expr:
    return R.take(data, indices, axis, mode=mode)


def _slice(
    data: Expr, axes: Sequence[int], begin: Sequence[int], end: Sequence[int],
    strides: Sequence[int],
) -> Expr:  # fmt: skip
    return R.strided_slice(data, begin, end, strides, axes)


def _top_k(data: Expr, k: int, axis: int, ret_type: str, largest: bool, dtype: str) -> TupleWrapper:
    return R.topk(data, k, axis, ret_type, not largest, dtype)


def _resize(data: Expr, size: Any, **attrs: Any) -> Expr:
    return image.resize2d(data, size, cubic_alpha=-0.75, **attrs)


_OPERATORS: dict[str, Callable[..., Any]] = {
    "astype": R.cast,
    "broadcast_to": common.broadcast_to,
    "concat": R.concatenate,
    "divide": truncated_division,
    "gather_elements": _gather,
    "image.resize2d": _resize,
    "matmul": _product,
    "mod": R.trunc_mod,
    "nn.batch_norm": _batch_norm,
    "nn.gelu": gelu,
    "nn.gelu_tanh": functools.partial(gelu, approximate=True),
    "nn.layer_norm": _layer_norm,
    "nn.leakyrelu": nn.leaky_relu,
    "nn.pad": _pad,
    "permute_dims": common.transpose,
    "round": round_even,
    "strided_slice": _slice,
    "take": _take,
    "topk": _top_k,
}
for _n in (1, 2, 3):
    _OPERATORS[f"nn.conv{_n}d"] = _conv
    _OPERATORS[f"nn.conv{_n}d_transpose"] = _conv_transpose
    for _name in (f"max_pool{_n}d", f"avg_pool{_n}d"):
        _OPERATORS[f"nn.{_name}"] = _pool(_name)
