"""Indices that are 0-d integer tensors, such as ``alphas[t]`` and ``x[scores.argmax()]``.

PyTorch reads such a tensor and selects by the number, which a trace does not know. A gather takes
the tensor itself.
"""

from __future__ import annotations

from typing import Any

import torch

_aten = torch.ops.aten


def names_element(index: Any) -> bool:
    """Whether a part of an index is a 0-d integer tensor."""
    return any(map(_is_element, _parts(index)))


def read(x: torch.Tensor, index: Any) -> torch.Tensor:
    """``x[index]``."""
    parts = _parts(index)
    for axis, (i, part) in zip(_axes(x, parts), enumerate(parts), strict=True):
        if _is_element(part):
            x = _aten.index.Tensor(x, [*[None] * axis, part.reshape(1)])
            parts[i] = 0
    return x[tuple(parts)]


def write(x: torch.Tensor, index: Any, value: Any) -> bool:
    """``x[index] = value``. Returns False, and does nothing, where lists or tensors with axes are
    parts of the index, too."""
    parts = _parts(index)
    if not all(_is_element(part) or _is_basic(part) for part in parts):
        return False
    whole = slice(None)
    # As a view of what the other parts select, which has the axes of the elements, still.
    view = x[tuple(whole if _is_element(part) else part for part in parts)]
    left = [part for part in parts if not isinstance(part, int)]  # an integer takes its axis away
    places: list[Any] = [None] * view.dim()
    for axis, part in zip(_axes(view, left, new=1), left, strict=True):
        if _is_element(part):
            places[axis] = part
    if not isinstance(value, torch.Tensor):
        value = torch.full((), value, dtype=x.dtype, device=x.device)
    _aten.index_put_.default(view, places, value.to(x.dtype))
    return True


def select(input: torch.Tensor, dim: int, index: Any) -> torch.Tensor | None:
    """``input.select(dim, index)`` by a tensor; None by a number."""
    if not _is_element(index):
        return None
    return read(input, (*[slice(None)] * (dim % input.dim()), index))


def narrow(input: torch.Tensor, dim: int, start: Any, length: int) -> torch.Tensor | None:
    """``input.narrow(dim, start, length)`` from where a tensor says; None from a number."""
    if not _is_element(start):
        return None
    places = start + torch.arange(length, device=input.device)
    return _aten.index.Tensor(input, [*[None] * (dim % input.dim()), places])


def _parts(index: Any) -> list[Any]:
    return list(index) if isinstance(index, tuple) else [index]


def _axes(x: torch.Tensor, parts: list[Any], new: int = 0) -> list[int]:
    """The axis of a tensor where each part of its index begins; None is ``new`` axes."""
    taken = [new if part is None else _rank(part) for part in parts]
    rest = x.dim() - sum(taken)
    axes, axis = [], 0
    for part, count in zip(parts, taken, strict=True):
        axes.append(axis)
        axis += rest if part is Ellipsis else count
    return axes


def _rank(part: Any) -> int:
    """How many axes a part of an index is about."""
    if part is Ellipsis:
        return 0
    is_mask = isinstance(part, torch.Tensor) and part.dtype in (torch.bool, torch.uint8)
    return part.dim() if is_mask else 1


def _is_element(part: Any) -> bool:
    return (
        isinstance(part, torch.Tensor)
        and not part.dim()
        and part.dtype in (torch.int8, torch.int16, torch.int32, torch.int64)
    )


def _is_basic(part: Any) -> bool:
    plain = part is None or part is Ellipsis or isinstance(part, slice)
    return plain or type(part) is int
