"""All parameter updates of a training step in as few kernels as possible, at its end."""

from __future__ import annotations

from typing import ClassVar

import tvm
from tvm import relax

from .expr import attr_fields, dtype_of, op_name, shape_of
from .ops.elementwise import SGD_UPDATE, sgd_step
from .rewriter import Rewriter, bindings_of, main_function, used_vars
from .schedule.updates import MOST, Parameter, update_kernel


class GroupUpdates(Rewriter):
    """For GPUs: updates with the same attributes and learning rate become calls of one kernel for
    up to 64 parameters."""

    ops: ClassVar[frozenset[str] | None] = frozenset({SGD_UPDATE})

    def __init__(self) -> None:
        super().__init__()
        self._groups: dict[relax.Var, list[tuple[relax.Var, relax.Call]]] = {}
        self._results: dict[relax.Var, relax.Tuple] = {}

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        _, func = main_function(mod)
        if not any(op_name(b.value) == SGD_UPDATE for b in bindings_of(func)):
            return mod
        return super().__call__(_updates_last(mod))

    def start(self, func: relax.Function) -> None:
        same: dict[tuple[object, ...], list[tuple[relax.Var, relax.Call]]] = {}
        for binding in bindings_of(func):
            if op_name(binding.value) == SGD_UPDATE:
                attrs = attr_fields(binding.value.attrs)
                key = (*sorted(attrs.items()), binding.value.args[3])
                same.setdefault(key, []).append((binding.var, binding.value))
        for members in same.values():
            for i in range(0, len(members), MOST):
                group = members[i : i + MOST]
                self._groups |= {var: group for var, _ in group}

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        if self.old.var not in self._results:
            self._emit_group(self._groups[self.old.var])
        return self._results[self.old.var]

    def _emit_group(self, group: list[tuple[relax.Var, relax.Call]]) -> None:
        columns: list[list[relax.Expr]] = [[], [], []]
        parameters, types = [], []
        for _, call in group:
            args = [self.rename(arg) for arg in call.args[:3]]
            for column, arg in zip(columns, args, strict=True):
                column.append(arg)
            parameters.append(Parameter(shape_of(args[0]), *(dtype_of(arg) for arg in args)))
            types.append([arg.ty for arg in args[:2]])
        attrs = attr_fields(group[0][1].attrs)
        kernel = update_kernel("sgd_update", parameters, lambda *v: sgd_step(*v, **attrs))
        callee = self.builder.add_func(kernel, "sgd_update")
        rate = self.rename(group[0][1].args[3])
        outputs = [pair[j] for j in range(2) for pair in types]
        flat = [arg for column in columns for arg in column]
        both = self.emit(relax.op.call_tir(callee, [*flat, rate], outputs))
        for i, (var, _) in enumerate(group):
            items = [self.emit(relax.TupleGetItem(both, j)) for j in (i, i + len(group))]
            self._results[var] = relax.Tuple(items)


def _updates_last(mod: tvm.IRModule) -> tvm.IRModule:
    """Updates and what is computed from them behind all else."""
    gv, func = main_function(mod)
    late: set[relax.Var] = set()
    early_bindings, late_bindings = [], []
    for binding in bindings_of(func):
        behind = any(var in late for var in used_vars(binding.value))
        if behind or op_name(binding.value) == SGD_UPDATE:
            late.add(binding.var)
            late_bindings.append(binding)
        else:
            early_bindings.append(binding)
    block = relax.DataflowBlock([*early_bindings, *late_bindings])
    body = relax.SeqExpr([block], func.body.body)
    new = relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs)
    functions = {g: f for g, f in mod.functions.items() if not g.same_as(gv)}
    return tvm.IRModule({**functions, tvm.ir.GlobalVar(gv.name_hint): new}, attrs=mod.attrs)
