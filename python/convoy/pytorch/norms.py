"""Norms, with the statistics that they are computed by where a program reads these too."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax import op

from ..errors import UnsupportedOp
from ..graph.expr import dtype_of, shape_of

Converter = Callable[[Any, Any], relax.Expr]
_WIDE = "float32"


def _training_batch_norm(node: Any, importer: Any) -> relax.Expr:
    """Batch norm with batch statistics: (result, mean, 1 / deviation, new moving mean, new moving
    variance).

    PyTorch moves the variance by the unbiased estimate, n / (n - 1) times what TVM moves it by.
    """
    x, gamma, beta, mean, var, training, momentum, epsilon = importer.retrieve_args(node)
    if not training:
        raise UnsupportedOp("a batch norm that changes no statistics", "module.eval()")
    emit, shape = importer.block_builder.emit, shape_of(x)
    both = _of_batch(emit, (x, gamma, beta, mean, var), momentum, epsilon)
    result, new_mean, new_var = (emit(relax.TupleGetItem(both, i)) for i in range(3))
    count = math.prod(shape) // shape[1]
    unbiased, dtype = count / max(1, count - 1), str(var.ty.dtype)
    kept = emit(op.multiply(var, relax.const((1 - momentum) * (1 - unbiased), dtype)))
    new_var = emit(op.add(emit(op.multiply(new_var, relax.const(unbiased, dtype))), kept))
    statistics = _statistics(node, emit, x, _but_channels(x), epsilon)
    return relax.Tuple([result, *statistics, new_mean, new_var])


def _batch_norm_without_statistics(node: Any, importer: Any) -> relax.Expr:
    """(x, gamma, beta, training, momentum, epsilon): (result, mean, 1 / deviation), by the batch's
    statistics alone, in float32."""
    x, gamma, beta, _, momentum, epsilon = importer.retrieve_args(node)
    emit, dtype = importer.block_builder.emit, dtype_of(x)
    given = [_cast(emit, v, _WIDE) for v in (x, gamma, beta)]
    both = _of_batch(emit, (*given, None, None), momentum, epsilon)
    result = _cast(emit, emit(relax.TupleGetItem(both, 0)), dtype)
    return relax.Tuple([result, *_statistics(node, emit, x, _but_channels(x), epsilon)])


def _of_batch(
    emit: Any, operands: Sequence[relax.Expr | None], momentum: float, epsilon: float
) -> relax.Expr:
    """A batch norm in training; ones and zeros stand for vectors that it has not."""
    x, *vectors = operands
    blank = [
        relax.const(np.full(shape_of(x)[1], value, "float32")) for value in (1, 0, 0, 1)
    ]  # fmt: skip
    filled = [emit(b) if v is None else v for v, b in zip(vectors, blank, strict=True)]
    return emit(op.nn.batch_norm(x, *filled, 1, epsilon, momentum=momentum, training=True))


def _layer_norm(node: Any, importer: Any) -> relax.Expr:
    """(input, sizes of the last axes, weight, bias, epsilon): (result, mean, 1 / deviation)."""
    x, sizes, weight, bias, epsilon = importer.retrieve_args(node)
    emit, dtype = importer.block_builder.emit, dtype_of(x)
    weight = op.ones(sizes, dtype) if weight is None else weight
    bias = op.zeros(sizes, dtype) if bias is None else bias
    axes = list(range(-len(sizes), 0))
    y = emit(op.nn.layer_norm(x, emit(weight), emit(bias), axes, epsilon))
    return relax.Tuple([y, *_statistics(node, emit, x, axes, epsilon)])


def _group_norm(node: Any, importer: Any) -> relax.Expr:
    """(input, weight, bias, n, channels, size, groups, epsilon): (result, mean, 1 / deviation).

    TVM has no group norm of bfloat16.
    """
    x, weight, bias, n, channels, size, groups, epsilon = importer.retrieve_args(node)
    emit, dtype = importer.block_builder.emit, dtype_of(x)
    wide = _WIDE if dtype == "bfloat16" else dtype
    weight = op.ones((channels,), dtype) if weight is None else weight
    bias = op.zeros((channels,), dtype) if bias is None else bias
    given = [_cast(emit, emit(value), wide) for value in (x, weight, bias)]
    axes = list(range(2, len(shape_of(x))))
    y = _cast(emit, emit(op.nn.group_norm(*given, groups, 1, axes, epsilon)), dtype)
    members = op.reshape(x, [n, groups, channels // groups * size])
    return relax.Tuple([y, *_statistics(node, emit, members, [2], epsilon)])


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


def _but_channels(x: relax.Expr) -> list[int]:
    return [axis for axis in range(len(shape_of(x))) if axis != 1]


def _statistics(
    node: Any, emit: Any, x: relax.Expr, axes: Sequence[int], epsilon: float
) -> list[relax.Expr]:
    """The mean and 1 / deviation of a norm in the shapes of its second and third results; none
    where nothing reads them."""
    if all(u.target is operator.getitem and u.args[1] not in (1, 2) for u in node.users):
        return [relax.Tuple([]), relax.Tuple([])]  # which hold their places
    x = _cast(emit, emit(x), _WIDE)
    spread = emit(op.add(emit(op.variance(x, axes)), relax.const(epsilon, _WIDE)))
    found = emit(op.mean(x, axes)), emit(op.rsqrt(spread))
    wanted = (tuple(one.shape) for one in node.meta["val"][1:3])
    return [emit(op.reshape(one, shape)) for one, shape in zip(found, wanted, strict=True)]


def _cast(emit: Any, x: relax.Expr | None, dtype: str) -> relax.Expr | None:
    return x if x is None or dtype_of(x) == dtype else emit(op.astype(x, dtype))


CONVERTERS: dict[str, Converter] = {
    "_native_batch_norm_legit_functional.default": _training_batch_norm,
    "_native_batch_norm_legit.no_stats": _batch_norm_without_statistics,
    "instance_norm.default": _instance_norm,
    "native_group_norm.default": _group_norm,
    "native_layer_norm.default": _layer_norm,
}
