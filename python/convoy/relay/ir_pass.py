"""`relay.ir_pass`: what became `relay.analysis` and `relay.transform` in TVM 0.6."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from convoy.relay import transform
from convoy.relay.analysis import (
    all_type_vars,
    all_vars,
    alpha_equal,
    bound_type_vars,
    bound_vars,
    check_kind,
    detect_feature,
    free_type_vars,
    free_vars,
    graph_equal,
    post_order_visit,
    structural_hash,
    well_formed,
)
from convoy.relay.ast import Expr
from convoy.relay.gradient import gradient
from convoy.relay.infer import infer_expr as infer_type
from convoy.relay.testing.checks import run_opt_pass
from convoy.relay.transform.fold_constant import FoldConstantExpr as fold_constant

__all__ = [
    "all_type_vars",
    "all_vars",
    "alpha_equal",
    "alter_op_layout",
    "backward_fold_scale_axis",
    "bound_type_vars",
    "bound_vars",
    "canonicalize_ops",
    "check_kind",
    "combine_parallel_conv2d",
    "dead_code_elimination",
    "detect_feature",
    "fold_constant",
    "forward_fold_scale_axis",
    "free_type_vars",
    "free_vars",
    "fuse_ops",
    "gradient",
    "graph_equal",
    "infer_type",
    "post_order_visit",
    "simplify_inference",
    "structural_hash",
    "to_anf",
    "well_formed",
]


def _of_expressions(make: Callable[[], transform.Pass]) -> Callable[..., Expr]:
    """Make the function of an expression, and perhaps a module, that a pass was."""

    def run(expr: Expr, mod: Any = None) -> Expr:
        del mod
        return run_opt_pass(expr, make())

    return run


alter_op_layout = _of_expressions(transform.AlterOpLayout)
backward_fold_scale_axis = _of_expressions(transform.BackwardFoldScaleAxis)
canonicalize_ops = _of_expressions(transform.CanonicalizeOps)
combine_parallel_conv2d = _of_expressions(transform.CombineParallelConv2D)
dead_code_elimination = _of_expressions(transform.DeadCodeElimination)
forward_fold_scale_axis = _of_expressions(transform.ForwardFoldScaleAxis)
simplify_inference = _of_expressions(transform.SimplifyInference)
to_anf = _of_expressions(transform.ToANormalForm)


def fuse_ops(expr: Expr, opt_level: int = 1) -> Expr:
    """Put operators that are computed together into functions."""
    return run_opt_pass(expr, transform.FuseOps(opt_level))
