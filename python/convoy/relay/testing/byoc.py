"""Annotations for an external compiler of elementwise chains."""

from __future__ import annotations

from typing import Any

from convoy.relay.ast import Call, Expr
from convoy.relay.expr_functor import ExprMutator
from convoy.relay.ops.annotation import compiler_begin, compiler_end

_CHAIN = ("add", "subtract", "multiply")


class CcompilerAnnotator(ExprMutator):
    """Mark chains of an addition, a subtraction and a product for the compiler "ccompiler".

    A chain is the product of a difference of a sum, each of one such operand and any other.
    """

    compiler = "ccompiler"

    def visit_call(self, call: Expr) -> Expr:
        """Mark a chain that ends in this call."""
        chain = self._chain(call)
        if chain is None:
            found: Expr = self.visit_default(call)
            return found
        first, second, last = chain
        made = Call(first.op, [self._begun(a) for a in first.args], first.attrs)
        made = Call(second.op, [made, self._begun(second.args[1])], second.attrs)
        made = Call(last.op, [made, self._begun(last.args[1])], last.attrs)
        ended: Expr = compiler_end(made, self.compiler)
        return ended

    def _begun(self, arg: Expr) -> Any:
        return compiler_begin(self.visit(arg), self.compiler)

    @staticmethod
    def _chain(call: Expr) -> tuple[Call, ...] | None:
        """Return the calls of a chain, first one first."""
        found: list[Call] = []
        for name in reversed(_CHAIN):
            if not isinstance(call, Call) or getattr(call.op, "name", "") != name:
                return None
            found.append(call)
            call = call.args[0]
        return tuple(reversed(found))
