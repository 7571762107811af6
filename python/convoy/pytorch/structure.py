"""Nested arguments and results: which tensors they hold, and what stands around them."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

#: A structure with tensors left out. Two values with equal structures differ in tensors only.
Structure = tuple[Any, ...]
TENSOR: Structure = ("tensor",)


def flatten(value: Any) -> tuple[list[torch.Tensor], Structure]:
    """The tensors of a nested value, in order, and its structure.

    Containers are tuples, lists, dictionaries, types registered with ``torch.utils._pytree``,
    dataclasses and mappings such as Hugging Face's ``ModelOutput``; everything else that is no
    tensor belongs to the structure and is compared by ``==``.
    """
    tensors: list[torch.Tensor] = []
    return tensors, _flatten(value, tensors)


def unflatten(structure: Structure, tensors: Sequence[Any]) -> Any:
    """Inverse of :func:`flatten`."""
    return _unflatten(structure, iter(tensors))


def _flatten(value: Any, tensors: list[torch.Tensor]) -> Structure:
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return TENSOR
    kind = type(value)
    if kind in (tuple, list):
        return ("sequence", kind, *(_flatten(item, tensors) for item in value))
    if kind is dict:
        return ("dict", tuple(value), *(_flatten(item, tensors) for item in value.values()))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return ("namedtuple", kind, *(_flatten(item, tensors) for item in value))
    if kind in pytree.SUPPORTED_NODES:
        children, context = pytree.SUPPORTED_NODES[kind].flatten_fn(value)
        return ("node", kind, context, *(_flatten(child, tensors) for child in children))
    if isinstance(value, Mapping):
        fields = dict(value)
        return ("fields", kind, tuple(fields), *(_flatten(f, tensors) for f in fields.values()))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
        return ("fields", kind, tuple(fields), *(_flatten(f, tensors) for f in fields.values()))
    return ("constant", value)


def _unflatten(structure: Structure, tensors: Iterator[Any]) -> Any:
    match structure:
        case ("tensor",):
            return next(tensors)
        case ("constant", value):
            return value
        case ("sequence", kind, *items):
            return kind(_unflatten(item, tensors) for item in items)
        case ("dict", keys, *items):
            return dict(zip(keys, (_unflatten(item, tensors) for item in items), strict=True))
        case ("namedtuple", kind, *items):
            return kind(*(_unflatten(item, tensors) for item in items))
        case ("node", kind, context, *items):
            children = [_unflatten(item, tensors) for item in items]
            return pytree.SUPPORTED_NODES[kind].unflatten_fn(children, context)
        case ("fields", kind, keys, *items):
            values = [_unflatten(item, tensors) for item in items]
            return kind(**dict(zip(keys, values, strict=True)))
    raise AssertionError(structure)


class Arguments:
    """How a function is called: every spelling of a call, by position or by keyword, becomes the
    same positional and keyword arguments, defaults included."""

    def __init__(self, function: Callable[..., Any]) -> None:
        try:
            self._signature: inspect.Signature | None = inspect.signature(function)
        except (TypeError, ValueError):
            self._signature = None

    def flatten(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[list[torch.Tensor], Structure]:
        """The tensors of a call and its structure. Raises TypeError as the function would."""
        if self._signature is None:
            return flatten((tuple(args), dict(sorted(kwargs.items()))))
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return flatten((bound.args, dict(sorted(bound.kwargs.items()))))
