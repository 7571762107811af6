"""Attributes of modules, which a trace leaves as they were, and modules that need them changed."""

from __future__ import annotations

import operator
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch._subclasses.fake_tensor import is_fake

from ..errors import UnsupportedOp
from .batches import close
from .structure import Structure, flatten, unflatten

#: Containers among the attributes of a module that are put back, at most.
_MOST = 2000
_RANDOM = "random"
#: Attributes of a module that hold others by name.
_NAMED = ("_parameters", "_buffers")
_VALUES = frozenset((bool, int, float, str, type(None), torch.Tensor, torch.nn.Parameter))
_CONTAINERS = (dict, list, deque, set, tuple)
_NO_CONTAINERS = (torch.nn.Module, torch.Tensor, type, FunctionType, MethodType, ModuleType)


class Attributes:
    """Attributes of a module and its submodules as they are now, with the contents of what is among
    them, and the state of Python's random numbers."""

    def __init__(self, function: Callable[..., Any]) -> None:
        modules = function.named_modules() if isinstance(function, torch.nn.Module) else ()
        self._held = [
            (path, name, content, _copy(content))
            for path, module in modules
            if not isinstance(module, torch.jit.ScriptModule | torch.fx.GraphModule)
            for name, content in _contents(vars(module))
        ]
        self._drawn = random.getstate()

    def changed(self) -> list[str]:
        """The names of those that have changed since, and ``random`` where numbers were drawn."""
        names = [
            f"{path}.{name or key}".removeprefix(".")
            for path, name, content, before in self._held
            for key in _differing(content, before)
        ]
        return names + [_RANDOM] * (random.getstate() != self._drawn)

    def put_back(self) -> None:
        for _, _, content, before in self._held:
            _put_back(content, before)


@contextmanager
def restored(function: Callable[..., Any]) -> Iterator[None]:
    """Put attributes of a module back afterwards. What a module caches while it is traced, such as
    anchors for an input size, has no values; what it adds to tensors that are no buffers, it adds
    in the trace, too."""
    before = Attributes(function)
    try:
        with _elements_restored([one for one in _held_by(function) if _is_plain(one)]):
            yield
    finally:
        before.put_back()


def check_repeatable(
    function: Callable[..., Any],
    arguments: Structure,
    tensors: Sequence[torch.Tensor],
    changed: Sequence[str],
) -> None:
    """Raise UnsupportedOp for a module whose results depend on earlier calls.

    A module that has ``changed`` its attributes may cache, or have a state such as a counter, which
    a compiled module does not have. A call, after one with other inputs, shows which.
    """
    drawn = random.getstate()
    held = function.buffers() if isinstance(function, torch.nn.Module) else ()
    buffers = [one for one in held if _is_plain(one)]
    on_gpus = {one.device.index for one in tensors if one.is_cuda}

    def results(*calls: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Those of the last call; whatever calls change is put back."""
        with torch.no_grad(), restored(function), _elements_restored(buffers):
            for given in calls:
                args, kwargs = unflatten(arguments, [one.clone() for one in given])
                found, _ = flatten(function(*args, **kwargs))
        return found

    other = [one / 2 if one.is_floating_point() else one for one in tensors]
    try:
        with torch.random.fork_rng(on_gpus):
            alone = results(other)
            moved = results(tensors, other)
            random.setstate(drawn)
            again = results(other)
    except Exception:  # of inputs without meaning
        return
    if _equal(alone, again) and not _equal(alone, moved):
        names = [name.removeprefix("function.") for name in changed if name != _RANDOM]
        what = f"that changes {names[0]!r} when it is called" if names else "that draws numbers"
        raise UnsupportedOp(
            f"a module {what}, on which the results of later calls depend",
            "one that gives the same result each time",
            "State may be an argument and a result.",
        )


def _equal(ones: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    return len(ones) == len(others) and all(
        one.shape == other.shape and one.dtype == other.dtype and close(one, other)
        for one, other in zip(ones, others, strict=True)
    )


@contextmanager
def _elements_restored(tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    before = [one.clone() for one in tensors]
    try:
        yield
    finally:
        for one, kept in zip(tensors, before, strict=True):
            if not torch.equal(one, kept):  # a batch norm writes without counting a version
                one.copy_(kept)


def _held_by(function: Callable[..., Any]) -> list[torch.Tensor]:
    """The tensors among the attributes of a module and its submodules, that are no buffers."""
    modules = function.modules() if isinstance(function, torch.nn.Module) else ()
    held = [value for module in modules for value in vars(module).values()]
    return [value for value in held if isinstance(value, torch.Tensor)]


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether it has elements that can be compared and written to."""
    other = tensor.requires_grad or tensor.is_inference() or is_fake(tensor) or tensor.is_meta
    return tensor.layout == torch.strided and not tensor.is_nested and not other


def _contents(attributes: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what a call can change among the attributes of a module, nearest first: containers, and
    the attributes of other objects, each with the name of the attribute that it is in."""
    left, seen = deque[tuple[str, Any]]([("", attributes)]), {id(attributes)}
    while left and len(seen) < _MOST:
        name, found = left.popleft()
        if not isinstance(found, tuple):
            yield name, found
        pairs = found.items() if isinstance(found, dict) else ((name, one) for one in found)
        for key, one in pairs:
            if type(one) in _VALUES or isinstance(one, _NO_CONTAINERS):
                continue
            if not isinstance(one, _CONTAINERS):
                one = getattr(one, "__dict__", None)
            if isinstance(one, _CONTAINERS) and id(one) not in seen:
                seen.add(id(one))
                left.append(("" if key in _NAMED else name or key, one))


def _copy(content: Any) -> Any:
    """A plain container of the same contents."""
    return dict(content) if isinstance(content, dict) else list(content)


def _differing(content: Any, before: Any) -> list[Any]:
    """The keys of what differs; positions have none."""
    if not isinstance(content, dict):
        same = len(content) == len(before) and all(map(operator.is_, content, before))
        return [] if same else [""]
    changed = [key for key, value in before.items() if content.get(key, content) is not value]
    return [*changed, *(content.keys() - before.keys())]


def _put_back(content: Any, before: Any) -> None:
    """Change what differs alone: another thread may be reading."""
    keys = _differing(content, before)
    if not isinstance(content, dict):
        if keys:
            content.clear()
            (content.update if isinstance(content, set) else content.extend)(before)
        return
    for key in keys:
        if key in before:
            content[key] = before[key]
        else:
            del content[key]
