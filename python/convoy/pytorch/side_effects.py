"""Attributes of modules, which a trace leaves as they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def restored(function: Callable[..., Any]) -> Iterator[None]:
    """Put attributes of a module and its submodules back afterwards, with the contents of lists and
    dictionaries among them. What a module caches while it is traced, such as anchors for an input
    size, has no values."""
    modules = function.modules() if isinstance(function, torch.nn.Module) else ()
    held = [_copy(vars(one)) for one in modules if not _is_scripted(one)]
    try:
        yield
    finally:
        for attributes, before, contents in held:
            _put_back(attributes, before)
            for name, content in contents.items():
                if isinstance(content, dict):
                    _put_back(before[name], content)
                else:
                    before[name][:] = content


def _is_scripted(module: torch.nn.Module) -> bool:
    return isinstance(module, torch.jit.ScriptModule)


def _copy(attributes: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Attributes, a copy of them, and copies of the lists and dictionaries among them."""
    contents = {
        name: value.copy() for name, value in attributes.items() if isinstance(value, dict | list)
    }
    return attributes, dict(attributes), contents


def _put_back(held: dict[Any, Any], before: dict[Any, Any]) -> None:
    """Change what differs alone: another thread may be reading."""
    for name in held.keys() - before.keys():
        del held[name]
    for name, value in before.items():
        if held.get(name, held) is not value:
            held[name] = value
