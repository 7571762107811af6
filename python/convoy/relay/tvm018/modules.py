"""Modules of `tvm` under the names that TVM 0.18 gave them.

`import convoy.relay.tvm018.X` finds a file of this package, else Convoy's or TVM's module behind
`X`, else a stand-in for what later versions removed, which says so when it is used.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from convoy.relay import former_paths
from convoy.relay.removed import RemovedLoader, remedy, removed_names
from convoy.relay.removed_names import REMOVED

PACKAGE = __package__ or "convoy.relay.tvm018"
_FOLDER = Path(__file__).parent

#: Modules by the beginning of their name in TVM 0.18; the longest match counts.
MOVED = {
    "": "tvm",
    "relay": "convoy.relay",
    "tir": "tvm.tirx",
    "arith": "tvm.sym",
    "parser": "convoy.relay.api",
    "expr": "tvm.tirx",
    "ndarray": f"{PACKAGE}.nd",
    "runtime.ndarray": f"{PACKAGE}.nd",
    "ir.container": "tvm_ffi.container",
    "ir.transform": f"{PACKAGE}.transform",
    **{
        f"ir.{name}": f"{PACKAGE}.ir"
        for name in (
            "adt", "affine_type", "attrs", "base", "expr", "function", "op", "tensor_type", "type",
            "type_relation",
        )
    },
    "runtime.vm": "convoy.relay.vm",
    "runtime.relax_vm": "tvm.runtime.vm",
    "instrument": f"{PACKAGE}.ir.instrument",
    "meta_schedule": "tvm.s_tir.meta_schedule",
    "contrib.graph_executor": "convoy.graph_executor",
    "contrib.graph_runtime": "convoy.graph_executor",
    "contrib.debugger.debug_runtime": f"{PACKAGE}.contrib.debugger.debug_executor",
    "contrib.rpc": f"{PACKAGE}.rpc",
    "contrib.util": "tvm.support.utils",
    "driver.tvmc.autotuner": f"{PACKAGE}.driver.tvmc.tuner",
    "driver.tvmc.frontends": f"{PACKAGE}.driver.tvmc.model",
    "target.target": f"{PACKAGE}.target",
    "topi.util": "tvm.topi.utils",
    "contrib.cutlass": "convoy.relay.op.contrib.cutlass",
    **{
        f"contrib.{name}": f"tvm.support.{name}"
        for name in (
            "utils", "cc", "clang", "emcc", "ndk", "nvcc", "popen_pool", "rocm", "tar", "xcode",
        )
    },
}  # fmt: skip


def behind(name: str) -> str:
    """Return the module that stands behind a module of TVM 0.18.

    Args:
        name: Its name without `tvm.`, such as "contrib.utils".
    """
    parts = name.split(".")
    for end in range(len(parts), -1, -1):
        start = ".".join(parts[:end])
        if start in MOVED:
            return ".".join([MOVED[start], *parts[end:]])
    raise AssertionError("'' is among the names")


def forward(name: str, former: str = "") -> Callable[[str], Any]:
    """Make the `__getattr__` of a module whose other names are those of module `name`.

    Its submodules are those of MOVED, before those of `name`; REMOVED has what it lost.

    Args:
        name: A module of the installed TVM.
        former: Its name in TVM 0.18 without `tvm.`, if that was another.
    """
    former = former or name.removeprefix("tvm.")
    lost = removed_names(former)

    def get(attribute: str) -> Any:
        if attribute.startswith("__"):  # `__path__` of another package would be imported from
            raise AttributeError(attribute)
        full = f"{former}.{attribute}"
        if full in MOVED:
            return importlib.import_module(MOVED[full])
        if full in REMOVED:
            return lost(attribute)
        try:
            return getattr(importlib.import_module(name), attribute)
        except AttributeError:
            return lost(attribute)

    return get


class _Alias(Loader):
    """Loads a module by putting another one in its place."""

    def __init__(self, find: Callable[[], ModuleType]) -> None:
        self._find = find

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = self._find()


class _Finder(MetaPathFinder):
    """Finds the modules below `tvm018` that have no file there."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(PACKAGE + "."):
            return None
        name = fullname.removeprefix(PACKAGE + ".")
        own = _FOLDER.joinpath(*name.split("."))
        if own.with_suffix(".py").is_file() or own.is_dir():
            return None
        real = behind(name)
        present = _exists(real)
        # Of what was removed, some parts are in another place.
        if remedy(name) and not (present and real != f"tvm.{name}"):
            return ModuleSpec(fullname, RemovedLoader(), is_package=True)
        if not present:
            return None
        return ModuleSpec(fullname, _Alias(lambda: importlib.import_module(real)), is_package=True)


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent is not there either
        return False


def install() -> None:
    """Let Python find these modules."""
    former_paths.install(PACKAGE)
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
