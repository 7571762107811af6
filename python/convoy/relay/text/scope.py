"""Names of local variables in nested scopes."""

from __future__ import annotations

from convoy.relay.ast import Var


class Scopes:
    """Variables by name; the innermost scope is looked at first.

    Within one scope the first variable of a name wins, as in TVM's parser. Looking up costs the
    same however deep the scopes nest.
    """

    def __init__(self) -> None:
        self._bound: dict[str, list[tuple[int, Var]]] = {}
        self._scopes: list[list[str]] = [[]]

    def push(self) -> None:
        self._scopes.append([])

    def pop(self) -> None:
        for name in self._scopes.pop():
            self._bound[name].pop()

    def bind(self, name: str, var: Var) -> bool:
        """Bring a variable into scope; False if this scope has one of the name already."""
        stack = self._bound.setdefault(name, [])
        depth = len(self._scopes)
        if stack and stack[-1][0] == depth:
            return False
        stack.append((depth, var))
        self._scopes[-1].append(name)
        return True

    def unbind(self, name: str) -> None:
        """Take back the last `bind` of this scope."""
        self._scopes[-1].remove(name)
        self._bound[name].pop()

    def find(self, name: str) -> Var | None:
        stack = self._bound.get(name)
        return stack[-1][1] if stack else None

    def names(self) -> list[str]:
        return [name for name, stack in self._bound.items() if stack]
