"""Functions as modules of what they call, such as ``lambda x: net(x)["logits"]``."""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch

_CALLS: tuple[type, ...] = (FunctionType, MethodType, functools.partial)


def as_module(function: Callable[..., Any]) -> torch.nn.Module:
    """A module as it is; a function as a module with those that it refers to as submodules."""
    return function if isinstance(function, torch.nn.Module) else _Function(function)


class _Function(torch.nn.Module):
    """Parameters, buffers and attributes of a function are those of the modules that it refers to,
    by the names of its variables; but for modules without elements, which
    ``torch.func.functional_call`` is given others for."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.forward = function
        for name, module in _modules(function, set()):
            if any(one.is_meta for one in module.parameters()):
                continue
            while hasattr(self, name):
                name += "_"
            self._modules[name] = module
        self.training = any(module.training for module in self.children())


def _modules(value: Any, seen: set[tuple[int, int]]) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield the modules among what a callable refers to, also through other functions."""
    key = (id(getattr(value, "__func__", value)), id(getattr(value, "__self__", None)))
    if key in seen:
        return
    seen.add(key)
    for name, found in _referred(value):
        if isinstance(found, torch.nn.Module):
            yield name, found
        elif isinstance(found, list | tuple | dict):
            held = found.values() if isinstance(found, dict) else found
            pairs = ((f"{name}_{i}", one) for i, one in enumerate(held))
            yield from (pair for pair in pairs if isinstance(pair[1], torch.nn.Module))
        elif isinstance(found, _CALLS) and not str(found.__module__).startswith("torch."):
            yield from _modules(found, seen)


def _referred(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a callable refers to: arguments of a partial, variables around a function, globals
    that it reads, and its object or attributes of that."""
    if isinstance(value, functools.partial):
        yield from (("function", value.func), *((f"arg{i}", x) for i, x in enumerate(value.args)))
        yield from value.keywords.items()
        return
    owner = getattr(value, "__self__", value)
    function = getattr(value, "__func__", value)
    if not isinstance(function, FunctionType):  # an object that can be called
        function = type(value).__call__
    if not isinstance(function, FunctionType):
        return
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # of a variable that is not assigned yet
            yield name, cell.cell_contents
    read = dict.fromkeys(_names(code, "LOAD_GLOBAL"))
    yield from ((name, function.__globals__.get(name)) for name in read)
    if isinstance(owner, torch.nn.Module):
        yield "module", owner
    elif owner is not function:
        for name in dict.fromkeys(_names(code, "LOAD_ATTR", "LOAD_METHOD")):
            found = inspect.getattr_static(owner, name, None)
            yield name, MethodType(found, owner) if isinstance(found, FunctionType) else found


def _names(code: CodeType, *read: str) -> Iterator[str]:
    """Yield the names that a function, and those within it, read by such instructions."""
    yield from (one.argval for one in dis.get_instructions(code) if one.opname in read)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner, *read)
