"""Calls between the functions of a module."""

from __future__ import annotations

from collections.abc import Sequence

from convoy.relay.ast import GlobalVar
from convoy.relay.module import IRModule
from convoy.relay.visit import post_order


def callees(mod: IRModule, name: str) -> list[str]:
    """Return the functions that a function names, in order."""
    nodes = post_order(mod[name])
    return list(dict.fromkeys(n.name_hint for n in nodes if isinstance(n, GlobalVar)))


def reachable(mod: IRModule, entry: str) -> list[str]:
    """Return a function and all that it calls, directly or not."""
    found: dict[str, None] = {}
    todo = [entry]
    while todo:
        name = todo.pop()
        if name not in found and name in mod:
            found[name] = None
            todo += reversed(callees(mod, name))
    return list(found)


def recursive(mod: IRModule, names: Sequence[str]) -> set[str]:
    """Return those of some functions that call themselves, directly or not."""
    calls = {name: [c for c in callees(mod, name) if c in mod] for name in names}
    found = set()
    for name in names:
        seen: set[str] = set()
        todo = list(calls[name])
        while todo:
            other = todo.pop()
            if other not in seen:
                seen.add(other)
                todo += calls.get(other, ())
        if name in seen:
            found.add(name)
    return found
