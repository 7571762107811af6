"""Element-wise kernels that compute a second result of their first one
(:mod:`convoy.tir.second_result`)."""

from __future__ import annotations

from typing import ClassVar

import tvm
from tvm import relax, s_tir, tirx
from tvm.relax import op

from ..graph.expr import is_tensor, op_name
from ..graph.function import bindings_of, used_vars
from ..graph.rewriter import Rewriter
from ..graph.slices import layout_call
from ..tir.second_result import second_result

_CALL, _SCHEDULED = "relax.call_tir", "tirx.is_scheduled"


class FuseSecondResults(Rewriter):
    """Join two kernels where the second one reads a value that others read, too."""

    infer_first: ClassVar[bool] = False
    ops: ClassVar[frozenset[str] | None] = frozenset({_CALL})

    def __init__(self) -> None:
        super().__init__()
        self._found: dict[tuple[tirx.PrimFunc, tirx.PrimFunc, int], tirx.PrimFunc | None] = {}
        self._pairs: dict[relax.Var, tuple[relax.Var, int, tirx.PrimFunc]] = {}
        self._second: dict[relax.Var, relax.Expr] = {}

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        self._mod = mod
        return super().__call__(mod)

    def start(self, func: relax.Function) -> None:
        bindings = bindings_of(func)
        order = {binding.var: i for i, binding in enumerate(bindings)}
        # A result that lies in another tensor has to be that of a call, not of a tuple.
        paired = {part for b in bindings for part in (layout_call(b.value) or ("", []))[1]}
        for var in order:
            if not self._is_kernel(var) or var in paired:
                continue
            args = list(self.values[var].args[1].fields)
            for place, arg in enumerate(args):
                if arg in paired or not self._is_kernel(arg) or self.uses[arg] < 2:
                    continue
                others = [v for i, x in enumerate(args) if i != place for v in used_vars(x)]
                if any(order.get(other, -1) >= order[arg] for other in others):
                    continue  # computed later, or read twice
                joined = self._joined(arg, var, place)
                if joined is not None:
                    self._pairs[arg] = var, place, joined
                    paired |= {arg, var}
                    break

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        if self.old.var in self._second:
            return self._second[self.old.var]
        if self.old.var not in self._pairs:
            return None
        var, place, joined = self._pairs[self.old.var]
        others = [self.rename(arg) for arg in self.values[var].args[1].fields]
        args = [*call.args[1].fields, *others[:place], *others[place + 1 :]]
        name = f"{call.args[0].name_hint}_{self.values[var].args[0].name_hint}"
        types = [self.old.var.ty, var.ty]
        both = self.emit(op.call_tir(self.builder.add_func(joined, name), args, types))
        first, self._second[var] = (self.emit(relax.TupleGetItem(both, i)) for i in range(2))
        return first

    def _is_kernel(self, var: relax.Expr) -> bool:
        """Return whether a value is the one result of a kernel without a schedule."""
        value = self.values.get(var) if isinstance(var, relax.Var) else None
        if value is None or op_name(value) != _CALL or not is_tensor(value):
            return False
        func = self._mod[value.args[0]]
        return isinstance(func, tirx.PrimFunc) and _SCHEDULED not in (func.attrs or {})

    def _joined(self, first: relax.Var, second: relax.Var, place: int) -> tirx.PrimFunc | None:
        one, other = (self._mod[self.values[var].args[0]] for var in (first, second))
        if relax.analysis.has_reshape_pattern(other):  # a view, which no kernel has to write
            return None
        if (one, other, place) not in self._found:
            try:
                self._found[one, other, place] = second_result(one, other, place)
            except s_tir.ScheduleError:
                self._found[one, other, place] = None
        found = self._found[one, other, place]
        return found and found.without_attr("global_symbol")
