"""`relay.create_executor`: run a module without naming the steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from convoy.errors import InvalidOption
from convoy.relay import vm
from convoy.relay.ast import Constant, Expr, Function, GlobalVar
from convoy.relay.build import device_target
from convoy.relay.lazy import tvm
from convoy.relay.module import IRModule, as_module
from convoy.relay.params import to_array
from convoy.relay.tvm_members import add_members
from convoy.relay.visit import bind

_KINDS = ("debug", "graph", "vm", "aot")


class Executor:
    """Evaluate expressions of a module on a device."""

    def __init__(
        self, kind: str, mod: IRModule, device: Any, target: Any, params: Mapping[str, Any] | None
    ) -> None:
        self.kind, self.mod, self.device, self.target = kind, mod, device, target
        self.params = params

    def evaluate(
        self, expr: Expr | None = None, binds: Mapping[Any, Any] | None = None
    ) -> Callable[..., Any] | Any:
        """Compile a Relay function to a Python one; evaluate an expression without parameters.

        Args:
            expr: A function, a GlobalVar of the module or an expression; None is `main`.
            binds: Expressions, arrays or numbers for free variables of `expr`.
        """
        if binds and expr is not None:
            expr = bind(expr, {var: _expr(value) for var, value in binds.items()})
        mod = self._module(expr)
        machine = vm.VirtualMachine(
            vm.compile(mod, target=self.target, params=self.params), self.device
        )
        if expr is None or isinstance(expr, (Function, GlobalVar)):
            return machine.run
        return machine.run()

    def _module(self, expr: Expr | None) -> IRModule:
        if expr is None:
            return self.mod
        if isinstance(expr, GlobalVar):
            mod = self.mod.shallow_copy()
            mod["main"] = self.mod[expr]
            return mod
        others = {g: f for g, f in self.mod.functions.items() if g.name_hint != "main"}
        return IRModule.from_expr(expr, others, self.mod.type_definitions)


def _expr(value: Any) -> Expr:
    """Return an expression, or the constant of an array or a number."""
    return value if isinstance(value, Expr) else Constant(to_array(value, "a value of binds"))


def create_executor(
    kind: str = "debug",
    mod: Any = None,
    device: Any = None,
    target: Any = "llvm",
    params: Mapping[str, Any] | None = None,
    *,
    ctx: Any = None,
) -> Executor:
    """Make an executor. All kinds run compiled code; they differ in name only.

    Args:
        kind: "debug", "graph", "vm" or "aot".
        mod: The module; None for an empty one.
        device: A TVM device; None is the first one of the target's kind.
        target: As `relay.build` takes it.
        params: Values by name, which are bound as constants.
        ctx: The name that `device` had before TVM 0.8.

    Raises:
        InvalidOption: Another kind.
    """
    device = device or ctx
    if kind not in _KINDS:
        raise InvalidOption(f"kind='{kind}'", ", ".join(_KINDS))
    add_members()  # scripts read results with asnumpy()
    if device is None:
        device = tvm.cuda(0) if device_target(target) == "cuda" else tvm.cpu(0)
    return Executor(kind, IRModule() if mod is None else as_module(mod), device, target, params)
