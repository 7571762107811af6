"""Names of local variables in nested scopes."""

from __future__ import annotations

from convoy.relay.ast import Var


class Scopes:
    """Variables by name; the innermost scope is searched first.

    Within one scope the first variable of a name wins, as in TVM's parser. The cost of a lookup
    does not depend on the depth of nesting.
    """

    def __init__(self) -> None:
        self._bound: dict[str, list[tuple[int, Var]]] = {}
        self._scopes: list[list[str]] = [[]]

    def push(self) -> None:
        """Open a scope."""
        self._scopes.append([])

    def pop(self) -> None:
        """Close the innermost scope."""
        for name in self._scopes.pop():
            self._bound[name].pop()

    def bind(self, name: str, var: Var) -> bool:
        """Bring a variable into scope; return False if this scope has one of the name already."""
        stack = self._bound.setdefault(name, [])
        depth = len(self._scopes)
        if stack and stack[-1][0] == depth:
            return False
        stack.append((depth, var))
        self._scopes[-1].append(name)
        return True

    def unbind(self, name: str) -> None:
        """Undo the last `bind` of this scope."""
        self._scopes[-1].remove(name)
        self._bound[name].pop()

    def find(self, name: str) -> Var | None:
        """Return the variable of a name, or None."""
        stack = self._bound.get(name)
        return stack[-1][1] if stack else None

    def names(self) -> list[str]:
        """Return the names in scope."""
        return [name for name, stack in self._bound.items() if stack]
