"""PyTorch's attention operators of GPUs, which exported programs may have, in terms of matmuls.

``scaled_dot_product_attention`` decomposes so by itself on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

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


DECOMPOSITIONS = {operator: _decomposition(operator) for operator in _OPERATORS}
