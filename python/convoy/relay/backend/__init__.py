"""`relay.backend`: the executors and runtimes that scripts pass to `relay.build`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy.errors import InvalidOption
from convoy.relay.removed import Removed


class _Kind:
    """A kind of part of TVM with its options, by name."""

    _names: tuple[str, ...] = ()

    def __init__(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        if name not in self._names:
            what = type(self).__name__.lower()
            raise InvalidOption(f"{what} '{name}'", " or ".join(f"'{n}'" for n in self._names))
        self.name, self.attrs = name, dict(options or {})

    def __getitem__(self, option: str) -> Any:
        return self.attrs[option]

    def __contains__(self, option: object) -> bool:
        return option in self.attrs

    def __str__(self) -> str:
        return self.name


class Executor(_Kind):
    """A kind of executor, "graph" or "aot"; both are the one that Convoy has."""

    _names = ("graph", "aot")


class Runtime(_Kind):
    """A kind of runtime: the C++ one."""

    _names = ("cpp",)


def __getattr__(name: str) -> Any:
    """Return a stand-in, which says so when it is used, for a part of TVM's own compiler."""
    if name in ("te_compiler", "graph_executor_codegen", "contrib", "_backend"):
        return Removed(f"relay.backend.{name}")
    raise AttributeError(f"relay.backend has no {name}")
