"""Constant folding in numpy.

TVM's FoldConstant compiles and runs one kernel a constant, about 0.1 s each, which is most of the
time to import a ResNet. The handful of operators that stand between a model's weights and its
convolutions is cheap in numpy; whatever is not listed here is left to FoldConstant.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax

from .expr import (
    as_numpy,
    dtype_of,
    ints,
    is_const,
    make_const,
    numpy_dtype,
    op_name,
    permutation_of,
    shape_of,
)


def _reduced_precision(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """numpy has no bfloat16 arithmetic of its own: compute 16-bit types in float32."""

    def run(*args: np.ndarray) -> np.ndarray:
        if args[0].dtype.itemsize == 2 and args[0].dtype.kind in "fV":
            return function(*(a.astype(np.float32) for a in args)).astype(args[0].dtype)
        return function(*args)

    return run


_ELEMENTWISE: dict[str, Callable[..., np.ndarray]] = {
    "relax.add": np.add,
    "relax.subtract": np.subtract,
    "relax.multiply": np.multiply,
    "relax.divide": np.divide,
    "relax.maximum": np.maximum,
    "relax.minimum": np.minimum,
    "relax.negative": np.negative,
    "relax.sqrt": np.sqrt,
    "relax.rsqrt": lambda x: (1.0 / np.sqrt(x)).astype(x.dtype),
    "relax.exp": np.exp,
    "relax.isnan": np.isnan,
    "relax.where": np.where,
    "relax.nn.relu": lambda x: np.maximum(x, x.dtype.type(0)),
}


def fold_call(call: relax.Call, limit_bytes: int = 1 << 30) -> relax.Expr | None:
    """The constant that ``call`` evaluates to, or None where it is not one of the known operators
    on constants. ``call`` must carry its type (be normalised)."""
    name = op_name(call)
    if not name or not isinstance(call.ty, relax.TensorType):
        return None
    if not call.args or not is_const(call.args[0]):
        return None
    if int(np.prod(shape_of(call))) * 8 > limit_bytes:
        return None
    tensors = [a for a in call.args if isinstance(a.ty, relax.TensorType)]
    if not all(is_const(a) for a in tensors):
        return None
    if name in _ELEMENTWISE:
        if len(tensors) != len(call.args):
            return None
        if name == "relax.divide" and np.dtype(numpy_dtype(dtype_of(call))).kind in "iu":
            return None  # integer division rounds differently
        value = _reduced_precision(_ELEMENTWISE[name])(*(as_numpy(a) for a in tensors))
    else:
        moved = _fold_shape_op(name, call)
        if moved is None:
            return None
        value = moved
    return make_const(np.asarray(value).astype(numpy_dtype(dtype_of(call)), copy=False))


def _fold_shape_op(name: str, call: relax.Call) -> np.ndarray | None:
    value = as_numpy(call.args[0])
    if name == "relax.permute_dims":
        return value.transpose(permutation_of(call))
    if name in ("relax.reshape", "relax.expand_dims", "relax.squeeze", "relax.flatten"):
        return value.reshape(shape_of(call))
    if name == "relax.broadcast_to":
        return np.broadcast_to(value, shape_of(call))
    if name == "relax.astype":
        return value.astype(numpy_dtype(dtype_of(call)))
    if name == "relax.flip":
        return np.flip(value, ints(call.attrs.axis))
    return None
