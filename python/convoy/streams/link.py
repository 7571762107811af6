"""Lowered module -> executable, with kernels that are compiled once for all schedules tried."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import tvm
from tvm import relax
from tvm.relax import vm_build

from ..ir.schedule import Schedule
from ..lower.compile import build_kernels, compiled
from ..lower.executable import lower_calls
from ..lower.passes import finish_passes
from ..tir import Rescheduled, rescheduled
from .emit import emit
from .machine import Machine
from .program import Program, read


class Lowered:
    """A module behind lowering to calls: its program, its kernels, and executables by schedule."""

    def __init__(
        self, calls: tvm.IRModule, target: tvm.target.Target, external: Sequence[Any] = ()
    ) -> None:
        """``calls`` is a module behind :func:`graph.lower.lower_calls`; ``external`` provide the
        functions in it that are no kernels."""
        self.target, self.external = target, list(external)
        self._mod = calls

    @classmethod
    def of(cls, mod: tvm.IRModule, target: str | tvm.target.Target) -> Lowered:
        """Lower a module with rewritten regions; its attached modules are the external ones."""
        target = tvm.target.Target(target) if isinstance(target, str) else target
        external = dict(mod.attrs or {}).get("external_mods", [])
        return cls(lower_calls(mod, target), target, external)

    def program(self, machine: Machine) -> Program:
        """Raises NotSchedulable (see :func:`program.read`)."""
        return read(self._mod, machine)

    @cached_property
    def kernels(self) -> Any:
        """The compiled kernels as a runtime module with a function for each, by name; None for a
        module without any."""
        named = relax.transform.AttachGlobalSymbol()(self._mod)
        functions = vm_build._filter_tir(named)
        if functions is None:
            return None
        library, built = compiled(functions, self.target, self._build)
        if built is not functions:
            for var, func in built.functions_items():
                self._mod[self._mod.get_global_var(var.name_hint)] = func
        return library

    def _build(self, functions: tvm.IRModule) -> Any:
        return build_kernels(functions, self.target)

    @property
    def rescheduled(self) -> list[Rescheduled]:
        """Kernels that could not be scheduled or compiled at first. What :meth:`program` says of
        one changes when :attr:`kernels` are compiled."""
        return rescheduled(self._mod)

    def link(
        self, program: Program, schedule: Schedule, external: Sequence[Any] | None = None
    ) -> relax.VMExecutable:
        """The executable of a schedule. ``external`` (default: those of the module) provide the
        functions that no kernel is compiled for."""
        on_gpu = self.target.kind.name == "cuda"
        with self.target:
            mod = emit(self._mod, program, schedule, cached=on_gpu)
            mod = tvm.transform.Sequential(finish_passes())(mod)
        builder = relax.ExecBuilder()
        vm_build._vmcodegen(builder, mod)
        libraries = [
            *([self.kernels] if self.kernels is not None else []),
            *(external or self.external),
        ]
        return vm_build._vmlink(builder, self.target, None, ext_libs=libraries)
