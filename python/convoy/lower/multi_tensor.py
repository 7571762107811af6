"""Group elementwise work on all parameters of a training step into few kernels.

These are the updates at its end, the norm of all gradients, and the casts of float32 weights to 16
bit at its beginning.
"""

from __future__ import annotations

from typing import ClassVar

import tvm
from tvm import relax

from ..graph.expr import attr_fields, dtype_of, is_tensor, op_name, shape_of
from ..graph.function import bindings_of, calls_of, main_function, used_vars, with_bindings
from ..graph.rewriter import Rewriter
from ..graph.state import STATE
from ..ir.dtypes import FLOAT_DTYPES
from ..ops.optimizer import SQUARED_NORM, UPDATE, element
from ..tir import multi_tensor, multi_tensor_norm
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
            kernel = multi_tensor.kernel(
                "round_weights", [items[i] for i in part], lambda _, values, __: values
            )
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
    """Group updates of parameters, on GPUs, into kernels for as many as a launch can pass."""

    ops: ClassVar[frozenset[str]] = frozenset({UPDATE})

    def __init__(self) -> None:
        super().__init__()
        self._groups: dict[relax.Var, list[tuple[relax.Var, relax.Call]]] = {}
        self._results: dict[relax.Var, relax.Tuple] = {}

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        if not calls_of(mod, self.ops):
            return mod
        return super().__call__(_updates_last(mod))

    def start(self, func: relax.Function) -> None:
        same: dict[relax.Var, list[tuple[relax.Var, relax.Call]]] = {}
        for binding in bindings_of(func):
            if op_name(binding.value) == UPDATE:
                members = same.setdefault(binding.value.args[-1], [])  # by their scalars
                members.append((binding.var, binding.value))
        for members in same.values():
            for part in multi_tensor.groups([_item(call) for _, call in members]):
                group = [members[i] for i in part]
                self._groups |= {var: group for var, _ in group}

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        if self.old.var not in self._results:
            self._emit_group(self._groups[self.old.var])
        return self._results[self.old.var]

    def _emit_group(self, group: list[tuple[relax.Var, relax.Call]]) -> None:
        calls = [call for _, call in group]
        attributes = [attr_fields(call.attrs) for call in calls]
        scalars = self.rename(calls[0].args[-1])
        kernel = multi_tensor.kernel(
            "optimizer_update", [_item(call) for call in calls],
            lambda i, values, shared: element(values, shared, attributes[i]),
            shape_of(scalars)[0],
        )  # fmt: skip
        callee = self.builder.add_func(kernel, "optimizer_update")
        read = _columns([call.args[:-1] for call in calls])
        written = _columns([[call.args[0], *call.args[2:-1]] for call in calls])
        args = [self.rename(arg) for _, arg in read]
        types = [self.rename(arg).ty for _, arg in written]
        made = self.emit(relax.op.call_tir(callee, [*args, scalars], types))
        results: list[list[relax.Expr]] = [[] for _ in calls]
        for k, (i, _) in enumerate(written):
            one = made if len(written) == 1 else self.emit(relax.TupleGetItem(made, k))
            results[i].append(one)
        for (var, _), result in zip(group, results, strict=True):
            self._results[var] = relax.Tuple(result)


class GroupSquares(Rewriter):
    """Sum the squares of many tensors, on GPUs, in kernels for as many as a launch can pass."""

    ops: ClassVar[frozenset[str]] = frozenset({SQUARED_NORM})

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        items = [Item(shape_of(x), (dtype_of(x),), ()) for x in call.args]
        sums = []
        for part in multi_tensor.groups(items):
            kernel = multi_tensor_norm.kernel("squares", [items[i] for i in part])
            callee = self.builder.add_func(kernel, "squares")
            count = sum(multi_tensor_norm.blocks(items[i]) for i in part)
            partial = relax.TensorType((count,), "float32")
            args = [call.args[i] for i in part]
            sums.append(self.emit(relax.op.call_tir(callee, args, partial)))
        return relax.op.sum(sums[0] if len(sums) == 1 else self.emit(relax.op.concat(sums, 0)))


def _columns(rows: list[list[relax.Expr]]) -> list[tuple[int, relax.Expr]]:
    """(row, entry) of all first entries, then of all second ones where there are some, and on."""
    longest = max(map(len, rows))
    return [(i, row[k]) for k in range(longest) for i, row in enumerate(rows) if k < len(row)]


def _item(call: relax.Call) -> Item:
    """(weight, gradient, slots...) to (weight, slots...), by the rule of the attributes."""
    dtypes = tuple(dtype_of(arg) for arg in call.args[:-1])
    rule = repr(sorted(attr_fields(call.attrs).items()))
    return Item(shape_of(call.args[0]), dtypes, (dtypes[0], *dtypes[2:]), rule)


def _updates_last(mod: tvm.IRModule) -> tvm.IRModule:
    """Move updates, and their dependants, to the end."""
    _, func = main_function(mod)
    late: set[relax.Var] = set()
    bindings = bindings_of(func)
    for binding in bindings:
        behind = any(var in late for var in used_vars(binding.value))
        if behind or op_name(binding.value) == UPDATE:
            late.add(binding.var)
    return with_bindings(mod, sorted(bindings, key=lambda binding: binding.var in late))
