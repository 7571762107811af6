"""Scopes of a conversion: the Relax values of Relay nodes, by lexical scope."""

from __future__ import annotations

from typing import Any

from convoy.relay.ast import Expr, Function, GlobalVar
from convoy.relay.lazy import ir, relax
from convoy.relay.ops.relax_call import RelaxExpr


class Scope:
    """Relax values of Relay nodes; a nested scope sees those of the enclosing ones.

    Attributes:
        builder: The `relax.BlockBuilder` that bindings are emitted to.
        outer: The enclosing scope, None for that of the module's function.
        values: The Relax value of each converted node.
        inlining: The functions that are being inlined here.
    """

    def __init__(self, builder: Any, outer: Scope | None) -> None:
        self.builder, self.outer = builder, outer
        self.values: dict[Expr, Any] = {}
        self.inlining: frozenset[Function] = frozenset()

    def find(self, node: Expr) -> Any:
        """Return the value of a node, None before it is converted."""
        if node in self.values:
            return self.values[node]
        return None if self.outer is None else self.outer.find(node)

    def need(self, node: Expr) -> Any:
        """Return the value of a converted node."""
        found = self.find(node)
        assert found is not None, "converted before"
        return found

    def bind(self, value: RelaxExpr) -> RelaxExpr:
        """Bind a computed value to a variable; variables and constants stay as they are."""
        if isinstance(value, (relax.Var, ir.GenericConst)):
            return value
        if isinstance(value, relax.Tuple):
            return relax.Tuple([self.bind(f) for f in value.fields])
        return self.builder.emit(value)


class Closure:
    """A function as a value, with the scope it is defined in; only calls of it are converted.

    Attributes:
        node: The function.
        scope: The scope it closes over, None for a function of the module.
    """

    def __init__(self, node: Function | GlobalVar, scope: Scope | None) -> None:
        self.node, self.scope = node, scope


class BranchScope(Scope):
    """The scope of a branch that becomes a function: captured values become its parameters.

    Attributes:
        captured: Relax values of the enclosing scope, the arguments of the function.
        params: Its parameters, in the same order.
    """

    def __init__(self, enclosing: Scope) -> None:
        super().__init__(enclosing.builder, None)
        self.enclosing = enclosing
        self.inlining = enclosing.inlining
        self.captured: list[RelaxExpr] = []
        self.params: list[RelaxExpr] = []

    def find(self, node: Expr) -> Any:
        if node not in self.values:
            value = self.enclosing.find(node)
            if value is None:
                return None
            self.values[node] = self.capture(value)
        return self.values[node]

    def capture(self, value: Any) -> Any:
        """Return a value of the enclosing scope as the branch sees it."""
        if isinstance(value, relax.Tuple):
            return relax.Tuple([self.capture(f) for f in value.fields])
        if isinstance(value, Closure) and value.scope is not None:
            return Closure(value.node, _CapturedScope(self, value.scope))
        if not isinstance(value, relax.Var):
            return value  # a constant or a function of the module
        param = relax.Var(f"p{len(self.params)}", value.ty)
        self.captured.append(value)
        self.params.append(param)
        return param


class _CapturedScope(Scope):
    """The scope that a function closes over, as a branch sees it in which it is called."""

    def __init__(self, branch: BranchScope, closed_over: Scope) -> None:
        super().__init__(branch.builder, None)
        self.branch, self.closed_over = branch, closed_over

    def find(self, node: Expr) -> Any:
        if node not in self.values:
            value = self.closed_over.find(node)
            if value is None:
                return None
            self.values[node] = self.branch.capture(value)
        return self.values[node]
