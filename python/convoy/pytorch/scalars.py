"""Operators along an axis of a 0-d tensor, which PyTorch takes for a tensor of one element.

``x.max(0)`` and ``x.gather(-1, index)`` of a 0-d tensor are that element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

_aten = torch.ops.aten
_Rule = Callable[..., Any]
#: Each takes a tensor first, and gives results of its rank.
_ALONG_AN_AXIS = (
    *(_aten.amax.default, _aten.amin.default, _aten.max.dim, _aten.min.dim),
    *(_aten.argmax.default, _aten.argmin.default, _aten.prod.dim_int),
    *(_aten.sum.dim_IntList, _aten.mean.dim, _aten.var.correction, _aten.any.dim, _aten.any.dims),
    *(_aten.median.dim, _aten.nanmedian.dim, _aten.kthvalue.default, _aten.mode.default),
    *(_aten.sort.default, _aten.sort.stable, _aten.topk.default),
    *(_aten.cumsum.default, _aten.cumprod.default, _aten.logcumsumexp.default),
    *(_aten.cummax.default, _aten.cummin.default, _aten.linalg_vector_norm.default),
    *(_aten._softmax.default, _aten._log_softmax.default),
    *(_aten.flip.default, _aten.gather.default),
    *(_aten.index_select.default, _aten.index_reduce.default),
    *(_aten.scatter.src, _aten.scatter.value, _aten.scatter_add.default),
    *(_aten.scatter.reduce, _aten.scatter.value_reduce, _aten.scatter_reduce.two),
)


def with_scalars(rules: Mapping[Any, _Rule]) -> dict[Any, _Rule]:
    """Decompositions that also take 0-d tensors."""
    return {**rules, **{one: _lifted(one, rules.get(one)) for one in _ALONG_AN_AXIS}}


def _lifted(operator: Any, rule: _Rule | None) -> _Rule:
    def decompose(x: Any, *args: Any, **kwargs: Any) -> Any:
        if x.dim():
            return NotImplemented if rule is None else rule(x, *args, **kwargs)
        args, kwargs = pytree.tree_map_only(torch.Tensor, _with_axis, (args, kwargs))
        found = operator(x.reshape(1), *args, **kwargs)
        return pytree.tree_map_only(torch.Tensor, lambda one: one.reshape(()), found)

    return decompose


def _with_axis(x: Any) -> Any:
    return x if x.dim() else x.reshape(1)
