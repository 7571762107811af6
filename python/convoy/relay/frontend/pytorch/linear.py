"""Matrix products and embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np

from convoy.relay.ast import Expr
from convoy.relay.builder import numpy_dtype
from convoy.relay.frontend.common import (
    cast,
    const,
    dtype_of,
    infer_shape,
    rank,
    scalar_like,
    squeeze,
    swap,
    unsqueeze,
)
from convoy.relay.frontend.linear_algebra import attention, gemm, matmul
from convoy.relay.frontend.pytorch.registry import Call, convert
from convoy.relay.frontend.windows import pad
from convoy.relay.op import tensor as R


def product(left: Expr, right: Expr) -> Expr:
    """Multiply; integers keep their dtype."""
    integer = dtype_of(left).startswith(("int", "uint"))
    return matmul(left, right, dtype_of(left) if integer else "")


@convert("linear")
def linear(call: Call) -> Expr:
    bias = call["bias"] if call.get("bias") is not None else None
    if rank(call["weight"]) == 1:
        result = matmul(call["input"], call["weight"])
        return result if bias is None else R.add(result, bias)
    return gemm(call["input"], call["weight"], bias)


@convert("matmul", "mm", "bmm", "mv", "dot", "inner")
def convert_matmul(call: Call) -> Expr:
    other = {"mm": "mat2", "bmm": "mat2", "mv": "vec", "dot": "tensor"}.get(call.short, "other")
    right = call[other]
    return product(call["self"], swap(right, -1, -2) if call.short == "inner" else right)


@convert("addmm", "addmv", "baddbmm", "addbmm")
def addmm(call: Call) -> Expr:
    """Compute beta * self + alpha * a @ b."""
    names = {"addmm": ("mat1", "mat2"), "addmv": ("mat", "vec")}
    first, second = names.get(call.short, ("batch1", "batch2"))
    result = product(call[first], call[second])
    if call.short == "addbmm":
        result = R.sum(result, axis=0)
    alpha, beta = call.get("alpha", 1), call.get("beta", 1)
    if alpha != 1:
        result = R.multiply(result, scalar_like(alpha, result))
    if beta == 0:
        return result
    base = call["self"]
    return R.add(result, base if beta == 1 else R.multiply(base, scalar_like(beta, base)))


@convert("einsum")
def einsum(call: Call) -> Expr:
    return R.einsum([call.tensor(t) for t in call.get("tensors")], call.get("equation"))


@convert("stft")
def stft(call: Call) -> Expr:
    """Transform windows of a signal; the last axis is the real and the imaginary part."""
    for option in ("return_complex", "center"):
        if call.get(option):
            raise call.error(f"{option}=True", f"{option}=False")
    data, size = call["self"], call.get("n_fft")
    width, hop = (call.get(name) for name in ("win_length", "hop_length"))
    width = size if width is None else width
    ones = const(np.ones(width, numpy_dtype(dtype_of(data))))
    before = (size - width) // 2
    window = pad(call.get("window", ones), (before,), (size - width - before,))
    batch = unsqueeze(data, [0]) if rank(data) == 1 else data
    options = {"normalized": call.get("normalized", False), "onesided": call.get("onesided", True)}
    found = R.stft(batch, size, hop, size, window, **options)
    return squeeze(found, [0]) if rank(data) == 1 else found


@convert("embedding")
def embedding(call: Call) -> Expr:
    return R.take(call["weight"], call["indices"], axis=0)


@convert("outer", "ger")
def outer(call: Call) -> Expr:
    other = call["other" if "other" in call.args else "vec2"]
    return R.multiply(unsqueeze(call["self"], [1]), unsqueeze(other, [0]))


@convert("scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu")
def sdpa(call: Call) -> Any:
    """Apply attention; with `enable_gqa` heads of keys and values serve several of the query."""
    query, key, value = call["query"], call["key"], call["value"]
    if call.get("dropout_p"):
        call.warn_of_training()
    if call.get("enable_gqa"):
        factor = infer_shape(query)[-3] // infer_shape(key)[-3]
        key, value = (R.repeat(t, factor, axis=rank(t) - 3) for t in (key, value))
    mask = call["attn_mask"] if call.get("attn_mask") is not None else None
    if mask is not None and dtype_of(mask) not in ("bool", dtype_of(query)):
        mask = cast(mask, dtype_of(query))
    result = attention(query, key, value, mask, bool(call.get("is_causal")), call.get("scale"))
    return [result, None] if call.short.endswith("cpu") else result
