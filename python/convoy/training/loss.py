"""The function that is differentiated: a loss, scaled where gradients would underflow."""

from __future__ import annotations

from tvm import relax
from tvm.relax import op

from ..graph.rewriter import bindings_of, result_of


def with_scaled_loss(func: relax.Function, scale: relax.Expr | None) -> relax.Function:
    """``func`` with its first result times ``scale`` in front of all its results; a scale that is a
    variable becomes its last parameter."""
    func = relax.utils.copy_with_new_vars(func)
    given = [relax.Var(scale.name, scale.ty)] if isinstance(scale, relax.Var) else []
    factor = given[0] if given else scale
    result = result_of(func)
    results = list(result.fields) if isinstance(result, relax.Tuple) else [result]
    builder = relax.BlockBuilder()
    with builder.function("main", [*func.params, *given]):
        with builder.dataflow():
            for binding in bindings_of(func):
                builder.emit_normalized(binding)
            loss = results[0] if factor is None else op.multiply(results[0], factor)
            found = [builder.emit_output(e) for e in [loss, *results]]
        builder.emit_func_output(relax.Tuple(found))
    return builder.get()["main"]
