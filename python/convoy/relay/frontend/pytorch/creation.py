"""New tensors, which are constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from convoy.relay.ast import Constant, Expr
from convoy.relay.builder import numpy_dtype
from convoy.relay.frontend.common import cast, const, dtype_of, infer_shape, scalar, value_of
from convoy.relay.frontend.pytorch.registry import Call, convert
from convoy.relay.op import tensor as R

# Beyond this many elements a tensor of one value is computed, not stored.
_STORED = 4096


def filled(shape: list[int] | tuple[int, ...], value: Any, dtype: str) -> Expr:
    """Make a tensor of one value."""
    if np.prod(shape, dtype="int64") <= _STORED:
        return const(np.full(tuple(shape), value).astype(numpy_dtype(dtype)))
    return R.full(scalar(value, dtype), tuple(shape), dtype)


@convert("zeros", "ones", "empty", "full", "new_zeros", "new_ones", "new_empty", "new_full")
def new(call: Call) -> Expr:
    """Fill a shape; what `empty` holds is zero here."""
    value = call.get("fill_value", 1 if "ones" in call.short else 0)
    dtype = call.dtype()
    if dtype is None and call.short.startswith("new"):
        dtype = dtype_of(call["self"])
    if dtype is None:
        dtype = call.default_dtype if "full" not in call.short else dtype_of(call.tensor(value))
    shape = call.ints("size") or []
    if isinstance(value, Expr):
        number = value_of(value)
        if number is None:
            return R.broadcast_to(cast(value, dtype), shape) if shape else cast(value, dtype)
        value = number.item()
    return filled(shape, value, dtype)


@convert("tensor", "as_tensor", "scalar_tensor")
def of_numbers(call: Call) -> Expr:
    value = next(iter(call.args.values()))
    made = _stacked(call, value)
    wanted = call.dtype()
    if wanted is None and call.short == "scalar_tensor":
        wanted = call.default_dtype
    return made if wanted is None else cast(made, wanted)


def _stacked(call: Call, value: Any) -> Expr:
    """Stack lists of numbers, at run time only where a number is known only then."""
    if not isinstance(value, Sequence):
        return call.tensor(value)
    items = [_stacked(call, item) for item in value]
    if not items:
        return const(np.zeros(0, numpy_dtype(call.default_dtype)))
    if all(isinstance(item, Constant) for item in items):
        return const(np.array([value_of(item) for item in items]))
    return R.stack(items, 0)


@convert("zeros_like", "ones_like", "empty_like", "full_like", "zero", "fill")
def like(call: Call) -> Expr:
    data = call["self"]
    dtype = call.dtype() or dtype_of(data)
    value = call.get("fill_value", call.get("value", 1 if "ones" in call.short else 0))
    if isinstance(value, Expr):
        number = value_of(value)
        if number is None:
            return R.broadcast_to(cast(value, dtype), infer_shape(data))
        value = number.item()
    return filled(infer_shape(data), value, dtype)


@convert("rand", "randn", "randint", "rand_like", "randn_like", "bernoulli", "multinomial",
         "normal", "uniform", "randperm", "poisson", "exponential")  # fmt: skip
def random(call: Call) -> Expr:
    raise call.error("random numbers", "a network without", "Make them an input of the network")


@convert("copy")
def copy(call: Call) -> Expr:
    """Return what is copied, in the shape and dtype of the target."""
    source = cast(call["src"], dtype_of(call["self"]))
    shape = infer_shape(call["self"])
    return source if infer_shape(source) == shape else R.broadcast_to(source, shape)


@convert("one_hot")
def one_hot(call: Call) -> Expr:
    depth = call.get("num_classes", -1)
    if depth < 0:
        raise call.error("a number of classes that depends on values", "num_classes")
    on, off = scalar(1, "int64"), scalar(0, "int64")
    return R.one_hot(call["self"], on, off, depth, -1, "int64")
