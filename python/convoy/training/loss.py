"""The function that is differentiated: a loss, scaled where gradients would underflow, with random
numbers of a state that changes from step to step."""

from __future__ import annotations

from tvm import relax
from tvm.relax import op

from ..graph.expr import attr_fields, ints, op_name
from ..graph.rewriter import bindings_of, result_of
from ..ops.random import UNIFORM, uniform


def draws_numbers(func: relax.Function) -> bool:
    return any(op_name(binding.value) == UNIFORM for binding in bindings_of(func))


def differentiable(
    func: relax.Function, scale: relax.Expr | None, state: relax.Var | None
) -> relax.Function:
    """``func`` with its first result times ``scale`` in front of all its results.

    Variables among ``scale`` and the ``state`` of random numbers become its last parameters.
    """
    func = relax.utils.copy_with_new_vars(func)
    own = {var: relax.Var(var.name, var.ty) for var in (scale, state) if isinstance(var, relax.Var)}
    result = result_of(func)
    results = list(result.fields) if isinstance(result, relax.Tuple) else [result]
    builder = relax.BlockBuilder()
    with builder.function("main", [*func.params, *own.values()]):
        with builder.dataflow():
            for binding in bindings_of(func):
                if state is not None and op_name(binding.value) == UNIFORM:
                    fields = attr_fields(binding.value.attrs)
                    drawn = uniform(own[state], ints(fields["shape"]), fields["number"])
                    binding = relax.VarBinding(binding.var, builder.normalize(drawn))
                builder.emit_normalized(binding)
            loss = results[0]
            if scale is not None:
                loss = op.multiply(loss, own.get(scale, scale))
            found = [builder.emit_output(e) for e in [loss, *results]]
        builder.emit_func_output(relax.Tuple(found))
    return builder.get()["main"]
