"""Attention of the domain com.microsoft, as onnxruntime's optimizer of transformers writes it."""

from __future__ import annotations

import numpy as np

from ..call import Call, Value, converter
from .microsoft import DOMAIN


@converter("Attention", domain=DOMAIN)
def attention(call: Call) -> Value:
    """One matrix, (inputs, queries + keys + values), for all three; then a mask and a bias."""
    _refuse_caches(call, (4,))
    heads = int(call.attrs["num_heads"])
    total = call.shape(1)[1]
    sizes = [int(d) for d in call.attrs.get("qkv_hidden_sizes", (total // 3,) * 3)]
    projected = call.do("MatMul", call.value(0), call.value(1))
    if call.has(2):
        projected = call.do("Add", projected, call.value(2))
    ends = np.cumsum(sizes)
    q, k, v = (
        _by_head(
            call,
            call.do("Slice", projected, np.array([end - d]), np.array([end]), np.array([2])),
            heads,
        )
        for d, end in zip(sizes, ends, strict=True)
    )
    return _attend(call, q, k, v, mask=3, bias=5)


@converter("MultiHeadAttention", domain=DOMAIN)
def multi_head_attention(call: Call) -> Value:
    """Queries, keys and values apart, (batch, tokens, channels) or (batch, heads, tokens, each), or
    packed into one tensor, (batch, tokens, heads, 3, each)."""
    _refuse_caches(call, (6, 7))
    heads = int(call.attrs["num_heads"])
    if call.has(1) and not call.has(2):
        raise call.unsupported("of packed keys and values", "a tensor for each")
    if call.has(1):
        parts = [call.value(i) for i in range(3)]
        parts = [
            part if call.rank(i) == 4 else _by_head(call, part, heads)
            for i, part in enumerate(parts)
        ]
    else:
        packed = call.do("Transpose", call.value(0), perm=(3, 0, 2, 1, 4))
        parts = [call.do("Gather", packed, np.array(i), axis=0) for i in range(3)]
    first = 0
    for i, part in enumerate(parts):
        size = heads * int(call.do("Shape", part)[3])
        if call.has(3):
            span = np.array([first]), np.array([first + size]), np.array([0])
            shift = call.reshape(call.do("Slice", call.value(3), *span), (heads, 1, -1))
            parts[i] = call.do("Add", part, shift)
        first += size
    q, k, v = parts
    return _attend(call, q, k, v, mask=4, bias=5)


def _refuse_caches(call: Call, inputs: tuple[int, ...]) -> None:
    if any(call.has(i) for i in inputs) or call.outputs > 1:
        raise call.unsupported("with keys and values of earlier calls", "whole sequences")
    if call.attrs.get("do_rotary", 0):
        raise call.unsupported("that rotates its inputs", "a rotation before it")


def _by_head(call: Call, value: Value, heads: int) -> Value:
    """(batch, tokens, channels) as (batch, heads, tokens, each)."""
    batch, tokens, _ = (int(d) for d in call.do("Shape", value))
    return call.do("Transpose", call.reshape(value, (batch, tokens, heads, -1)), perm=(0, 2, 1, 3))


def _attend(call: Call, q: Value, k: Value, v: Value, mask: int, bias: int) -> Value:
    """softmax(q k^T * scale + bias and mask) v, as (batch, tokens, channels)."""
    batch, _, tokens, each = (int(d) for d in call.do("Shape", q))
    keys, dtype = int(call.do("Shape", k)[2]), call.do_dtype(q)
    scale = float(call.attrs.get("scale", 0)) or each**-0.5
    scores = call.do("MatMul", q, call.do("Transpose", k, perm=(0, 1, 3, 2)))
    scores = call.do("Mul", scores, np.array(scale, dtype))
    if call.has(bias):
        scores = call.do("Add", scores, call.value(bias))
    if call.has(mask):
        filler = np.array(call.attrs.get("mask_filter_value", -1e4), dtype)
        seen = _seen(call, mask, batch, keys)
        scores = call.do("Add", scores, call.do("Where", seen, np.array(0, dtype), filler))
    if call.attrs.get("unidirectional", 0):
        before = np.tri(tokens, keys, keys - tokens, dtype=bool)
        scores = call.do("Where", before, scores, np.array(-np.inf, dtype))
    values = call.do("MatMul", call.do("Softmax", scores, axis=-1), v)
    return call.reshape(call.do("Transpose", values, perm=(0, 2, 1, 3)), (batch, tokens, -1))


def _seen(call: Call, mask: int, batch: int, keys: int) -> Value:
    """Which keys count, to broadcast to (batch, heads, tokens, keys): a mask of numbers, or the
    lengths of sequences."""
    shape = call.shape(mask)
    if shape == (batch,):
        lengths = call.cast(call.reshape(call.value(mask), (batch, 1, 1, 1)), "int64")
        return call.do("Less", np.arange(keys), lengths)
    if shape[-1] != keys or len(shape) not in (2, 3):
        raise call.unsupported(f"with a mask of shape {shape}", "(batch, keys) or lengths")
    value = call.reshape(call.value(mask), (shape[0], 1, shape[1] if len(shape) == 3 else 1, keys))
    return call.do("Greater", call.cast(value, "int32"), np.array(0, "int32"))


@converter("EmbedLayerNormalization", domain=DOMAIN)
def embed_layer_norm(call: Call) -> Value:
    """Embeddings of words, positions and segments, summed and normalised; the lengths of the
    sequences by their mask; the sum itself."""
    tokens = call.shape()[1]
    total = call.do("Gather", call.value(2), call.value(0), axis=0)
    places = call.value(8) if call.has(8) else np.arange(tokens)[None]
    total = call.do("Add", total, call.do("Gather", call.value(3), places, axis=0))
    if call.has(1) and call.has(4):
        total = call.do("Add", total, call.do("Gather", call.value(4), call.value(1), axis=0))
    epsilon = float(call.attrs.get("epsilon", 1e-12))
    y = call.do("LayerNormalization", total, call.value(5), call.value(6), epsilon=epsilon)
    lengths: Value = np.zeros(call.shape()[0], "int32")
    if call.has(7):
        lengths = call.do("ReduceSum", call.cast(call.value(7), "int32"), np.array([1]), keepdims=0)
    return (y, lengths, total)[: call.outputs] if call.outputs > 1 else y
