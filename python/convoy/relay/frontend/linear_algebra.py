"""Matrix products of any rank, and the functions that contain them."""

from __future__ import annotations

import math

import numpy as np

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import (
    broadcast_shape,
    broadcast_to,
    const,
    dims,
    dtype_of,
    infer_shape,
    rank,
    reshape,
    scalar_like,
    squeeze,
    swap,
    unsqueeze,
)
from convoy.relay.op import nn
from convoy.relay.op import tensor as R


def matmul(a: Expr, b: Expr, out_dtype: str = "") -> Expr:
    """Multiply as numpy's matmul does.

    Args:
        a: (..., m, k), or (k,).
        b: (..., k, n), or (k,).
        out_dtype: The dtype to accumulate in and to return, that of `a` by default.
    """
    if rank(a) == 1:
        product = matmul(unsqueeze(a, [0]), b, out_dtype)
        return squeeze(product, [rank(product) - 2])
    if rank(b) == 1:
        product = matmul(a, unsqueeze(b, [1]), out_dtype)
        return squeeze(product, [rank(product) - 1])
    if rank(b) == 2:
        return dense(a, swap(b, 0, 1), out_dtype)
    m, k, n = dims(a)[-2], dims(a)[-1], dims(b)[-1]
    if rank(a) == rank(b) == 3:
        return nn.batch_matmul(a, b, out_dtype, transpose_b=False)
    batch = broadcast_shape(infer_shape(a)[:-2], infer_shape(b)[:-2])
    size = math.prod(batch)
    a3 = reshape(broadcast_to(a, (*batch, m, k)), (size, m, k))
    b3 = reshape(broadcast_to(b, (*batch, k, n)), (size, k, n))
    return reshape(nn.batch_matmul(a3, b3, out_dtype, transpose_b=False), (*batch, m, n))


def dense(data: Expr, weight: Expr, out_dtype: str = "") -> Expr:
    """Multiply with the transpose of a matrix.

    Args:
        data: (..., k).
        weight: (units, k).
        out_dtype: The dtype to accumulate in and to return.
    """
    shape = dims(data)
    if len(shape) == 2:
        return nn.dense(data, weight, out_dtype=out_dtype)
    if not all(isinstance(d, int) for d in shape[1:-1]):
        shape = infer_shape(data)
    units, k = infer_shape(weight)
    flat = R.reshape(data, (-1, k)) if rank(data) != 1 else reshape(data, (1, k))
    product = nn.dense(flat, weight, out_dtype=out_dtype)
    lead = [d if isinstance(d, int) else -1 for d in shape[:-1]]
    return R.reshape(product, (*lead, units))


def gemm(data: Expr, weight: Expr, bias: Expr | None) -> Expr:
    """Apply a fully connected layer: `data @ weight.T + bias`, weight of shape (units, k)."""
    product = dense(data, weight)
    return product if bias is None else R.add(product, bias)


def scaled(data: Expr, factor: float) -> Expr:
    """Multiply by a number, unless it is 1."""
    return data if factor == 1 else R.multiply(data, scalar_like(factor, data))


def attention(
    query: Expr,
    key: Expr,
    value: Expr,
    mask: Expr | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Expr:
    """Apply scaled dot-product attention.

    Args:
        query: (..., heads, l, e).
        key: (..., heads, s, e).
        value: (..., heads, s, v).
        mask: What to add to the scores, or bools of the places to attend to.
        causal: Whether query i attends to the keys up to i only.
        scale: The factor of the scores; 1 / sqrt(e) by default.
    """
    length, depth = infer_shape(query)[-2:]
    keys = infer_shape(key)[-2]
    factor = 1 / math.sqrt(depth) if scale is None else scale
    scores = matmul(scaled(query, factor), swap(key, -2, -1))
    if causal:
        below = np.tril(np.ones((length, keys), "bool"))
        scores = masked(scores, const(below), -np.inf)
    if mask is not None:
        if dtype_of(mask) == "bool":
            scores = masked(scores, mask, -np.inf)
        else:
            scores = R.add(scores, mask)
    return matmul(nn.softmax(scores, axis=-1), value)


def masked(data: Expr, keep: Expr, other: float) -> Expr:
    """Keep the values where a mask of bools holds, and put a number elsewhere."""
    return R.where(keep, data, scalar_like(other, data))
