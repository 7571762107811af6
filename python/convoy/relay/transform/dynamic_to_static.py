"""DynamicToStatic: sizes that are arguments become attributes, where they are known."""

from __future__ import annotations

from convoy.relay.ast import Call, Constant, Expr, Function
from convoy.relay.infer import infer_expr
from convoy.relay.module import IRModule
from convoy.relay.ops.dynamic import ARGUMENTS, static_call
from convoy.relay.transform.base import Pass, register_pass
from convoy.relay.transform.fold_constant import FoldConstantExpr
from convoy.relay.transform.rewriting import expr_pass, op_name, rewrite_calls, with_body

# Each round makes sizes known that the next one computes with.
_MAX_ROUNDS = 32


@register_pass
def DynamicToStatic() -> Pass:
    """Make sizes that are arguments attributes, where they are known."""

    def rewrite_function(function: Function, mod: IRModule) -> Expr:
        for _ in range(_MAX_ROUNDS):
            changed: list[str] = []

            def rule(pre: Call, call: Call, changed: list[str] = changed) -> Expr | None:
                _, positions = ARGUMENTS.get(op_name(call), (0, ()))
                if not positions or not all(isinstance(call.args[p], Constant) for p in positions):
                    return None
                changed.append(op_name(call))
                return static_call(call, call.args)

            folded = FoldConstantExpr(function, mod)
            body = rewrite_calls(folded.body, rule)  # type: ignore[attr-defined]
            if not changed:
                return folded
            function = with_body(folded, body)  # type: ignore[arg-type]
            infer_expr(function, mod)
        return function

    return expr_pass("DynamicToStatic", 2, rewrite_function, with_module=True)
