"""Constant folding in numpy.

TVM's FoldConstant compiles and runs one kernel a constant, about 0.1 s each, which is most of the
time to import a ResNet. The handful of operators that stand between a model's weights and its
convolutions (also where these are standardized, or divided by a norm) is cheap in numpy, and so are
the masks and indices of attention; whatever is not listed here is left to FoldConstant.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax

from ..ir.dtypes import FLOAT_DTYPES, numpy_dtype
from .expr import (
    as_numpy,
    dtype_of,
    ints,
    is_const,
    make_const,
    op_name,
    permutation_of,
    shape_of,
)


def _reduced_precision(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """NumPy has no bfloat16 arithmetic: compute 16-bit types in float32."""

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
    "relax.power": np.power,
    "relax.negative": np.negative,
    "relax.abs": np.abs,
    "relax.square": np.square,
    "relax.log": np.log,
    "relax.sqrt": np.sqrt,
    "relax.rsqrt": lambda x: (1.0 / np.sqrt(x)).astype(x.dtype),
    "relax.exp": np.exp,
    "relax.isnan": np.isnan,
    "relax.where": np.where,
    "relax.equal": np.equal,
    "relax.not_equal": np.not_equal,
    "relax.less": np.less,
    "relax.less_equal": np.less_equal,
    "relax.greater": np.greater,
    "relax.greater_equal": np.greater_equal,
    "relax.logical_and": np.logical_and,
    "relax.logical_or": np.logical_or,
    "relax.logical_not": np.logical_not,
    "relax.nn.relu": lambda x: np.maximum(x, x.dtype.type(0)),
}


#: Of integers they round differently, or are undefined.
_OF_FLOATS = ("relax.divide", "relax.power")

#: Bytes of a folded constant, counted as float64.
MOST_BYTES = 1 << 30
#: Tensors made of fewer numbers (masks, indices, repeated rows) become constants up to this many
#: elements.
_MOST_MADE = 1 << 20
#: Elements of a tensor of zeros or ones that becomes a constant: a kernel that reads a larger one
#: writes the number itself.
_MOST_FILLED = 1 << 10


def fold_call(call: relax.Call) -> relax.Expr | None:
    """Return the constant that ``call`` evaluates to, or None if it is not one of the known
    operators on constants. ``call`` must carry its type (be normalized)."""
    name = op_name(call)
    if not name or not isinstance(call.ty, relax.TensorType):
        return None
    if name in _MADE:
        made = _MADE[name](call) if int(np.prod(shape_of(call))) <= _MOST_MADE else None
        return None if made is None else make_const(made, dtype_of(call))
    if not any(name in t for t in (_ELEMENTWISE, _MOVED, _INDEXED, _STATISTICS, _JOINED)):
        return None
    args = list(call.args[0].fields) if name in _JOINED else call.args[:]
    if not args or not is_const(args[0]) or int(np.prod(shape_of(call))) * 8 > MOST_BYTES:
        return None
    tensors = [a for a in args if isinstance(a.ty, relax.TensorType)]
    if not all(is_const(a) for a in tensors):
        return None
    if name in _ELEMENTWISE:
        if len(tensors) != len(args):
            return None
        if name in _OF_FLOATS and numpy_dtype(dtype_of(call)).kind in "iu":
            return None
        value = _reduced_precision(_ELEMENTWISE[name])(*(as_numpy(a) for a in tensors))
    elif name in _JOINED:
        if call.attrs.axis is None:  # flattens what it joins
            return None
        value = _JOINED[name]([as_numpy(a) for a in tensors], int(call.attrs.axis))
    elif name in _STATISTICS:
        if any(dtype_of(a) not in FLOAT_DTYPES or 0 in shape_of(a) for a in tensors):
            return None
        value = _STATISTICS[name](call, *(as_numpy(a).astype(np.float64) for a in tensors))
    else:
        moved = _INDEXED[name](call) if name in _INDEXED else _MOVED[name](call, as_numpy(args[0]))
        if moved is None:
            return None
        value = moved
    return make_const(value, dtype_of(call))


def _reshaped(call: relax.Call, value: np.ndarray) -> np.ndarray:
    return value.reshape(shape_of(call))


def _broadcast(call: relax.Call, value: np.ndarray) -> np.ndarray | None:
    repeated = np.broadcast_to(value, shape_of(call))
    return repeated if repeated.size <= max(value.size, _MOST_MADE) else None


#: Operators that move the elements of one tensor.
_MOVED: dict[str, Callable[[relax.Call, np.ndarray], np.ndarray | None]] = {
    "relax.permute_dims": lambda call, value: value.transpose(permutation_of(call)),
    "relax.reshape": _reshaped,
    "relax.expand_dims": _reshaped,
    "relax.squeeze": _reshaped,
    "relax.flatten": _reshaped,
    "relax.broadcast_to": _broadcast,
    "relax.astype": lambda _, value: value,  # the constant is made in the call's dtype
    "relax.flip": lambda call, value: np.flip(value, ints(call.attrs.axis)),
}


def _over_axes(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    def run(call: relax.Call, value: np.ndarray) -> np.ndarray:
        axes = None if call.attrs.axis is None else ints(call.attrs.axis)
        return function(value, axis=axes, keepdims=bool(call.attrs.keepdims))

    return run


def _instance_norm(
    call: relax.Call, value: np.ndarray, gamma: np.ndarray, beta: np.ndarray
) -> np.ndarray:
    axes, attrs = ints(call.attrs.axes), call.attrs
    shape = [1] * value.ndim
    shape[int(attrs.channel_axis)] = -1
    variance = value.var(axis=axes, keepdims=True) + attrs.epsilon
    normal = (value - value.mean(axis=axes, keepdims=True)) / np.sqrt(variance)
    scaled = normal * gamma.reshape(shape) if attrs.scale else normal
    return scaled + beta.reshape(shape) if attrs.center else scaled


#: Operators of floating-point constants, whose values are in float64.
_STATISTICS: dict[str, Callable[..., np.ndarray]] = {
    "relax.sum": _over_axes(np.sum),
    "relax.mean": _over_axes(np.mean),
    "relax.variance": _over_axes(np.var),
    "relax.std": _over_axes(np.std),
    "relax.max": _over_axes(np.max),
    "relax.min": _over_axes(np.min),
    "relax.nn.instance_norm": _instance_norm,
}


def _full(call: relax.Call) -> np.ndarray | None:
    fill = call.args[-1]
    return np.full(shape_of(call), as_numpy(fill)) if is_const(fill) else None


def _filled(value: int) -> Callable[[relax.Call], np.ndarray | None]:
    def run(call: relax.Call) -> np.ndarray | None:
        shape = shape_of(call)
        return np.full(shape, value) if int(np.prod(shape)) <= _MOST_FILLED else None

    return run


def _arange(call: relax.Call) -> np.ndarray | None:
    begin, end, step = (getattr(arg, "value", None) for arg in call.args)
    if not (isinstance(begin, int) and isinstance(end, int) and isinstance(step, int)):
        return None
    return np.arange(begin, end, step)


#: Operators whose result depends on the elements of no tensor, but for that to fill with.
_MADE: dict[str, Callable[[relax.Call], np.ndarray | None]] = {
    "relax.full": _full,
    "relax.ones": _filled(1),
    "relax.ones_like": _filled(1),
    "relax.zeros": _filled(0),
    "relax.zeros_like": _filled(0),
    "relax.arange": _arange,
}


def _take(call: relax.Call) -> np.ndarray | None:
    value, indices = map(as_numpy, call.args)
    axis = call.attrs.axis
    if axis is None or not indices.size:
        return None
    inside = indices.min() >= 0 and indices.max() < value.shape[int(axis)]
    return np.take(value, indices, int(axis)) if inside else None


def _mod(call: relax.Call) -> np.ndarray | None:
    """Fold remainders of nonnegative integers, on which all definitions agree."""
    a, b = map(as_numpy, call.args)
    plain = a.dtype.kind in "iu" and b.dtype.kind in "iu" and (a >= 0).all() and (b > 0).all()
    return np.mod(a, b) if plain else None


def _strided_slice(call: relax.Call) -> np.ndarray | None:
    axes, begins, ends, *steps = ([int(field) for field in bound.fields] for bound in call.args[1:])
    cut = [slice(None)] * len(shape_of(call.args[0]))
    strides = steps[0] if steps else [1] * len(axes)
    for axis, begin, end, step in zip(axes, begins, ends, strides, strict=True):
        if step < 1:
            return None
        cut[axis] = slice(begin, end, step)
    value = as_numpy(call.args[0])[tuple(cut)]
    return value if value.shape == shape_of(call) else None


def _slice_scatter(call: relax.Call) -> np.ndarray | None:
    value, update = (as_numpy(arg) for arg in call.args[:2])
    begin, end, step = (getattr(arg, "value", None) for arg in call.args[2:5])
    if not (isinstance(begin, int) and isinstance(end, int) and isinstance(step, int)) or step < 1:
        return None
    cut = [slice(None)] * value.ndim
    cut[int(call.attrs.axis)] = slice(begin, end, step)
    result = value.copy()
    if result[tuple(cut)].shape != update.shape:
        return None
    result[tuple(cut)] = update
    return result


#: Operators of a tuple of constants.
_JOINED: dict[str, Callable[[list[np.ndarray], int], np.ndarray]] = {
    "relax.concat": np.concatenate,
    "relax.stack": np.stack,
}

#: Operators whose tensors are constants.
_INDEXED: dict[str, Callable[[relax.Call], np.ndarray | None]] = {
    "relax.take": _take,
    "relax.mod": _mod,
    "relax.floor_mod": _mod,
    "relax.strided_slice": _strided_slice,
    "relax.slice_scatter": _slice_scatter,
}
