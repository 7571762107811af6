"""A root with the epilogue behind it, as far as it is taken."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from tvm import relax

from ...graph.expr import dtype_of, is_const, make_const, rank_of, shape_of
from ...ir.epilogue import Epilogue
from ...normalize.affine import channel_values


@dataclass
class Chain:
    """A root and the epilogue taken so far."""

    covered: list[relax.Var]
    end: relax.Var
    epilogue: Epilogue = field(default_factory=Epilogue)
    residual: relax.Expr | None = None
    bias: relax.Expr | None = None
    affine: tuple[relax.Var, relax.Expr, relax.Expr] | None = None


def per_channel(expr: relax.Expr, y: relax.Var) -> relax.Expr | None:
    """``expr`` as a (k,) operand of y's dtype when it broadcasts along y's last axis only."""
    k = shape_of(y)[-1]
    if is_const(expr):
        values = channel_values(expr, y)
        if values is None:
            return None
        return make_const(np.broadcast_to(values, (k,)), dtype_of(y))
    shape = shape_of(expr)
    if dtype_of(expr) != dtype_of(y) or not shape or shape == shape_of(y):
        return None
    if shape[-1] != k or any(d != 1 for d in shape[:-1]) or len(shape) > rank_of(y):
        return None
    return expr if shape == (k,) else relax.op.reshape(expr, (k,))
