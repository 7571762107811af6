"""A module lowered to calls, with kernels that are compiled once for all schedules tried."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from functools import cached_property

import tvm
from tvm import relax
from tvm.relax import vm_build
from tvm_ffi import StructuralKey

from ..progress import running
from ..tir import Rescheduled, rescheduled
from .compile import build_kernels, compiled
from .executable import lower_calls
from .programmatic import pipeline


class Lowered:
    """A module behind lowering to calls, and its compiled kernels.

    Args:
        calls: A module behind :func:`executable.lower_calls`.
        external: Runtime modules with the functions that it calls and that no kernel is for.
    """

    def __init__(
        self,
        calls: tvm.IRModule,
        target: tvm.target.Target,
        external: Sequence[tvm.runtime.Module] = (),
    ) -> None:
        self.calls, self.target, self.external = calls, target, list(external)

    @classmethod
    def of(
        cls,
        mod: tvm.IRModule,
        target: str | tvm.target.Target,
        external: Sequence[tvm.runtime.Module] = (),
        suffix: str = "",
    ) -> Lowered:
        """Lower a module whose chosen subgraphs are calls of external functions; ``suffix`` is
        appended to the names of kernels."""
        target = tvm.target.Target(target) if isinstance(target, str) else target
        return cls(lower_calls(mod, target, suffix), target, external)

    @cached_property
    def kernels(self) -> tvm.runtime.Module | None:
        """The compiled kernels, a function for each by name; None for a module without any.

        A kernel that does not compile is replaced in :attr:`calls` by one with a simpler TIR
        schedule that does.
        """
        named = relax.transform.AttachGlobalSymbol()(self.calls)
        functions = vm_build._filter_tir(named)
        if functions is None:
            return None
        key = StructuralKey(functions), StructuralKey(self.target), pipeline(self.target)
        with running().stage("compile kernels"):
            library, repaired = _kernels(*key).compiled()
        if repaired is not None:
            for var, func in repaired.functions_items():
                self.calls[self.calls.get_global_var(var.name_hint)] = func
        return library

    @property
    def libraries(self) -> list[tvm.runtime.Module]:
        """The modules that the functions which are called come from."""
        return [*([self.kernels] if self.kernels is not None else []), *self.external]

    def functions(self, symbols: Sequence[str]) -> dict[str, Callable[..., object]]:
        """Return the functions that can be called on their own, by symbol."""
        found: dict[str, Callable[..., object]] = {}
        for symbol in dict.fromkeys(symbols):
            for module in self.libraries:
                if module.implements_function(symbol):
                    found[symbol] = module[symbol]
                    break
        return found

    @property
    def rescheduled(self) -> list[Rescheduled]:
        """Kernels that could not be scheduled or compiled at first; complete once :attr:`kernels`
        are compiled."""
        return rescheduled(self.calls)


class _Kernels:
    """Kernels that are compiled when they are first asked for."""

    def __init__(self, functions: tvm.IRModule, target: tvm.target.Target) -> None:
        self._functions, self._target = functions, target
        self._found: tuple[tvm.runtime.Module, tvm.IRModule | None] | None = None

    def compiled(self) -> tuple[tvm.runtime.Module, tvm.IRModule | None]:
        """The library, and the functions with simpler schedules if some did not compile."""
        if self._found is None:
            library, built = compiled(
                self._functions, self._target, lambda mod: build_kernels(mod, self._target)
            )
            self._found = library, None if built is self._functions else built
        return self._found


@functools.lru_cache(maxsize=2)
def _kernels(functions: StructuralKey, target: StructuralKey, _pipeline: str) -> _Kernels:
    """The same for programs with equal kernels, such as those for several streams and for one."""
    return _Kernels(functions.key, target.key)
