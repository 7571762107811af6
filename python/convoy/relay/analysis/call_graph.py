"""The functions of a module and which of them call which."""

from __future__ import annotations

from convoy.errors import InvalidOption
from convoy.relay.ast import GlobalVar
from convoy.relay.module import IRModule, as_module
from convoy.relay.visit import post_order


class CallGraph:
    """Calls between the functions of a module.

    Args:
        module: The module.

    Attributes:
        module: The module.
    """

    def __init__(self, module: IRModule) -> None:
        self.module = as_module(module)
        # The names that each function mentions, once for each place.
        self._calls: dict[str, list[str]] = {}
        for name, function in ((n, self.module[n]) for n in self.module):
            calls = []
            for node in post_order(function):
                parts = getattr(node, "args", ()) and (node.op, *node.args)  # type: ignore[attr-defined]
                calls += [p.name_hint for p in parts or () if isinstance(p, GlobalVar)]
            self._calls[name] = calls

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._calls)

    def global_call_count(self, var: GlobalVar | str) -> int:
        """Return how many calls of functions of the module a function contains."""
        return len(self._calls[self._name(var)])

    def ref_count(self, var: GlobalVar | str) -> int:
        """Return in how many places functions name a function."""
        name = self._name(var)
        return sum(calls.count(name) for calls in self._calls.values())

    def is_recursive(self, var: GlobalVar | str) -> bool:
        """Check whether a function calls itself."""
        name = self._name(var)
        return name in self._calls[name]

    def print_var(self, var: GlobalVar | str) -> str:
        """Return one function with its number of uses and the functions that it calls."""
        name = self._name(var)
        lines = [f"Call graph node: {name}<<#refs = {self.ref_count(name)}>>"]
        lines += [f"  call site: {called}" for called in dict.fromkeys(self._calls[name])]
        return "\n".join(lines) + "\n"

    def __str__(self) -> str:
        return "CallGraph:\n" + "".join(map(self.print_var, self._calls))

    def _name(self, var: GlobalVar | str) -> str:
        name = var if isinstance(var, str) else var.name_hint
        if name not in self._calls:
            raise InvalidOption(f"function '{name}'", ", ".join(sorted(self._calls)))
        return name
