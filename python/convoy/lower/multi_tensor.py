"""Group elementwise work on all parameters of a training step into few kernels.

These are the updates at its end, and the casts of float32 weights to 16 bit at its beginning.
"""

from __future__ import annotations

from typing import ClassVar

import tvm
from tvm import relax

from ..graph.expr import FLOAT_DTYPES, attr_fields, dtype_of, is_tensor, op_name, shape_of
from ..graph.rewriter import Rewriter, bindings_of, calls_of, main_function, used_vars
from ..graph.state import STATE
from ..ops.elementwise import SGD_UPDATE, sgd_step
from ..tir import multi_tensor
from ..tir.multi_tensor import Item


class GroupCasts(Rewriter):
    """Group casts of the weights in a function's state into one kernel, on GPUs.

    Casts of inputs are left, since they fuse with their readers.
    """

    ops: ClassVar[frozenset[str] | None] = frozenset({"relax.astype"})

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[relax.Call] = []
        self._results: dict[tuple[relax.Var, str], relax.Expr] = {}

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        _, func = main_function(mod)
        count = int((func.attrs or {}).get(STATE, 0))
        state = func.params[len(func.params) - count :]
        params = {p for p in state if is_tensor(p) and dtype_of(p) in FLOAT_DTYPES}
        casts: dict[tuple[relax.Var, str], relax.Call] = {}
        for binding in bindings_of(func):
            call = binding.value
            if op_name(call) != "relax.astype" or call.args[0] not in params:
                continue
            if dtype_of(binding.var) in FLOAT_DTYPES and shape_of(binding.var):
                casts.setdefault((call.args[0], dtype_of(binding.var)), call)
        self._calls = list(casts.values())
        return super().__call__(mod) if len(self._calls) > 1 else mod

    def start(self, func: relax.Function) -> None:
        items = [
            Item(shape_of(call), (dtype_of(call.args[0]),), (dtype_of(call),))
            for call in self._calls
        ]
        for part in multi_tensor.groups(items):
            kernel = multi_tensor.kernel("round_weights", [items[i] for i in part], lambda x: [x])
            callee = self.builder.add_func(kernel, "round_weights")
            calls = [self._calls[i] for i in part]
            types = [relax.TensorType(shape_of(call), dtype_of(call)) for call in calls]
            made = self.emit(relax.op.call_tir(callee, [call.args[0] for call in calls], types))
            for i, call in enumerate(calls):
                one = made if len(calls) == 1 else self.emit(relax.TupleGetItem(made, i))
                self._results[call.args[0], dtype_of(call)] = one

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        return self._results.get((old.args[0], dtype_of(old)))


class GroupUpdates(Rewriter):
    """Group updates with the same attributes and learning rate, on GPUs, into kernels for as many
    parameters as a launch can pass."""

    ops: ClassVar[frozenset[str]] = frozenset({SGD_UPDATE})

    def __init__(self) -> None:
        super().__init__()
        self._groups: dict[relax.Var, list[tuple[relax.Var, relax.Call]]] = {}
        self._results: dict[relax.Var, relax.Tuple] = {}

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        if not calls_of(mod, self.ops):
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
            for part in multi_tensor.groups([_item(call) for _, call in members]):
                group = [members[i] for i in part]
                self._groups |= {var: group for var, _ in group}

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        if self.old.var not in self._results:
            self._emit_group(self._groups[self.old.var])
        return self._results[self.old.var]

    def _emit_group(self, group: list[tuple[relax.Var, relax.Call]]) -> None:
        columns: list[list[relax.Expr]] = [[], [], []]
        items, types = [], []
        for _, call in group:
            args = [self.rename(arg) for arg in call.args[:3]]
            for column, arg in zip(columns, args, strict=True):
                column.append(arg)
            items.append(_item(call))
            types.append([arg.ty for arg in args[:2]])
        attrs = attr_fields(group[0][1].attrs)
        kernel = multi_tensor.kernel(
            "sgd_update", items, lambda *v: sgd_step(*v, **attrs), scalar=True
        )
        callee = self.builder.add_func(kernel, "sgd_update")
        rate = self.rename(group[0][1].args[3])
        outputs = [pair[j] for j in range(2) for pair in types]
        flat = [arg for column in columns for arg in column]
        both = self.emit(relax.op.call_tir(callee, [*flat, rate], outputs))
        for i, (var, _) in enumerate(group):
            items = [self.emit(relax.TupleGetItem(both, j)) for j in (i, i + len(group))]
            self._results[var] = relax.Tuple(items)


def _item(call: relax.Call) -> Item:
    """(weight, velocity, gradient) to (weight, velocity)."""
    dtypes = tuple(dtype_of(arg) for arg in call.args[:3])
    return Item(shape_of(call.args[0]), dtypes, dtypes[:2])


def _updates_last(mod: tvm.IRModule) -> tvm.IRModule:
    """Move updates, and their dependants, to the end."""
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
