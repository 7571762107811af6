"""FoldConstant: compute what depends on constants alone."""

from __future__ import annotations

from typing import TypeGuard

import numpy as np

from convoy.relay import ast
from convoy.relay.ast import Call, Constant, Expr, Function
from convoy.relay.builder import numpy_dtype
from convoy.relay.infer import infer_expr
from convoy.relay.module import IRModule
from convoy.relay.transform.base import Pass, register_pass
from convoy.relay.transform.constant_values import constant_of, values_of
from convoy.relay.transform.rewriting import expr_pass, is_primitive, op_name
from convoy.relay.types import TensorType
from convoy.relay.visit import children, post_order, rebuild

# Folding these would put large constants in the place of small calls, or change what is random.
_KEPT = {
    "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "nn.dropout",
    "dyn.zeros", "dyn.ones", "dyn.full",
    "annotation.stop_fusion", "annotation.compiler_begin", "annotation.compiler_end",
    "annotation.checkpoint", "on_device", "device_copy",
}  # fmt: skip


@register_pass
def FoldConstant(fold_qnn: bool = False) -> Pass:
    """Compute the parts of a network that depend on constants alone.

    Args:
        fold_qnn: Also quantized operators.
    """
    return expr_pass("FoldConstant", 2, lambda function: _Folder(fold_qnn).fold(function))


def FoldConstantExpr(expr: Expr, mod: IRModule | None = None, fold_qnn: bool = False) -> Expr:
    """Compute the parts of an expression, of a module, that depend on constants alone."""
    return _Folder(fold_qnn).fold(infer_expr(expr, mod))


def can_fold(expr: Expr, fold_qnn: bool = False) -> TypeGuard[Call]:
    """Check for a call of an operator whose value may stand in its place if it is known."""
    name = op_name(expr)
    if not name or name in _KEPT or name.startswith(("memory.", "random.", "vm.")):
        return False
    if name.startswith(("qnn.", "relay.op.annotation")) and not fold_qnn:
        return False
    assert isinstance(expr, Call)
    return bool(expr.args)


class _Folder:
    """One walk over a function.

    Attributes:
        known: Ids of new expressions that depend on constants alone, with the expressions.
    """

    def __init__(self, fold_qnn: bool) -> None:
        self.fold_qnn = fold_qnn
        self.known: dict[int, Expr] = {}
        self.memo: dict[int, Expr] = {}

    def fold(self, expr: Expr) -> Expr:
        """Return the expression with its constant parts computed."""
        bound: dict[int, list[ast.Var]] = {}
        for node in post_order(expr):
            if isinstance(node, ast.Let) and not isinstance(node.value, Function):
                bound.setdefault(id(node.value), []).append(node.var)
        for node in post_order(expr, lambda n: not is_primitive(n)):
            new = self.memo[id(node)] = self._node(node)
            if id(new) in self.known:
                for var in bound.get(id(node), ()):  # its body is walked after it
                    self.memo[id(var)] = new
        return self._computed(self.memo[id(expr)])

    def _node(self, node: Expr) -> Expr:
        if is_primitive(node):
            return node
        if isinstance(node, ast.Var) and id(node) in self.memo:
            return self.memo[id(node)]
        if isinstance(node, ast.Let) and id(self.memo[id(node.value)]) in self.known:
            return self.memo[id(node.body)]
        new = rebuild(node, self.memo)
        if isinstance(new, ast.If) and id(new.cond) in self.known:
            return new.true_branch if self._value(new.cond).all() else new.false_branch
        if isinstance(new, ast.TupleGetItem) and isinstance(new.tuple_value, ast.Tuple):
            return new.tuple_value.fields[new.index]
        if isinstance(node, Call) and isinstance(new, Call):
            found = self._shape(node)
            if found is not None:
                new = found
        if self._is_known(new):
            self.known[id(new)] = new
        return new

    def _is_known(self, new: Expr) -> bool:
        if isinstance(new, Constant):
            return True
        if isinstance(new, (ast.Tuple, ast.TupleGetItem)):
            parts = children(new)
            return bool(parts) and all(id(p) in self.known for p in parts)
        if not can_fold(new, self.fold_qnn):
            return False
        return all(id(a) in self.known for a in new.args)

    def _shape(self, node: Call) -> Constant | None:
        """Return the value of a call that depends on the sizes of its argument alone."""
        name = op_name(node)
        if name not in ("shape_of", "vm.shape_of", "ndarray_size"):
            return None
        given, result = node.args[0].checked_type, node.checked_type
        assert isinstance(given, TensorType) and isinstance(result, TensorType)
        if not given.is_static:
            return None
        sizes = np.array(given.concrete_shape, "int64")
        value = sizes.prod() if name == "ndarray_size" else sizes
        return Constant(np.asarray(value).astype(numpy_dtype(result.dtype)))

    def _value(self, expr: Expr) -> np.ndarray:
        if isinstance(expr, Constant):
            return expr.value
        (value,) = values_of([expr])
        assert isinstance(value, np.ndarray)
        return value

    def _computed(self, root: Expr) -> Expr:
        """Compute the outermost constant parts, all at once, and put them in their places."""

        def is_target(node: Expr) -> bool:
            return id(node) in self.known and not isinstance(node, (Constant, ast.Tuple))

        nodes = list(post_order(root, lambda n: not is_target(n) and not is_primitive(n)))
        targets = [n for n in nodes if is_target(n)]
        if not targets:
            return root
        found = dict(zip(map(id, targets), map(constant_of, values_of(targets)), strict=True))
        memo: dict[int, Expr] = {}
        for node in nodes:
            if id(node) in found:
                memo[id(node)] = found[id(node)]
            else:
                memo[id(node)] = node if is_primitive(node) else rebuild(node, memo)
        return memo[id(root)]
