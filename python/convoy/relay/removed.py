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

_TUNING = (
    "Convoy selects kernels by measured cost inside relay.build; `convoy tune` and "
    "convoy.place(...) measure more of them, and their records are reused"
)
_DEVICES = "Convoy compiles for the CPU of this machine and NVIDIA GPUs"

_SCHEDULES = (
    "Convoy computes operators by its own kernels and TVM's; relay.op.register and "
    "relay.op.register_compute make an operator of a script"
)
_EXPRESSIONS = (
    "te.create_prim_func([inputs and outputs]) makes a function of tensor expressions, "
    "tvm.s_tir.Schedule changes its loops and tvm.compile compiles it"
)
_LIBRARIES = (
    "Convoy computes with cuDNN, cuBLASLt, CUTLASS and its own kernels; relay.build chooses, "
    "and partition_for_cutlass and partition_for_cudnn restrict a module to one"
)
_COMPILERS = (
    "arm_compute_lib", "bnns", "clml", "cmsisnn", "coreml", "cublas", "dnnl", "ethosn", "ethosu",
    "libtorch", "mrvl", "tensorrt", "uma", "vitis_ai",
)  # fmt: skip

#: Modules by name, and what to use in their place.
REMOVED = {
    "autotvm": _TUNING,
    "auto_scheduler": _TUNING,
    "meta_schedule": _TUNING,
    "driver.tvmc": "The command `convoy` builds, measures and runs models",
    "micro": _DEVICES,
    "relay.op.strategy": _SCHEDULES,
    **{
        f"te.{name}": _EXPRESSIONS
        for name in (
            "AXIS_SEPARATOR", "SpecializedCondition", "create_schedule", "decl_tensor_intrin",
            "hybrid",
        )
    },
    "runtime.profiler_vm": "contrib.debugger.debug_executor times the kernels of relay.build",
    "relay.backend": "relay.build compiles through Relax; convoy.relay.to_relax shows the result",
    **{f"relay.op.contrib.{name}": _LIBRARIES for name in _COMPILERS},
    **{
        f"target.{name}": _DEVICES
        for name in ("arm_cpu", "bifrost", "hexagon", "intel_graphics", "mali", "rocm", "vta")
    },
    "contrib.hexagon": _DEVICES,
    "contrib.ethosu": _DEVICES,
    "contrib.tedd": "TE schedules are no longer part of TVM",
    **{
        f"contrib.relay_viz.{name}": "contrib.relay_viz.TermPlotter draws modules as text"
        for name in ("DotPlotter", "DotVizParser", "dot")
    },
    "relay.data_dep_optimization": (
        "Sparse weights are given by relay.nn.sparse_dense; FoldConstant computes transposed ones"
    ),
    "contrib.pipeline_executor": "Convoy runs independent operators on several CUDA streams",
    "contrib.pipeline_executor_build": "Convoy runs independent operators on several CUDA streams",
    "contrib.torch": "convoy.compile takes a PyTorch module",
    "contrib.target": "Networks are compiled by relay.build and relay.vm.compile alone",
    "contrib.msc": "Relay networks are compiled by relay.build",
}  # fmt: skip


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
    """Make the `__getattr__` of a module all of whose other names were removed."""

    def get(attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return _HARMLESS.get(f"{name}.{attribute}") or Removed(f"{name}.{attribute}")

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
    """Let Python find them."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
