"""Operators that TVM's importer converts wrongly or not at all, by their names in PyTorch.

TVM gives every convolution and matrix product a float32 result, and max pooling indices of zeros.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from tvm import relax
from tvm.relax import op
from tvm.relax.op.grad import no_grad

from ..errors import UnsupportedOp
from ..graph.expr import dtype_of, shape_of
from ..ops.random import uniform
from . import indexing, pooling, reductions, resize
from .pooling import each

Converter = Callable[[Any, Any], relax.Expr]

#: By the number of spatial axes.
_CONVOLUTIONS = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}
_TRANSPOSED = {
    1: op.nn.conv1d_transpose,
    2: op.nn.conv2d_transpose,
    3: op.nn.conv3d_transpose,
}


def _convolution(node: Any, importer: Any) -> relax.Expr:
    """Any convolution (input, weight, bias, stride, padding, dilation, transposed, output padding,
    groups), in the dtype of its operands."""
    x, weight, bias, stride, padding, dilation, transposed, extra, groups = importer.retrieve_args(
        node
    )
    emit, rank = importer.block_builder.emit, len(x.ty.shape) - 2
    call = (_TRANSPOSED if transposed else _CONVOLUTIONS).get(rank)
    if call is None:
        raise UnsupportedOp(f"a convolution over {rank} axes", "one over 1, 2 or 3 axes")
    stride, dilation = (each(value, rank) for value in (stride, dilation))
    options = {"output_padding": each(extra, rank)} if transposed else {}
    y = emit(
        call(
            x, weight, strides=stride, padding=each(padding, rank), dilation=dilation,
            groups=groups, **options,
        )
    )  # fmt: skip
    if bias is None:
        return y
    shape = [1, int(bias.ty.shape[0]), *[1] * rank]
    return emit(op.add(y, emit(op.reshape(bias, shape))))


def _matmul(node: Any, importer: Any) -> relax.Expr:
    """A product in the dtype of its operands."""
    a, b = importer.retrieve_args(node)[:2]
    return importer.block_builder.emit(op.matmul(a, b))


def _addmm(node: Any, importer: Any) -> relax.Expr:
    """``beta * bias + alpha * (a @ b)`` in the dtype of its operands, the product first, as the
    partitioner's patterns have it."""
    emit = importer.block_builder.emit
    bias, a, b = importer.retrieve_args(node)[:3]
    alpha, beta = node.kwargs.get("alpha", 1), node.kwargs.get("beta", 1)
    product = emit(op.matmul(a, b))
    dtype = str(product.ty.dtype)
    if alpha != 1:
        product = emit(op.multiply(product, relax.const(alpha, dtype)))
    if beta == 0:
        return product
    if beta != 1:
        bias = emit(op.multiply(bias, relax.const(beta, dtype)))
    return emit(op.add(product, bias))


def _rounded_quotient(node: Any, importer: Any) -> relax.Expr:
    """A quotient rounded down ("floor") or toward zero ("trunc"), in the dtype of its operands, of
    which either may be a number."""
    x, y, *_ = importer.retrieve_args(node)
    emit, tensor = importer.block_builder.emit, x if isinstance(x, relax.Expr) else y
    dtype = str(tensor.ty.dtype)
    x, y = (one if isinstance(one, relax.Expr) else relax.const(one, dtype) for one in (x, y))
    mode = node.kwargs.get("rounding_mode")
    if mode == "floor":
        return emit(op.floor_divide(x, y))
    quotient = emit(op.divide(x, y))  # of integers it is rounded toward zero
    return emit(op.trunc(quotient)) if mode == "trunc" and "int" not in dtype else quotient


def _shift(shift: Callable[[relax.Expr, relax.Expr], relax.Expr]) -> Converter:
    """A shift of bits by a tensor; either may be a number."""

    def convert(node: Any, importer: Any) -> relax.Expr:
        emit, dtype = importer.block_builder.emit, str(node.meta["val"].dtype).split(".")[-1]
        operands = (
            emit(op.astype(x, dtype)) if isinstance(x, relax.Expr) else relax.const(x, dtype)
            for x in importer.retrieve_args(node)
        )
        return emit(shift(*operands))

    return convert


