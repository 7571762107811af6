"""Small helpers on Relax expressions: shapes and dtypes as plain Python, constants as numpy."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import GenericConst

from ..errors import DynamicShape
from ..ir.dtypes import numpy_dtype
from ..threads import in_threads

#: An attribute with one integer or several: Python's, or TVM's.
Ints: TypeAlias = "int | tvm.tirx.IntImm | Iterable[int | tvm.tirx.IntImm]"
#: Bytes from which a constant is written in threads, and rows and columns that one writes at once.
_LARGE_BYTES, _TILE = 4 << 20, (64, 256)


def op_name(expr: relax.Expr) -> str:
    """Name of the operator that ``expr`` calls, e.g. ``relax.nn.conv2d``; "" for anything else."""
    if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
        return expr.op.name
    return ""


def relax_ops(names: str) -> frozenset[str]:
    """Full names of Relax operators from a list separated by blanks."""
    return frozenset(f"relax.{name}" for name in names.split())


def is_tensor(expr: relax.Expr) -> bool:
    return isinstance(expr.ty, relax.TensorType)


def have_same_type(one: relax.Expr, other: relax.Expr) -> bool:
    """Return whether two expressions have equal types."""
    if isinstance(one, relax.Tuple) and isinstance(other, relax.Tuple):
        return len(one) == len(other) and all(map(have_same_type, one.fields, other.fields))
    return one.same_as(other) or tvm_ffi.structural_equal(one.ty, other.ty)


def shape_of(expr: relax.Expr) -> tuple[int, ...]:
    """Static shape of a tensor expression; raises DynamicShape when it is not known."""
    shape = expr.ty.shape
    if shape is not None and (dims := _static_dims(shape)) is not None:
        return dims
    where = expr.name if isinstance(expr, relax.Var) else op_name(expr) or "an expression"
    if shape is None:
        raise DynamicShape(
            f"{where} of unknown shape", "a static shape", "Import the model with fixed sizes"
        )
    dims = shape.values if hasattr(shape, "values") else shape.ty.values
    names = [d.name for d in dims or () if hasattr(d, "name")]
    sizes = ", ".join(f'"{name}": 1' for name in dict.fromkeys(names)) or '"n": 1'
    raise DynamicShape(
        f"{where} of shape {shape}",
        "a static shape",
        f"module = relax.transform.BindSymbolicVars({{{sizes}}})(module) sets 1.",
    )


@functools.lru_cache(maxsize=4096)
def _static_dims(shape: relax.Expr) -> tuple[int, ...] | None:
    """Return the dimensions of a shape; None if one is symbolic. Equal is here what is the same."""
    dims = shape.values if hasattr(shape, "values") else shape.ty.values
    if dims is None or not all(isinstance(d, tvm.tirx.IntImm) for d in dims):
        return None
    return tuple(int(d) for d in dims)


def dtype_of(expr: relax.Expr) -> str:
    return str(expr.ty.dtype) if is_tensor(expr) else ""


def rank_of(expr: relax.Expr) -> int:
    return len(shape_of(expr))


def is_const(expr: relax.Expr) -> bool:
    return isinstance(expr, GenericConst) and is_tensor(expr)


def as_numpy(expr: relax.Expr) -> np.ndarray:
    """Value of a tensor constant, read-only and not copied where numpy knows its dtype (bfloat16
    is copied, through ml_dtypes)."""
    if (view := _view(expr.value)) is None:
        return expr.value.numpy()
    view.flags.writeable = False
    return view


def number(expr: relax.Expr) -> float:
    """Value of a scalar argument of an operator, such as a bound of clip."""
    return expr.value.value if hasattr(expr.value, "value") else expr.value


def make_const(value: np.ndarray, dtype: str = "") -> relax.Expr:
    """Constant of ``dtype``, by default the array's own, written in one pass: most of the time to
    normalize a network goes into copies of its weights."""
    array = np.asarray(value)
    dtype = dtype or array.dtype.name
    tensor = tvm.runtime.empty(array.shape, dtype)
    if (view := _view(tensor)) is None:
        tensor.copyfrom(np.asarray(array, numpy_dtype(dtype), order="C"))
    else:
        _fill(view, array)
    return relax.const(tensor)


def _fill(target: np.ndarray, source: np.ndarray) -> None:
    """Write an array into another one of any dtype: large ones in threads, matrices in tiles, since
    a transposed one is read across its rows."""
    if target.nbytes < _LARGE_BYTES or target.ndim < 2:
        np.copyto(target, source, casting="unsafe")
        return

    height = max(_TILE[0], _TILE[0] * _TILE[1] // max(1, target.shape[1]))  # more of narrow ones

    def fill(first: int) -> None:
        rows = slice(first, first + height)
        step = _TILE[1] if target.ndim == 2 else target.shape[1]
        for column in range(0, target.shape[1], step):
            part = rows, slice(column, column + step)
            np.copyto(target[part], source[part], casting="unsafe")

    in_threads(fill, range(0, target.shape[0], height))


def _view(tensor: tvm.runtime.Tensor) -> np.ndarray | None:
    """Return a tensor in host memory as an array of the same memory; None for dtypes unknown to
    numpy."""
    try:
        return np.from_dlpack(tensor)
    except (BufferError, RuntimeError, TypeError):
        return None


def attr_fields(attrs: tvm.ir.Attrs | None) -> dict[str, Any]:
    """Fields of an operator's attributes."""
    if attrs is None:
        return {}
    if isinstance(attrs, tvm.ir.DictAttrs):
        return {key: attrs[key] for key in attrs.keys()}  # noqa: SIM118 (not a dict)
    info = getattr(type(attrs), "__tvm_ffi_type_info__", None)
    if info is None:
        return {}
    return {field.name: getattr(attrs, field.name) for field in info.fields}


