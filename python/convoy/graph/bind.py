"""Bind parameters as constants, and reject modules that cannot be compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import tvm
from tvm import relax

from ..errors import DynamicShape, InvalidOption, UnsupportedOp
from ..ir.dtypes import numpy_dtype
from ..ir.sizes import check_elements
from .expr import dtype_of, is_tensor, op_name, shape_of
from .function import bindings_of, main_function

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

#: Values by parameter name, or a list for each function, as torch importers keep them.
Params = Mapping[str, "ArrayLike | tvm.runtime.Tensor | Sequence[tvm.runtime.Tensor]"]


def bind_params(mod: tvm.IRModule, params: Params | None) -> tvm.IRModule:
    """Bind parameters of the entry function by name.

    ``params`` maps names to numpy arrays or tvm tensors (torch importers keep a list a function:
    ``{"main": [...]}`` binds the last parameters in order). Values are cast to the parameter's
    dtype. Raises InvalidOption for a wrong name or shape, and for
    values without names.
    """
    if not params:
        return mod
    if not isinstance(params, Mapping):
        raise InvalidOption(f"params of type {type(params).__name__}", "values by name")
    gv, func = main_function(mod)
    values = params.get(gv.name_hint)
    if len(params) == 1 and isinstance(values, (list, tuple)):
        names = [p.name for p in func.params[len(func.params) - len(values) :]]
        params = dict(zip(names, values, strict=True))
    known = {p.name: p for p in func.params}
    bound = {}
    for name, value in params.items():
        if name not in known:
            raise InvalidOption(
                f"a value for parameter {name!r}",
                f"one of the function's parameters ({', '.join(known)})",
            )
        array = value.numpy() if hasattr(value, "numpy") else np.asarray(value)
        want = shape_of(known[name])
        if tuple(array.shape) != want:
            raise InvalidOption(f"{name} of shape {tuple(array.shape)}", f"shape {want}")
        bound[name] = tvm.runtime.tensor(
            np.ascontiguousarray(array.astype(numpy_dtype(dtype_of(known[name])), copy=False))
        )
    # BindParams keys on variables as well as names; by variable it is indifferent to renaming.
    by_var = {known[name]: tensor for name, tensor in bound.items()}
    return relax.transform.BindParams(gv.name_hint, by_var)(mod)


def check_static(mod: tvm.IRModule) -> None:
    """Raise DynamicShape for a symbolic dimension of an input, UnsupportedOp for control flow and
    for an operator whose result has no static shape, InvalidOption for a tensor of too many
    elements."""
    _, func = main_function(mod)

    def check(expr: relax.Var) -> None:
        if is_tensor(expr):
            check_elements(expr.name, shape_of(expr))

    for param in func.params:
        check(param)
    for binding in bindings_of(func):
        try:
            check(binding.var)
        except DynamicShape as err:
            # All that came before has static shapes: so it is this operator that is dynamic.
            if not (name := op_name(binding.value)):
                raise
            raise UnsupportedOp(
                f"{name.removeprefix('relax.')}, whose result ({binding.var.ty}) is as large as "
                "its data has it",
                "results of known sizes",
            ) from err


def straight_line(mod: tvm.IRModule) -> tvm.IRModule:
    """Bind every nested expression of the entry function to its own variable."""
    main_function(mod)  # there is one
    mod = relax.transform.InlinePrivateFunctions()(mod) if len(mod.functions) > 1 else mod
    mod = relax.transform.Normalize()(mod)
    return relax.transform.CanonicalizeBindings()(mod)
