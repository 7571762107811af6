"""Stand-ins for the parts of TVM 0.18 that neither TVM nor Convoy has today.

They can be imported, so that a script which only mentions them runs; using one raises
`RemovedFromTvm`, which says what takes its place.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

from convoy.errors import RemovedFromTvm
from convoy.relay.removed_names import REMOVED


def name_in_tvm(fullname: str) -> str:
    """Return the name that a module of Convoy had in TVM 0.18, without `tvm.`."""
    return fullname.removeprefix("convoy.").removeprefix("relay.tvm018.")


def remedy(name: str) -> str:
    """Return what to use in place of a removed name; empty if there is nothing to say."""
    parts = name.split(".")
    starts = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
    return next((REMOVED[start] for start in starts if start in REMOVED), "")


class Removed:
    """A removed class or function: can be passed around, not used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def _refuse(self) -> NoReturn:
        raise RemovedFromTvm(
            f"tvm.{self._name} is no longer part of TVM", remedy=remedy(self._name)
        )

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        self._refuse()

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        """Let a class be derived; making one of it is a use."""
        return (type("Removed", (), {"__init__": lambda *args, **kwargs: self._refuse()}),)

    def __instancecheck__(self, instance: object) -> bool:
        return False

    def __enter__(self) -> NoReturn:
        self._refuse()

    def __exit__(self, *exc: object) -> None: ...

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _HARMLESS.get(f"{self._name}.{name}") or Removed(f"{self._name}.{name}")

    def __repr__(self) -> str:
        return f"<tvm.{self._name}, removed from TVM>"


class _Compiler(Removed):
    """TVM's compiler of functions, of which only the cache can be used: there is none to clear."""

    def clear(self) -> None: ...


#: Names that scripts use around relay.build, which needs none of them.
_HARMLESS: dict[str, Any] = {
    "relay.backend.te_compiler.get": lambda: _Compiler("relay.backend.te_compiler.get()"),
    "relay.backend.compile_engine.get": lambda: _Compiler("relay.backend.compile_engine.get()"),
}


def removed_module(fullname: str) -> ModuleType:
    """Make the stand-in of a removed module.

    Args:
        fullname: Its name in Convoy, `convoy.relay.tvm018.autotvm` or `convoy.relay.op.strategy`.
    """
    name = name_in_tvm(fullname)
    module = ModuleType(fullname, f"tvm.{name}, which TVM no longer has. {remedy(name)}")
    module.__path__ = []  # it may have submodules

    module.__getattr__ = removed_names(name)  # type: ignore[method-assign]
    return module


def removed_names(name: str) -> Callable[[str], Any]:
    """Make the `__getattr__` of a module: a stand-in for each name that was removed."""

    def get(attribute: str) -> Any:
        full = f"{name}.{attribute}"
        if attribute.startswith("__") or not remedy(full):
            raise AttributeError(f"module 'tvm.{name}' has no attribute '{attribute}'")
        return _HARMLESS.get(full) or Removed(full)

    return get


class RemovedLoader(Loader):
    """Loads the stand-in of a removed module."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return removed_module(spec.name)

    def exec_module(self, module: ModuleType) -> None: ...


class _Finder(MetaPathFinder):
    """Finds removed modules of `relay` that nothing else finds."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.startswith("convoy.relay.") and remedy(name_in_tvm(fullname)):
            return ModuleSpec(fullname, RemovedLoader(), is_package=True)
        return None


def install() -> None:
    """Let Python find them, also as attributes of the modules of `relay` that are imported.

    Other folders of Convoy keep their own names: `convoy.lower` is not `tvm.lower`.
    """
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
    names = (name for start in REMOVED for name in (start, start.rpartition(".")[0]))
    for name in names:
        module = sys.modules.get(f"convoy.{name}") if name.split(".")[0] == "relay" else None
        if module is not None and "__getattr__" not in vars(module):
            module.__getattr__ = removed_names(name)  # type: ignore[method-assign]
