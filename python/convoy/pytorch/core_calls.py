"""Calls that are one operator of core ATen, or another spelling of one.

PyTorch decomposes core operators no further. It takes several milliseconds to find that out for a
call, and most calls of a convolutional network are such.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch._ops import OpOverload
from torch.fx import Node, map_arg

_aten = torch.ops.aten
_CONVOLUTIONS = {
    _aten.conv1d.default: 1,
    _aten.conv2d.default: 2,
    _aten.conv3d.default: 3,
}


@dataclass(frozen=True)
class CoreCall:
    """A call of a core operator.

    Attributes:
        value: Its result, as PyTorch traces it.
        writes: Whether the result is left in the first argument.
    """

    target: OpOverload
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    value: Any
    writes: bool = False


#: From a call and a table of decompositions to the core call that it is.
_Rule = Callable[[Node, Any], CoreCall | None]


def core_call(call: Node, table: Mapping[Any, Callable[..., Any]]) -> CoreCall | None:
    """The core operator that a call is decomposed into by ``table``; None where it is decomposed
    into others, or where only PyTorch can tell."""
    target = cast("OpOverload", call.target)
    rule: _Rule = _RULES.get(target, _in_place if target._schema.is_mutable else _as_it_is)
    made = rule(call, table)
    if made is None or torch.Tag.core not in made.target.tags:
        return None
    # PyTorch's tables have no get().
    if made.target in table and _run(table[made.target], made) is not NotImplemented:
        return None
    if not made.writes:
        return made
    value = _run(made.target, made)
    return dataclasses.replace(made, value=value) if value.dtype == made.value.dtype else None


def _as_it_is(call: Node, table: object) -> CoreCall | None:
    value = call.meta["val"]
    if not isinstance(value, torch.Tensor) or call.target is _aten.alias.default:
        return None
    return CoreCall(call.target, call.args, call.kwargs, value)


def _in_place(call: Node, table: object) -> CoreCall | None:
    """``relu_`` as ``relu``."""
    schema, value = call.target._schema, call.meta["val"]
    written = [one.alias_info is not None and one.alias_info.is_write for one in schema.arguments]
    name = schema.name.removeprefix("aten::").removesuffix("_")
    target = getattr(getattr(_aten, name, None), schema.overload_name or "default", None)
    first, *others = schema.arguments
    same = target is not None and [first.name, *(one.name for one in others)] == [
        one.name for one in target._schema.arguments
    ]
    if not same or sum(written) != 1 or not written[0] or not isinstance(value, torch.Tensor):
        return None
    return CoreCall(target, call.args, call.kwargs, value, writes=True)


def _convolution(call: Node, table: Mapping[Any, object]) -> CoreCall | None:
    """(input, weight, bias, stride, padding, dilation, groups)."""
    rank = _CONVOLUTIONS[call.target]
    data, weight, *rest = cast("tuple[Any, ...]", call.args)
    batched = data.meta["val"].dim() == rank + 2
    if call.target not in table or call.kwargs or not batched:
        return None
    defaults: list[Any] = [None, [1] * rank, [0] * rank, [1] * rank, 1]
    bias, stride, padding, dilation, groups = [*rest, *defaults[len(rest) :]]
    if any(not isinstance(v, list) or len(v) != rank for v in (stride, padding, dilation)):
        return None
    args = (data, weight, bias, stride, padding, dilation, False, [0] * rank, groups)
    return CoreCall(_aten.convolution.default, args, {}, call.meta["val"])


def _batch_norm(call: Node, table: object) -> CoreCall | None:
    """(input, weight, bias, mean, variance, training, momentum, epsilon, cudnn)."""
    if call.kwargs or len(call.args) != 9:
        return None
    *tensors, training, momentum, epsilon, _ = cast("tuple[Any, ...]", call.args)
    value = call.meta["val"]
    if training or tensors[3] is None or tensors[4] is None or not value.numel():
        return None
    target = _aten._native_batch_norm_legit_no_training.default
    args = (*tensors, momentum, epsilon)
    return CoreCall(target, args, {}, (value, value.new_empty(0), value.new_empty(0)))


_RULES: dict[Any, _Rule] = {
    **dict.fromkeys(_CONVOLUTIONS, _convolution),
    _aten.batch_norm.default: _batch_norm,
}


def _run(function: Callable[..., Any], made: CoreCall) -> Any:
    """Apply a function to the operands of a call, as PyTorch traces it."""
    args, kwargs = map_arg((made.args, dict(made.kwargs)), lambda node: node.meta["val"])
    value = made.value if isinstance(made.value, torch.Tensor) else made.value[0]
    with torch.no_grad(), value.fake_mode:
        return function(*args, **kwargs)