def _cross_entropy(node: Any, importer: Any) -> relax.Expr:
    """Cross entropy of logits (n, classes, ...) and class indices (n, ...), or of one of each."""
    logits, targets, *rest = importer.retrieve_args(node)
    given = dict(zip(("weight", "reduction", "ignore_index"), rest, strict=False))
    given |= node.kwargs
    emit, ignored = importer.block_builder.emit, int(given.get("ignore_index", -100))
    scores = emit(op.nn.log_softmax(logits, axis=min(1, len(shape_of(logits)) - 1)))
    weight = given.get("weight")
    if weight is not None and not isinstance(weight, relax.Expr):
        weight = importer.env[weight]
    reduction = ("none", "mean", "sum")[int(given.get("reduction", 1))]
    return emit(op.nn.nll_loss(scores, targets, weight, reduction, ignored))


def _training_batch_norm(node: Any, importer: Any) -> relax.Expr:
    """Batch norm with batch statistics: (result, -, -, new moving mean, new moving variance).

    PyTorch moves the variance by the unbiased estimate, n / (n - 1) times what TVM moves it by.
    """
    x, gamma, beta, mean, var, training, momentum, epsilon = importer.retrieve_args(node)
    if not training:
        raise UnsupportedOp("a batch norm that changes no statistics", "module.eval()")
    emit, shape = importer.block_builder.emit, shape_of(x)
    both = _of_batch(node, importer, (x, gamma, beta, mean, var), momentum, epsilon)
    result, new_mean, new_var = (emit(relax.TupleGetItem(both, i)) for i in range(3))
    count = math.prod(shape) // shape[1]
    unbiased, dtype = count / max(1, count - 1), str(var.ty.dtype)
    kept = emit(op.multiply(var, relax.const((1 - momentum) * (1 - unbiased), dtype)))
    new_var = emit(op.add(emit(op.multiply(new_var, relax.const(unbiased, dtype))), kept))
    return relax.Tuple([result, mean, var, new_mean, new_var])


def _batch_norm_without_statistics(node: Any, importer: Any) -> relax.Expr:
    """(x, gamma, beta, training, momentum, epsilon): (result,), by the batch's statistics alone,
    in float32."""
    x, gamma, beta, _, momentum, epsilon = importer.retrieve_args(node)
    emit = importer.block_builder.emit
    dtype, wide = dtype_of(x), "float32"
    given = (
        v if v is None or dtype_of(v) == wide else emit(op.astype(v, wide))
        for v in (x, gamma, beta)
    )
    both = _of_batch(node, importer, (*given, None, None), momentum, epsilon)
    result = emit(relax.TupleGetItem(both, 0))
    return relax.Tuple([result if dtype == wide else emit(op.astype(result, dtype))])


def _of_batch(
    node: Any, importer: Any, operands: Sequence[relax.Expr | None], momentum: float, epsilon: float
) -> relax.Expr:
    """A batch norm in training; ones and zeros stand for vectors that it has not."""
    if any(u.target is not operator.getitem or u.args[1] in (1, 2) for u in node.users):
        raise UnsupportedOp("a batch norm whose batch statistics are used", "its result alone")
    emit, (x, *vectors) = importer.block_builder.emit, operands
    blank = [
        relax.const(np.full(shape_of(x)[1], value, "float32")) for value in (1, 0, 0, 1)
    ]  # fmt: skip
    filled = [emit(b) if v is None else v for v, b in zip(vectors, blank, strict=True)]
    return emit(op.nn.batch_norm(x, *filled, 1, epsilon, momentum=momentum, training=True))


def _linear(node: Any, importer: Any) -> relax.Expr:
    """``x @ weight^T + bias`` for x (..., k), as one GEMM for all rows."""
    x, weight, *rest = importer.retrieve_args(node)
    bias = rest[0] if rest else importer.env.get(node.kwargs.get("bias"))
    emit = importer.block_builder.emit
    if len(weight.ty.shape) == 2:
        weight = emit(op.permute_dims(weight, [1, 0]))
    y = emit(op.matmul(x, weight))
    return y if bias is None else emit(op.add(y, bias))


