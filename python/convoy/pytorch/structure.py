"""Nested arguments and results: which tensors they hold, and what stands around them."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ..errors import InvalidOption

#: A structure with tensors left out. Two values with equal structures differ in tensors only.
Structure = tuple[Any, ...]
TENSOR: Structure = ("tensor",)
#: Characters of a value that is not repeated in an error.
_LONG = 60


class Constant:
    """What is not a tensor, equal to another one of the same type if a function cannot tell them
    apart: 2 is not 2.0, and NaN is NaN. Of arrays and sets it is a copy."""

    def __init__(self, value: Any) -> None:
        self.value: Any = value.copy() if isinstance(value, np.ndarray | set) else value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Constant) or type(self.value) is not type(other.value):
            return False
        one, two = self.value, other.value
        if isinstance(one, np.ndarray):
            return one.dtype == two.dtype and one.tolist() == two.tolist()
        return one is two or bool(one == two) or bool(one != one and two != two)

    __hash__ = None  # type: ignore[assignment]


def flatten(value: Any) -> tuple[list[torch.Tensor], Structure]:
    """The tensors of a nested value, in order, and its structure.

    Containers are tuples, lists, dictionaries, types registered with ``torch.utils._pytree``,
    dataclasses, mappings such as Hugging Face's ``ModelOutput``, and objects with tensors among
    their attributes; everything else that is no tensor belongs to the structure, as a
    :class:`Constant`.

    Raises:
        InvalidOption: A container that contains itself.
    """
    tensors: list[torch.Tensor] = []
    try:
        return tensors, _flatten(value, tensors)
    except RecursionError:
        raise InvalidOption(
            f"a {type(value).__name__} with an object that refers to itself",
            "tensors in tuples, lists, dictionaries and dataclasses",
        ) from None


def unflatten(structure: Structure, tensors: Sequence[Any]) -> Any:
    """Inverse of :func:`flatten`."""
    return _unflatten(structure, iter(tensors))


def _flatten(value: Any, tensors: list[torch.Tensor]) -> Structure:
    def inner(values: Iterable[Any]) -> list[Structure]:
        return [_flatten(item, tensors) for item in values]

    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return TENSOR
    kind = type(value)
    if kind in (tuple, list):
        return ("sequence", kind, *inner(value))
    if kind is torch.Size:  # of numbers, though pytree takes it apart, and makes a tuple of it
        return ("constant", Constant(value))
    if kind is dict:
        return ("dict", tuple(value), *inner(value.values()))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return ("namedtuple", kind, *inner(value))
    if kind in pytree.SUPPORTED_NODES:
        children, context = pytree.SUPPORTED_NODES[kind].flatten_fn(value)
        return ("node", kind, context, *inner(children))
    if isinstance(value, Mapping):
        fields = dict(value)
        return ("fields", kind, tuple(fields), *inner(fields.values()))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in dataclasses.fields(value) if hasattr(value, f.name)]
        fields = {name: getattr(value, name) for name in names} | getattr(value, "__dict__", {})
        return ("object", kind, tuple(fields), *inner(fields.values()))
    if _holds_tensors(value):
        fields = vars(value)
        return ("object", kind, tuple(fields), *inner(fields.values()))
    return ("constant", Constant(value))


def _holds_tensors(value: Any) -> bool:
    """Whether there is a tensor among the attributes of an object, also of objects in them."""
    seen, left = set(), [value]
    while left:
        found = left.pop()
        if isinstance(found, torch.Tensor):
            return True
        if id(found) in seen or isinstance(found, type | ModuleType | torch.nn.Module):
            continue
        seen.add(id(found))
        if isinstance(found, Mapping):
            left += found.values()
        elif isinstance(found, list | tuple):
            left += found
        else:
            left += getattr(found, "__dict__", {}).values()
    return False


def _unflatten(structure: Structure, tensors: Iterator[Any]) -> Any:
    match structure:
        case ("tensor",):
            return next(tensors)
        case ("constant", constant):
            return constant.value
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
        case ("object", kind, keys, *items):
            made = kind.__new__(kind)  # without __init__, which may compute
            held = dict(zip(keys, [_unflatten(item, tensors) for item in items], strict=True))
            if hasattr(made, "__dict__"):
                vars(made).update(held)
            else:
                for name, value in held.items():
                    object.__setattr__(made, name, value)
            return made
    raise AssertionError(structure)


def describe(structure: Structure) -> str:
    """A structure in words, such as ``(tensor, [tensor, 3])``."""
    match structure:
        case ("constant", constant):
            value = constant.value
            plain = isinstance(value, bool | int | float | str | None)
            text = repr(value) if plain else ""
            return text if 0 < len(text) < _LONG else f"a {type(value).__name__}"
        case ("sequence", kind, *items):
            inner = ", ".join(map(describe, items))
            return f"[{inner}]" if kind is list else f"({inner})"
        case ("dict", keys, *items):
            inner = ", ".join(f"{k!r}: {describe(i)}" for k, i in zip(keys, items, strict=True))
            return f"{{{inner}}}"
        case ("namedtuple", kind, *items) | ("node" | "fields" | "object", kind, _, *items):
            return f"{kind.__name__}({', '.join(map(describe, items))})"
    return "tensor"


def describe_call(structure: Structure) -> str:
    """The arguments of a call in words, such as ``(tensor, flag=True)``."""
    _, _, positional, (_, names, *values) = structure
    given = [describe(item) for item in positional[2:]]
    given += [f"{name}={describe(value)}" for name, value in zip(names, values, strict=True)]
    return f"({', '.join(given)})"


def paths(structure: Structure) -> Iterator[tuple[str, ...]]:
    """Yield the keys and positions that lead to each tensor, in the order of :func:`flatten`."""
    match structure:
        case ("tensor",):
            yield ()
        case ("namedtuple", kind, *items):
            yield from _inner(kind._fields, items)
        case ("dict", keys, *items) | ("fields" | "object", _, keys, *items):
            yield from _inner(keys, items)
        case ("sequence", _, *items) | ("node", _, _, *items):
            yield from _inner(range(len(items)), items)


def _inner(keys: Iterable[Any], items: Sequence[Structure]) -> Iterator[tuple[str, ...]]:
    for key, item in zip(keys, items, strict=True):
        yield from ((str(key), *path) for path in paths(item))


class Arguments:
    """How a function is called: every spelling of a call, by position or by keyword, becomes the
    same positional and keyword arguments, without those that are at their defaults: a decorator
    may have the same ones to give."""

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
        parameters = self._signature.parameters.values()
        if not any(p.kind is p.VAR_POSITIONAL and bound.arguments[p.name] for p in parameters):
            for p in parameters:
                named = p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
                if named and _same(bound.arguments[p.name], p.default):
                    del bound.arguments[p.name]
        return flatten((bound.args, dict(sorted(bound.kwargs.items()))))

    def names(self, structure: Structure) -> list[str]:
        """Name the tensors of a call after the function's parameters and the keys inside them:
        ``batch_image`` for ``batch["image"]``, ``images_0`` for ``*images``."""
        _, _, positional, keyword = structure
        values = [*zip(self._positional(), positional[2:], strict=False)]
        values += zip(keyword[1], keyword[2:], strict=True)
        return ["_".join((name, *path)) for name, value in values for path in paths(value)]

    def _positional(self) -> Iterator[str]:
        rest = "input"
        for p in self._signature.parameters.values() if self._signature is not None else ():
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
                yield p.name
            elif p.kind is p.VAR_POSITIONAL:
                rest = p.name
        yield from (f"{rest}_{i}" for i in itertools.count())


def _same(value: Any, default: Any) -> bool:
    """Whether an argument is what it would be if it were not given."""
    if value is default:
        return True
    plain = isinstance(value, bool | int | float | str)
    return plain and type(value) is type(default) and bool(value == default)
