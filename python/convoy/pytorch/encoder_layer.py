"""The operator that ``nn.TransformerEncoderLayer`` calls where no gradients are recorded."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional as F


def _masked(mask: torch.Tensor, kind: int | None, batch: int, heads: int) -> torch.Tensor:
    """Which scores (batch, heads, n, n) do not count: those where the mask is not zero. One of kind
    0 is (n, n), one of kind 1 (batch, n) for the keys; others have the shape of the scores."""
    mask = mask.to(torch.bool)
    n = mask.shape[-1]
    if kind == 1 and mask.dim() == 2:
        mask = mask.view(batch, 1, 1, n)
    return mask.expand(batch, heads, n, n)


def _encoder_layer(
    x: torch.Tensor, width: int, heads: int, qkv: Any, qkv_bias: Any, out: Any, out_bias: Any,
    gelu: bool, norm_first: bool, eps: float, scale_1: Any, shift_1: Any, scale_2: Any,
    shift_2: Any, up: Any, up_bias: Any, down: Any, down_bias: Any, mask: Any = None,
    kind: int | None = None,
) -> torch.Tensor:  # fmt: skip
    """Attention and a feed-forward network for x (batch, n, width), with a norm before or after
    each."""
    batch, n, _ = x.shape

    def attention(y: torch.Tensor) -> torch.Tensor:
        split = F.linear(y, qkv, qkv_bias).view(batch, n, 3, heads, width // heads)
        query, key, value = split.permute(2, 0, 3, 1, 4).unbind(0)
        if mask is None:
            found = F.scaled_dot_product_attention(query, key, value)
        else:  # a row without scores is NaN
            scores = query / math.sqrt(width // heads) @ key.transpose(2, 3)
            left_out = _masked(mask, kind, batch, heads)
            found = scores.masked_fill(left_out, -math.inf).softmax(-1) @ value
        return F.linear(found.transpose(1, 2).reshape(batch, n, width), out, out_bias)

    def network(y: torch.Tensor) -> torch.Tensor:
        y = F.linear(y, up, up_bias)
        return F.linear(F.gelu(y) if gelu else F.relu(y), down, down_bias)

    def norm_1(y: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(y, (width,), scale_1, shift_1, eps)

    def norm_2(y: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(y, (width,), scale_2, shift_2, eps)

    if norm_first:
        x = x + attention(norm_1(x))
        return x + network(norm_2(x))
    x = norm_1(x + attention(x))
    return norm_2(x + network(x))


DECOMPOSITIONS = {torch.ops.aten._transformer_encoder_layer_fwd.default: _encoder_layer}
