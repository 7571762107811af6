"""`relay.backend`: the executors and runtimes that scripts pass to `relay.build`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy.errors import InvalidOption
from convoy.relay.removed import Removed


class Executor:
    """A kind of executor, "graph" or "aot"; both are the one that Convoy has."""

    def __init__(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        if name not in ("graph", "aot"):
            raise InvalidOption(f"executor '{name}'", "'graph' or 'aot'")
        self.name, self.attrs = name, dict(options or {})

    def __getitem__(self, option: str) -> Any:
        return self.attrs[option]

    def __contains__(self, option: object) -> bool:
        return option in self.attrs

    def __str__(self) -> str:
        return self.name


class Runtime:
    """A kind of runtime: the C++ one."""

    def __init__(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        if name != "cpp":
            raise InvalidOption(f"runtime '{name}'", "'cpp'")
        self.name, self.attrs = name, dict(options or {})

    def __getitem__(self, option: str) -> Any:
        return self.attrs[option]

    def __contains__(self, option: object) -> bool:
        return option in self.attrs

    def __str__(self) -> str:
        return self.name


def __getattr__(name: str) -> Any:
    """Return a stand-in, which says so when it is used, for a part of TVM's own compiler."""
    if name in ("te_compiler", "graph_executor_codegen", "contrib", "_backend"):
        return Removed(f"relay.backend.{name}")
    raise AttributeError(f"relay.backend has no {name}")
