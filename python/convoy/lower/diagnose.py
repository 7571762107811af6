"""Find the operator of a network that cannot be lowered."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax

from ..errors import DynamicShape, UnsupportedOp
from ..graph.expr import dtype_of, is_tensor, op_name, relax_ops, shape_of
from ..graph.function import bindings_of, main_function
from ..tir.rules import why

#: What may be left when operators have become kernels: these and ``relax.builtin``, ``.memory``
#: and ``.vm`` are the virtual machine's.
_CALLS = relax_ops(
    """
    call_tir call_tir_inplace call_dps_packed call_pure_packed call_inplace_packed
    call_builtin_with_ctx reshape shape_of tensor_to_shape assert_op print null_value to_vdevice
    hint_on_device
    """
)
_FAMILIES = ("relax.builtin.", "relax.memory.", "relax.vm.", "relax.inspect.", "relax.ccl.")

_EXPECTED = "operators that TVM can lower to TIR"
_REMEDY = "Express it with other operators, or compute it outside of the network."


def unsupported_op(
    mod: tvm.IRModule, lower: Callable[[tvm.IRModule], tvm.IRModule], err: Exception
) -> UnsupportedOp:
    """Make the error for a module that ``lower`` fails on with ``err``.

    It names the first operator that fails when lowered alone.
    """
    _, func = main_function(mod)
    for binding in bindings_of(func):
        call = binding.value
        if not op_name(call):
            continue
        try:
            lower(_alone(call))
        except Exception as found:  # TVM's errors have no base class but this one
            return UnsupportedOp(f"{_describe(call)}: {why(found)}", _EXPECTED, _REMEDY)
    return UnsupportedOp(
        f"a network that TVM cannot lower, though each of its operators: {why(err)}", _EXPECTED
    )


class NotLowered(Exception):
    """An operator that is left after the passes that should have lowered it to a kernel."""


def check_lowered(mod: tvm.IRModule) -> None:
    """Raise NotLowered for an operator that has not become a kernel, or whose result has a shape
    that is only known at run time."""
    _, func = main_function(mod)
    for binding in bindings_of(func):
        name = op_name(binding.value)
        if name.startswith("relax.") and name not in _CALLS and not name.startswith(_FAMILIES):
            raise NotLowered("TVM has no legalization for it")
        if is_tensor(binding.var):
            try:
                shape_of(binding.var)
            except DynamicShape as err:
                raise NotLowered("the shape of its result is only known when it runs") from err


def _describe(call: relax.Call) -> str:
    """Name an operator and the types of its operands."""
    types = ", ".join(_type(arg) for arg in call.args)
    return f"{op_name(call).removeprefix('relax.')} of {types or 'nothing'}"


def _type(expr: relax.Expr) -> str:
    if isinstance(expr, relax.Tuple):
        return f"({', '.join(_type(field) for field in expr.fields)})"
    if is_tensor(expr):
        return f"{dtype_of(expr)}{shape_of(expr)}"
    return str(expr if isinstance(expr, relax.ShapeExpr) else expr.ty)


def _alone(call: relax.Call) -> tvm.IRModule:
    """Make a module of one call, with its operands as parameters."""
    params: dict[relax.Var, relax.Var] = {}

    def operand(expr: relax.Expr) -> relax.Expr:
        if isinstance(expr, relax.Tuple):
            return relax.Tuple([operand(field) for field in expr.fields])
        if isinstance(expr, relax.Var):
            return params.setdefault(expr, relax.Var(expr.name, expr.ty))
        return expr

    args = [operand(arg) for arg in call.args]
    builder = relax.BlockBuilder()
    with builder.function("main", list(params.values())):
        with builder.dataflow():
            result = builder.emit_output(relax.Call(call.op, args, call.attrs, call.ty_args))
        builder.emit_func_output(result)
    return builder.get()
