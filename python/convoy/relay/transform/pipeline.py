"""`relay.optimize`: the passes that TVM 0.18 ran in front of code generation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy.relay.ast import Function
from convoy.relay.binding import bind_params_by_name
from convoy.relay.module import IRModule, as_module
from convoy.relay.transform.base import Sequential
from convoy.relay.transform.canonicalize import CanonicalizeCast, CanonicalizeOps, FastMath
from convoy.relay.transform.combine_parallel import (
    CombineParallelBatchMatmul,
    CombineParallelConv2D,
    CombineParallelDense,
)
from convoy.relay.transform.common_subexpressions import EliminateCommonSubexpr
from convoy.relay.transform.fold_constant import FoldConstant
from convoy.relay.transform.infer_type import InferType
from convoy.relay.transform.simplify_inference import SimplifyInference


def optimize(
    mod: IRModule | Function, target: Any = None, params: Mapping[str, Any] | None = None
) -> tuple[IRModule, dict[str, Any]]:
    """Run the passes that the current PassContext allows.

    `relay.build` needs none of them; this is for scripts that look at the result.

    Args:
        mod: A module, or a function.
        target: Accepted; these passes suit all targets.
        params: Values by name, which become constants.

    Returns:
        The module, and the parameters that are left: none.
    """
    del target
    result = as_module(mod).shallow_copy()
    if params:
        result["main"] = bind_params_by_name(result["main"], params)
    passes = [
        InferType(),
        SimplifyInference(),
        EliminateCommonSubexpr(),
        CombineParallelConv2D(3),
        CombineParallelDense(3),
        CombineParallelBatchMatmul(3),
        FoldConstant(),
        CanonicalizeCast(),
        CanonicalizeOps(),
        FastMath(),
        FoldConstant(),
    ]
    return Sequential(passes, name="relay.optimize")(result), {}
