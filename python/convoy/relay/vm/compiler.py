"""`relay.vm.VMCompiler`: compiling step by step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy.errors import InvalidOption
from convoy.relay.module import IRModule, as_module
from convoy.relay.vm.compiling import compile
from convoy.relay.vm.executable import Executable


class VMCompiler:
    """`relay.vm.compile` in the steps of TVM 0.18: `lower`, `codegen`, `get_exec`."""

    def __init__(self) -> None:
        self._params: dict[str, Any] = {}
        self._lowered: tuple[IRModule, Any] | None = None
        self._executable: Executable | None = None

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Set values for parameters of `main` by name."""
        self._params = dict(params)

    def get_params(self) -> dict[str, Any]:
        """Return these values."""
        return dict(self._params)

    def lower(self, mod: Any, target: Any = None, target_host: Any = None) -> None:
        """Set the module and the target."""
        self._lowered = (as_module(mod), target)

    def optimize(
        self,
        mod: Any,
        target: Any = None,
        target_host: Any = None,
        params: Mapping[str, Any] | None = None,
    ) -> tuple[IRModule, dict[str, Any]]:
        """Return the module as it is, because passes run later, and the parameters."""
        if params:
            self.set_params(params)
        self.lower(mod, target)
        return as_module(mod), self.get_params()

    def codegen(self) -> None:
        """Compile.

        Raises:
            InvalidOption: There is no module yet.
        """
        if self._lowered is None:
            raise InvalidOption("codegen without a module", "lower(mod, target) first")
        mod, target = self._lowered
        self._executable = compile(mod, target=target, params=self._params)

    def get_exec(self) -> Executable:
        """Return what `codegen` compiled; compile if it did not run."""
        if self._executable is None:
            self.codegen()
        assert self._executable is not None
        return self._executable