def call_like(call: relax.Call, args: list[relax.Expr], **changed: object) -> relax.Call:
    """Return the same operator on other arguments, with some attributes replaced; not yet
    normalized."""
    attrs = call.attrs
    if changed:
        fields = {**attr_fields(attrs), **changed}
        attrs = tvm.ir.make_node(type(attrs).__tvm_ffi_type_info__.type_key, **fields)
    return relax.Call(call.op, args, attrs, call.ty_args, call.span)


def layer_of(expr: relax.Expr) -> str:
    """Name of the model's layer that a call belongs to; "" if unknown."""
    span = expr.span if isinstance(expr, relax.Call) else None
    return str(span.source_name.name) if span is not None else ""


def with_layer(expr: relax.Expr, layer: str) -> relax.Expr:
    """``expr`` as a part of a layer; calls that belong to one, and all but calls, stay."""
    if not layer or not isinstance(expr, relax.Call) or expr.span is not None:
        return expr
    span = tvm.ir.Span(tvm.ir.SourceName(layer), 0, 0, 0, 0)
    return relax.Call(expr.op, expr.args, expr.attrs, expr.ty_args, span)


def ints(values: Ints) -> tuple[int, ...]:
    """Return an attribute that holds one integer or several, as a tuple."""
    return tuple(map(int, values)) if isinstance(values, Iterable) else (int(values),)


def padding_of(padding: Ints, axes: int) -> tuple[int, ...]:
    """Padding in front of each spatial axis, then behind each, of an operator's attribute with one
    number for all of them, one for each axis, or all."""
    pad = ints(padding)
    if len(pad) == 1:
        return pad * (2 * axes)
    return pad + pad if len(pad) == axes else pad[: 2 * axes]


def padding4(padding: Ints) -> tuple[int, int, int, int]:
    """(top, left, bottom, right) of a 2d operator's padding attribute of length 1, 2 or 4."""
    top, left, bottom, right = padding_of(padding, 2)
    return top, left, bottom, right


def permute(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(shape[a] for a in axes)


def inverse(axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(axes.index(i) for i in range(len(axes)))


def permutation_of(call: relax.Call) -> tuple[int, ...]:
    """Axes of a permute_dims call; without axes it reverses them."""
    rank = rank_of(call.args[0])
    axes = call.attrs.axes
    if axes is None:
        return tuple(reversed(range(rank)))
    return tuple(a % rank for a in ints(axes))