def _group_norm(node: Any, importer: Any) -> relax.Expr:
    """(input, weight, bias, n, channels, size, groups, epsilon): (result,).

    TVM has no group norm of bfloat16.
    """
    x, weight, bias, _, channels, _, groups, epsilon = importer.retrieve_args(node)
    if any(u.target is not operator.getitem or u.args[1] != 0 for u in node.users):
        raise UnsupportedOp("a group norm whose statistics are used", "its result alone")
    emit, dtype = importer.block_builder.emit, str(x.ty.dtype)
    wide = "float32" if dtype == "bfloat16" else dtype
    weight = op.ones((channels,), dtype) if weight is None else weight
    bias = op.zeros((channels,), dtype) if bias is None else bias
    x, weight, bias = (
        emit(value if wide == dtype else op.astype(value, wide)) for value in (x, weight, bias)
    )
    axes = list(range(2, len(x.ty.shape)))
    y = emit(op.nn.group_norm(x, weight, bias, groups, 1, axes, epsilon))
    return relax.Tuple([y if wide == dtype else emit(op.astype(y, dtype))])


def _instance_norm(node: Any, importer: Any) -> relax.Expr:
    """Instance norm (input, weight, bias, running mean and variance, whether the input's own count,
    momentum, epsilon), channels in the second axis."""
    x, weight, bias, mean, var, own, _, epsilon, *_ = importer.retrieve_args(node)
    emit, channels, dtype = importer.block_builder.emit, int(x.ty.shape[1]), str(x.ty.dtype)
    weight = op.ones((channels,), dtype) if weight is None else weight
    bias = op.zeros((channels,), dtype) if bias is None else bias
    if own or mean is None:
        axes = list(range(2, len(x.ty.shape)))
        return emit(op.nn.instance_norm(x, emit(weight), emit(bias), 1, axes, epsilon))
    both = op.nn.batch_norm(x, emit(weight), emit(bias), mean, var, 1, epsilon, training=False)
    return emit(relax.TupleGetItem(emit(both), 0))


def _stop_gradient(node: Any, importer: Any) -> relax.Expr:
    return importer.block_builder.emit(no_grad(importer.env[node.args[0]]))


def _uniform(node: Any, importer: Any) -> relax.Expr:
    """Random numbers of a state that a training step puts in the place of zeros."""
    x, number = importer.retrieve_args(node)
    return importer.block_builder.emit(uniform(relax.const([0, 0], "int32"), shape_of(x), number))


#: Operators of PyTorch that are converted as a whole. A matmul of which one operand has further
#: axes decomposes into a batched one, with a copy of the other operand for each matrix, and an
#: instance norm into a batch norm of images as channels.
WHOLE = (
    *("cross_entropy_loss", "instance_norm", "linear", "matmul"),
    *pooling.WHOLE,
    *resize.WHOLE,
)


def whole(graph: Any) -> Sequence[str]:
    """``WHOLE``, but for instance norms in a graph where one moves its statistics: only what it
    decomposes into says so."""
    for node in graph.nodes:
        if node.target is torch.ops.aten.instance_norm.default and all(
            node.args[i] for i in (3, 5)
        ):
            return [name for name in WHOLE if name != "instance_norm"]
    return WHOLE


CONVERTERS: dict[str, Converter] = {
    "convolution.default": _convolution,
    "_native_batch_norm_legit_functional.default": _training_batch_norm,
    "_native_batch_norm_legit.no_stats": _batch_norm_without_statistics,
    "instance_norm.default": _instance_norm,
    "native_group_norm.default": _group_norm,
    "linear.default": _linear,
    "mm.default": _matmul,
    "bmm.default": _matmul,
    "matmul.default": _matmul,
    "addmm.default": _addmm,
    "cross_entropy_loss.default": _cross_entropy,
    "div.Tensor_mode": _rounded_quotient,
    **dict.fromkeys(
        ("__lshift__.Tensor", "bitwise_left_shift.Tensor", "shift_left.default"),
        _shift(op.left_shift),
    ),
    **dict.fromkeys(
        ("__rshift__.Tensor", "bitwise_right_shift.Tensor", "shift_right_arithmetic.default"),
        _shift(op.right_shift),
    ),
    "stop_gradient.default": _stop_gradient,
    "uniform.default": _uniform,
    **indexing.CONVERTERS,
    **pooling.CONVERTERS,
    **reductions.CONVERTERS,
    **resize.CONVERTERS,
}
