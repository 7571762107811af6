"""`relay.ir_pass`: what became `relay.analysis` and `relay.transform` in TVM 0.6."""

from __future__ import annotations

from convoy.relay.analysis import (
    all_type_vars,
    all_vars,
    bound_type_vars,
    check_kind,
    detect_feature,
    free_type_vars,
    well_formed,
)
from convoy.relay.equality import structural_equal as alpha_equal
from convoy.relay.gradient import gradient
from convoy.relay.hashing import structural_hash
from convoy.relay.infer import infer_expr as infer_type
from convoy.relay.transform.fold_constant import FoldConstantExpr as fold_constant
from convoy.relay.visit import bound_vars, free_vars, post_order_visit

__all__ = [
    "all_type_vars",
    "all_vars",
    "alpha_equal",
    "bound_type_vars",
    "bound_vars",
    "check_kind",
    "detect_feature",
    "fold_constant",
    "free_type_vars",
    "free_vars",
    "gradient",
    "infer_type",
    "post_order_visit",
    "structural_hash",
    "well_formed",
]
