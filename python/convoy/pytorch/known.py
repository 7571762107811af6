"""Values that depend on no input, computed while a module is traced.

``torch.export`` traces without values: ``if mask.all():`` is an error to it, also where the mask is
a buffer. What a module makes of buffers and numbers alone is therefore computed beside the trace,
which it enters as a constant; what is read from it, such as ``bool(mask.all())``, is known.
Assertions about other values are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from . import element_index
from .assertions import passing
from .constants import MOST_ELEMENTS, is_random, share_memory

_is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor
#: They read nothing of their first tensor but its type.
_ALIKE = {"zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "new_tensor"}
_INDEXED = (torch.Tensor.__getitem__, torch.Tensor.__setitem__)
#: They take sizes one by one, too.
_SIZED = {getattr(torch.Tensor, name) for name in ("expand", "repeat", "reshape", "tile", "view")}
#: Module of what ``torch.vmap`` is made of, such as entering a level, which must not be done twice.
_TRANSFORMS = "torch._functorch"
_UNKNOWN = object()


class Known(TorchFunctionMode):
    """A mode to trace in, which computes what is known.

    Args:
        buffers: Those of the module, and parameters of one element, as the trace has them.
        values: Of these.
    """

    def __init__(self, buffers: Iterable[torch.Tensor], values: Iterable[torch.Tensor]) -> None:
        super().__init__()
        # By id: a tensor of the trace, its version then, and its value. One that was written to
        # since is not known any more.
        self._found: dict[int, tuple[torch.Tensor, int, torch.Tensor]] = {}
        for traced, value in zip(buffers, values, strict=True):
            if value.numel() <= MOST_ELEMENTS:
                self._add(traced, _copy(value))
        self._buffers = set(self._found)

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if (getattr(function, "__module__", None) or "").startswith(_TRANSFORMS):
            return function(*args, **kwargs)
        given = _tensors((args, kwargs))
        values = [self._value(x) for x in given]
        if given and values[0] is None and getattr(function, "__name__", "") in _ALIKE:
            with _untraced():
                values[0] = torch.empty(
                    given[0].shape, dtype=given[0].dtype, device=given[0].device
                )
        if any(value is None for value in values):
            if function is torch._assert:
                return None
            if function is torch.Tensor.__bool__ and (truth := passing()) is not None:
                return truth
            if given and _is_attribute(given[0]):  # which may be written to
                self._found[id(given[0])] = given[0], -1, given[0]
            if function in _INDEXED:
                args = (args[0], self._positions(args[1]), *args[2:])
                if element_index.names_element(args[1]):
                    return self._at_elements(function, args)
            select = _SELECTING.get(function)
            if select is not None and (found := select(self, *args, **kwargs)) is not None:
                return found
            return self._call(function, args, kwargs)
        result = _compute(function, *_with(given, values, (args, kwargs)))
        leaves = _tensors(result)
        if result is _UNKNOWN or not (leaves or given):
            return function(*args, **kwargs)
        if not leaves and result is not None:
            return result
        if leaves and not any(share_memory(leaf, value) for leaf in leaves for value in values):
            return pytree.tree_map_only(torch.Tensor, self._constant, result)
        alike = self._alike(values)
        traced = self._call(function, args, kwargs)
        for tensor, value in (*zip(_tensors(traced), leaves, strict=True), *alike):
            if id(tensor) not in self._buffers:
                self._add(tensor, value)
        return traced

    def _positions(self, index: Any) -> Any:
        """An index without masks that are known: how much they select is known, too."""
        positions: list[Any] = []
        for part in index if isinstance(index, tuple) else (index,):
            mask = isinstance(part, torch.Tensor) and part.dtype == torch.bool and part.dim()
            value = self._value(part) if mask else None
            if value is None:
                positions.append(part)
            else:
                positions += map(self._constant, _compute(torch.where, (value,), {}))
        return tuple(positions)

    def _at_elements(self, function: Callable[..., Any], args: Any) -> Any:
        """``x[index]``, or an assignment to it, where the index has tensors without axes."""
        if function is torch.Tensor.__getitem__:
            return element_index.read(*args)
        return None if element_index.write(*args) else self._call(function, args, {})

    def _selected(self, input: torch.Tensor, mask: torch.Tensor) -> torch.Tensor | None:
        """``masked_select`` by a mask that is known, else None."""
        value = self._value(mask)
        if value is None or not value.dim():
            return None
        shape = torch.broadcast_shapes(input.shape, value.shape)
        with _untraced():
            places = torch.where(value.expand(shape[-value.dim() :]))
        return input.expand(shape)[(..., *map(self._constant, places))].flatten()

    def _repeated(
        self, input: Any, repeats: Any = None, dim: int | None = None, *, output_size: Any = None
    ) -> torch.Tensor | None:
        """``repeat_interleave`` by numbers that are known, else None."""
        counts = self._value(repeats) if isinstance(repeats, torch.Tensor) else None
        if counts is None:
            return None
        x, axis = (input.flatten(), 0) if dim is None else (input, dim)
        with _untraced():
            places = torch.arange(x.shape[axis], device=counts.device).repeat_interleave(counts)
        return x.index_select(axis, self._constant(places))

    def _chosen(self, *args: Any, **kwargs: Any) -> torch.Tensor | None:
        return element_index.select(*args, **kwargs)

    def _narrowed(self, *args: Any, **kwargs: Any) -> torch.Tensor | None:
        return element_index.narrow(*args, **kwargs)

    def _call(self, function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]) -> Any:
        """What the trace has of a call, in which sizes that are known are numbers."""
        if function in _SIZED:
            args = (args[0], *self._sizes(args[1:]))
        named = {name: self._sizes(value) for name, value in kwargs.items()}
        return function(*map(self._sizes, args), **named)

    def _sizes(self, argument: Any) -> Any:
        """An argument; a sequence of integers without tensors among them."""
        if type(argument) not in (tuple, list):
            return argument
        values: list[Any] = [self._value(x) if isinstance(x, torch.Tensor) else x for x in argument]
        if not all(map(_is_integer, values)):
            return argument
        with _untraced():
            return type(argument)(int(x) for x in values)

    def _alike(self, values: list[Any]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """What is known and shares its memory with these values: it is written to with them."""
        return [
            (traced, value)
            for traced, version, value in self._found.values()
            if traced._version == version and any(share_memory(value, one) for one in values)
        ]

    def _value(self, tensor: torch.Tensor) -> torch.Tensor | None:
        traced, version, value = self._found.get(id(tensor), (None, 0, None))
        if traced is tensor:
            return value if tensor._version == version else None
        if _is_attribute(tensor) and tensor.numel() <= MOST_ELEMENTS:
            return self._add(tensor, _copy(tensor))
        return None

    def _add(self, traced: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        self._found[id(traced)] = traced, traced._version, value
        return value

    def _constant(self, value: torch.Tensor) -> torch.Tensor:
        """A tensor of the trace with this value."""
        traced = torch.ops.aten.lift_fresh_copy.default(value.clone())
        self._add(traced, value)
        return traced


#: Methods for functions whose results have sizes, or lie in places, that depend on values.
_SELECTING: dict[Any, Callable[..., torch.Tensor | None]] = {
    **dict.fromkeys((torch.masked_select, torch.Tensor.masked_select), Known._selected),
    **dict.fromkeys((torch.repeat_interleave, torch.Tensor.repeat_interleave), Known._repeated),
    **dict.fromkeys((torch.select, torch.Tensor.select), Known._chosen),
    **dict.fromkeys((torch.narrow, torch.Tensor.narrow), Known._narrowed),
}


class _Fixed(TorchDispatchMode):
    """Refuses to draw random numbers."""

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if is_random(function):
            raise _RandomError
        return function(*args, **(kwargs or {}))


class _RandomError(Exception):
    pass


def _compute(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """The result without a trace, or _UNKNOWN where there is none: it is random, large, or an error
    that the trace is to meet."""
    try:
        with _untraced(), torch.no_grad(), _Fixed():
            result = function(*args, **kwargs)
    except Exception:
        return _UNKNOWN
    leaves = _tensors(result)
    plain = all(type(x) is torch.Tensor and x.layout == torch.strided for x in leaves)
    large = any(x.numel() > MOST_ELEMENTS for x in leaves)
    return result if plain and not large else _UNKNOWN


def _copy(value: torch.Tensor) -> torch.Tensor:
    with _untraced():
        return value.detach().clone()


@contextmanager
def _untraced() -> Iterator[None]:
    with torch._C.DisableTorchFunction(), _disable_current_modes():
        yield


def _is_attribute(tensor: torch.Tensor) -> bool:
    """Whether it is no tensor of the trace, but one that the module holds beside its buffers."""
    return type(tensor) is torch.Tensor and not _is_wrapped(tensor)


def _is_integer(value: Any) -> bool:
    if not isinstance(value, torch.Tensor):
        return isinstance(value, int)
    return not (value.dim() or value.is_floating_point() or value.dtype == torch.bool)


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _with(given: list[torch.Tensor], values: list[Any], nested: Any) -> Any:
    """Nested arguments with the values of tensors in their places."""
    rest = iter(values)
    return pytree.tree_map_only(torch.Tensor, lambda _: next(rest), nested)
