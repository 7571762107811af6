"""PyTorch's attention operators in terms of matmuls and a softmax.

``scaled_dot_product_attention`` decomposes so by itself on a CPU. Programs exported for a GPU may
have that GPU's operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram

_aten = torch.ops.aten
_OPERATORS = (
    _aten._scaled_dot_product_cudnn_attention.default,
    _aten._scaled_dot_product_flash_attention.default,
    _aten._scaled_dot_product_efficient_attention.default,
    _aten._scaled_dot_product_fused_attention_overrideable.default,
)


def _decomposition(operator: Any) -> Callable[..., Any]:
    names = [argument.name for argument in operator._schema.arguments]
    # Only gradients need the results behind the first.
    counts = [str(result.type) != "Tensor" for result in operator._schema.returns[1:]]

    def decompose(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(names, args, strict=False)) | kwargs
        if given.get("dropout_p"):
            return NotImplemented
        result, _ = _aten._scaled_dot_product_attention_math.default(
            given["query"], given["key"], given["value"], given.get("attn_bias"),
            is_causal=given.get("is_causal", False), scale=given.get("scale"),
        )  # fmt: skip
        return (result, *(0 if count else result.new_zeros(()) for count in counts))

    return decompose


_DECOMPOSITIONS = {operator: _decomposition(operator) for operator in _OPERATORS}


def _unmasked(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, scale: float | None = None
) -> torch.Tensor:
    """Attention without a mask, computed in float32 at least, as PyTorch's own decomposition."""
    dtype = torch.promote_types(query.dtype, torch.float32)
    query, key, exact = (one.to(dtype) for one in (query, key, value))
    root = math.sqrt(1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    scores = (query * root) @ (key.transpose(-2, -1) * root)
    return (torch.softmax(scores, -1) @ exact).to(value.dtype)


def decompositions(program: ExportedProgram) -> dict[Any, Callable[..., Any]]:
    """The decompositions of a program's attention. Where all of it is without masks, no row of
    scores is minus infinity as a whole, and PyTorch's guard of such rows is left out."""
    composite = _aten.scaled_dot_product_attention.default
    calls = [node for node in program.graph.nodes if node.target is composite]
    plain = all(len(call.args) == 3 and call.kwargs.keys() <= {"scale"} for call in calls)
    return _DECOMPOSITIONS | ({composite: _unmasked} if plain else {})
