"""Operators that TVM's importer converts wrongly or not at all, by their names in PyTorch.

TVM gives every convolution and matrix product a float32 result, and max pooling indices of zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax
from tvm.relax import op
from tvm.relax.op.grad import no_grad

from ..errors import UnsupportedOp
from ..graph.expr import shape_of
from ..ops.random import uniform
from . import indexing, norms, pooling, recurrent, reductions, resize
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


def _linear(node: Any, importer: Any) -> relax.Expr:
    """``x @ weight^T + bias`` for x (..., k), as one GEMM for all rows."""
    x, weight, *rest = importer.retrieve_args(node)
    bias = rest[0] if rest else importer.env.get(node.kwargs.get("bias"))
    emit = importer.block_builder.emit
    if len(weight.ty.shape) == 2:
        weight = emit(op.permute_dims(weight, [1, 0]))
    y = emit(op.matmul(x, weight))
    return y if bias is None else emit(op.add(y, bias))


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


def whole(graph: Any, training: bool = False) -> Sequence[str]:
    """The names of ``WHOLE`` and of recurrent layers, but for those that have a call in the graph
    which only what it decomposes into says all of: of instance norms that move their statistics,
    and of recurrent layers with dropout, projections or gradients."""
    apart = set(recurrent.WHOLE) if training else set()
    for node in graph.nodes:
        name = getattr(node.target, "__name__", "").partition(".")[0]
        moves = name == "instance_norm" and all(node.args[i] for i in (3, 5))
        if moves or (name in recurrent.WHOLE and not recurrent.is_whole(node)):
            apart.add(name)
    return [name for name in (*WHOLE, *recurrent.WHOLE) if name not in apart]


CONVERTERS: dict[str, Converter] = {
    "convolution.default": _convolution,
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
    **norms.CONVERTERS,
    **pooling.CONVERTERS,
    **recurrent.CONVERTERS,
    **reductions.CONVERTERS,
    **resize.CONVERTERS,
}
