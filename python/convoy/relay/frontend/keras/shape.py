"""Shapes, merging, resizing, embeddings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from convoy.errors import UnsupportedOp
from convoy.relay.ast import Expr
from convoy.relay.frontend.common import (
    cast,
    concatenate,
    infer_shape,
    rank,
    reshape,
    scalar,
    scalar_like,
    transpose,
    unsqueeze,
)
from convoy.relay.frontend.keras.registry import Layer, Tensor, convert
from convoy.relay.frontend.linear_algebra import matmul
from convoy.relay.frontend.resampling import Resize, resize
from convoy.relay.op import nn
from convoy.relay.op import tensor as R


@convert("Flatten")
def flatten(layer: Layer) -> Tensor:
    shape = layer.x.shape
    return Tensor(reshape(layer.x.last(), (shape[0], math.prod(shape[1:]))))


@convert("Reshape")
def convert_reshape(layer: Layer) -> Tensor:
    shape, wanted = layer.x.shape, list(layer.config["target_shape"])
    if -1 in wanted:
        known = math.prod(w for w in wanted if w != -1)
        wanted[wanted.index(-1)] = math.prod(shape[1:]) // known
    return Tensor(reshape(layer.x.last(), (shape[0], *wanted)))


@convert("Permute")
def permute(layer: Layer) -> Tensor:
    return Tensor(transpose(layer.x.last(), (0, *layer.config["dims"])))


@convert("RepeatVector")
def repeat_vector(layer: Layer) -> Tensor:
    return Tensor(R.repeat(unsqueeze(layer.x.last(), [1]), layer.config["n"], axis=1))


_MERGES: dict[str, Any] = {
    "Add": R.add, "Subtract": R.subtract, "Multiply": R.multiply, "Average": R.add,
    "Maximum": R.maximum, "Minimum": R.minimum,
}  # fmt: skip


_OPERATIONS: dict[str, Callable[..., Expr]] = {
    "Add": R.add, "Subtract": R.subtract, "Multiply": R.multiply, "Maximum": R.maximum,
    "Minimum": R.minimum, "TrueDivide": R.divide, "Divide": R.divide, "Negative": R.negative,
}  # fmt: skip


@convert(*_MERGES)
def merge(layer: Layer) -> Tensor:
    """Merge tensors elementwise."""
    first = all(t.first for t in layer.inputs)
    parts = [t.expr if first else t.last() for t in layer.inputs]
    result = reduce(_MERGES[layer.name], parts)
    if layer.name == "Average":
        result = R.divide(result, scalar_like(len(parts), result))
    return Tensor(result, first)


def operation(name: str, operands: Sequence[Any], dtype: str) -> Tensor:
    """Convert an operation that is no layer, such as `x + 3`, of tensors and numbers to `dtype`.

    Raises:
        UnsupportedOp: Another operation, or other operands.
    """
    tensors = [one for one in operands if isinstance(one, Tensor)]
    known = all(isinstance(one, Tensor | int | float) for one in operands)
    if name not in _OPERATIONS or not known:
        raise UnsupportedOp(
            f"Keras operation without a converter: {name}",
            f"{', '.join(sorted(_OPERATIONS))} of tensors and numbers, or a layer",
            "Export the model to ONNX (model.export) and use from_onnx",
        )
    first = all(t.first for t in tensors) and len({len(t.shape) for t in tensors}) == 1
    parts = [
        cast(one.expr if first else one.last(), dtype)
        if isinstance(one, Tensor)
        else scalar(one, dtype)
        for one in operands
    ]
    result = Tensor(_OPERATIONS[name](*parts), first)
    images = any(t.first for t in tensors)
    return Tensor(result.channels_first(), True) if images else result


@convert("Concatenate")
def concat(layer: Layer) -> Tensor:
    """Join along an axis."""
    ndim = rank(layer.x.expr)
    axis = layer.config["axis"] % ndim
    if all(t.first for t in layer.inputs) and axis == ndim - 1:
        return Tensor(concatenate([t.expr for t in layer.inputs], 1), True)
    return Tensor(concatenate([t.last() for t in layer.inputs], axis))


@convert("Dot")
def dot(layer: Layer) -> Tensor:
    """Multiply batches of matrices along one axis of each.

    Raises:
        UnsupportedOp: Tensors of other ranks than 2 and 3.
    """
    left, right = (t.last() for t in layer.inputs)
    axes = layer.config["axes"]
    first, second = (axes, axes) if isinstance(axes, int) else axes
    if layer.config["normalize"]:
        left = nn.l2_normalize(left, 1e-12, [first % rank(left)])
        right = nn.l2_normalize(right, 1e-12, [second % rank(right)])
    if rank(left) == rank(right) == 2:
        return Tensor(R.sum(R.multiply(left, right), axis=1, keepdims=True))
    if rank(left) != 3 or rank(right) != 3:
        raise layer.error(f"tensors of {rank(left)} and {rank(right)} dimensions", "2 or 3")
    left = transpose(left, (0, 2, 1)) if first % 3 == 1 else left
    right = transpose(right, (0, 2, 1)) if second % 3 == 2 else right
    return Tensor(matmul(left, right))


@convert("UpSampling1D", "UpSampling2D", "UpSampling3D")
def upsampling(layer: Layer) -> Tensor:
    """Repeat, or interpolate between, elements."""
    layer.is_last()
    data = layer.x.channels_first()
    axes = rank(data) - 2
    size = layer.config["size"]
    factors = [size] * axes if isinstance(size, int) else list(size)
    mode = layer.config.get("interpolation", "nearest")
    shape = infer_shape(data)
    sizes = {a + 2: shape[a + 2] * f for a, f in enumerate(factors)}
    if mode == "nearest":
        how = Resize(sizes, mode="nearest", coordinates="asymmetric", rounding="floor")
    elif mode in ("bilinear", "bicubic"):
        kind = {"bilinear": "linear", "bicubic": "cubic"}[mode]
        how = Resize(sizes, mode=kind, cubic=-0.5)
    else:
        raise layer.error(f"interpolation='{mode}'", "nearest, bilinear or bicubic")
    return Tensor(resize(data, how), True)


@convert("Embedding")
def embedding(layer: Layer) -> Tensor:
    table = layer.param("weight", layer.weights[0])
    return Tensor(R.take(table, cast(layer.x.last(), "int32"), axis=0))


@convert("MultiHeadAttention")
def attention(layer: Layer) -> Tensor:
    """Apply attention: query, value and, where it differs, key.

    Raises:
        UnsupportedOp: A mask, or several axes of attention.
    """
    from convoy.relay.frontend.linear_algebra import attention as attend

    config = layer.config
    if layer.call.get("attention_mask") is not None:
        raise layer.error("an attention mask", "none")
    query, value = layer.inputs[0].last(), layer.inputs[1].last()
    key = layer.inputs[2].last() if len(layer.inputs) > 2 else value
    weights = list(layer.weights)
    heads = config["num_heads"]
    step = 2 if config["use_bias"] else 1
    projected = []
    for name, data in zip(("query", "key", "value"), (query, key, value), strict=True):
        projected.append(_heads(layer, name, data, weights[:step]))
        weights = weights[step:]
    causal = bool(layer.call.get("use_causal_mask"))
    result = attend(projected[0], projected[1], projected[2], causal=causal)
    shape = infer_shape(result)
    joined = reshape(transpose(result, (0, 2, 1, 3)), (shape[0], shape[2], heads * shape[3]))
    kernel = weights[0].reshape(-1, weights[0].shape[-1])
    output = matmul(joined, layer.param("output", kernel))
    if len(weights) > 1:
        output = R.add(output, layer.param("output_bias", weights[1]))
    return Tensor(output)


def _heads(layer: Layer, name: str, data: Expr, weights: list[np.ndarray]) -> Expr:
    """Project to (batch, heads, length, depth)."""
    kernel = weights[0]
    _, heads, depth = kernel.shape
    flat = layer.param(name, kernel.reshape(kernel.shape[0], heads * depth))
    result = matmul(data, flat)
    if len(weights) > 1:
        result = R.add(result, layer.param(f"{name}_bias", weights[1].reshape(-1)))
    batch, length, _ = infer_shape(result)
    return transpose(reshape(result, (batch, length, heads, depth)), (0, 2, 1, 3))
