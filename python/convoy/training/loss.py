"""Differentiate a loss: scaled where gradients would underflow, with random numbers of a state that
changes from step to step."""

from __future__ import annotations

import re
from collections.abc import Sequence

import tvm
from tvm import relax
from tvm.relax import op

from ..errors import UnsupportedOp
from ..graph.expr import attr_fields, ints, op_name
from ..graph.function import bindings_of, result_of
from ..ops.random import UNIFORM, uniform


def draws_numbers(func: relax.Function) -> bool:
    """Return whether a function draws random numbers."""
    return any(op_name(binding.value) == UNIFORM for binding in bindings_of(func))


def _differentiable(
    func: relax.Function, scale: relax.Expr | None, state: relax.Var | None
) -> relax.Function:
    """Return ``func`` with its first result times ``scale`` in front of all its results.

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


def adjoint(
    mod: tvm.IRModule,
    gv: tvm.ir.GlobalVar,
    wanted: Sequence[str],
    scale: relax.Expr | None = None,
    state: relax.Var | None = None,
) -> relax.Function:
    """Return the results of a loss function and its gradients as one private function.

    Args:
        gv: The function in ``mod``; its first result is the loss.
        wanted: Names of the parameters to differentiate by.
        scale: Factor of the loss, and so of the gradients.
        state: State of the random numbers. Variables among ``scale`` and ``state`` are the last
            parameters of the result.

    Returns:
        A function of ((scaled loss, *results), gradients).

    Raises:
        UnsupportedOp: An operator that cannot be differentiated.
    """
    func = _differentiable(mod[gv], scale, state)
    mod = tvm.IRModule({**mod.functions, gv: func}, attrs=mod.attrs)
    count = len(func.params) - sum(isinstance(var, relax.Var) for var in (scale, state))
    by_name = {param.name: param for param in func.params[:count]}
    grads = [by_name[name] for name in wanted]
    try:
        differentiated = relax.transform.Gradient(gv.name_hint, require_grads=grads)(mod)
    except (tvm.error.InternalError, RuntimeError) as err:
        # TVM names the operator without a rule in a failed check; rules that decline raise through
        # its passes, which leave the words only.
        found = re.search(r"FPrimalGradient has not been registered for (\S+)", str(err))
        if found is None and not str(err).startswith("got the gradient"):
            raise
        got = f"no gradient of {found[1]}" if found else str(err)
        raise UnsupportedOp(
            got,
            "operators that can be differentiated" if found else "",
            "tvm.relax.op.base.register_gradient adds a rule." if found else "",
        ) from err
    return differentiated[f"{gv.name_hint}_adjoint"].without_attr("global_symbol")
