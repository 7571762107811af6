"""TorchScript's functions of Python's numbers, lists and strings."""

from __future__ import annotations

import math
import operator as py
from collections.abc import Callable
from typing import Any

from convoy.errors import RelayTypeError, UnsupportedOp
from convoy.relay.ast import Expr
from convoy.relay.frontend.common import cast, dims, dtype_of, infer_shape, rank, reshape, value_of
from convoy.relay.frontend.pytorch.arithmetic import as_bool
from convoy.relay.frontend.pytorch.registry import DTYPES, Call
from convoy.relay.frontend.pytorch.values import Quantized


def _size(tensor: Any, axis: Any = None) -> Any:
    shape = infer_shape(_real(tensor)) if axis is None else dims(_real(tensor))
    if axis is None:
        return list(shape)
    size = shape[axis]
    return size if isinstance(size, int) else list(infer_shape(_real(tensor)))[axis]


def _real(tensor: Any) -> Expr:
    return tensor.expr if isinstance(tensor, Quantized) else tensor


def _number(value: Any, *_: Any) -> Any:
    if not isinstance(value, Expr):
        return value
    array = value_of(value)
    if array is None:
        raise UnsupportedOp(
            "a Python number of a tensor that is computed at run time", "a tensor throughout",
            "Leave out .item(), int() and float() in the model",
        )  # fmt: skip
    return array.item()


def _integer(value: Any) -> Any:
    """Return a Python integer, or the tensor of one that is computed at run time."""
    if isinstance(value, Expr) and value_of(value) is None and "int" in dtype_of(value):
        return cast(reshape(value, ()), "int64")
    return _number(value)


def _on_numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that leaves tensors to the converters."""

    def run(*args: Any) -> Any:
        if any(isinstance(a, (Expr, Quantized)) for a in args):
            return NotImplemented
        return function(*args)

    return run


def _append(items: Any, item: Any) -> Any:
    items.append(item)
    return items


def _truth(value: Any) -> Any:
    if isinstance(value, Expr) and value_of(value) is None:
        return as_bool(reshape(value, ()))
    return bool(_number(value))


def _extend(items: Any, more: Any, *_: Any) -> Any:
    if not isinstance(items, list):
        return NotImplemented
    items.extend(more)
    return items


def _item(items: Any, index: Any) -> Any:
    if isinstance(items, Expr):
        return NotImplemented
    if isinstance(items, dict):
        return items[index]
    number = _number(index)
    if not -len(items) <= number < len(items):
        raise RelayTypeError(
            f"item {number} of {len(items)}", "the shapes of all items of an input"
        )
    return items[number]


def _set_item(items: Any, index: Any, value: Any) -> Any:
    items[index] = value
    return items


def _list_slice(items: Any, *bounds: Any) -> Any:
    return NotImplemented if isinstance(items, (Expr, Quantized)) else items[slice(*bounds)]


def _dtype_number(tensor: Any) -> int:
    return {name: number for number, name in reversed(DTYPES.items())}[dtype_of(_real(tensor))]


def _tensor_of(value: Any, *_: Any) -> Any:
    return Call("aten::tensor", {"v": value}, "float32")["v"]


PYTHON_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "aten::size": _size,
    "aten::dim": lambda t: rank(_real(t)),
    "aten::len": lambda v: infer_shape(v)[0] if isinstance(v, Expr) else len(v),
    "aten::numel": lambda t: math.prod(infer_shape(_real(t))),
    "aten::Int": _integer, "aten::IntImplicit": _integer, "aten::ScalarImplicit": _number,
    "aten::item": _number,
    "aten::Float": lambda v: float(_number(v)), "aten::FloatImplicit": lambda v: float(_number(v)),
    "aten::Bool": _truth,
    "prim::NumToTensor": _tensor_of,
    "aten::__getitem__": _item, "aten::_set_item": _set_item, "aten::append": _append,
    "aten::add_": _extend, "aten::extend": _extend, "aten::pop": lambda items, at: items.pop(at),
    "aten::__range_length": lambda low, high, step: len(range(low, high, step)),
    "aten::__derive_index": lambda i, start, step: start + i * step, "aten::str": str,
    "aten::slice": _list_slice, "aten::list": lambda v: list(v),
    "aten::__is__": lambda a, b: a is b, "aten::__isnot__": lambda a, b: a is not b,
    "aten::__not__": _on_numbers(py.not_), "aten::__contains__": lambda items, i: i in items,
    "aten::keys": lambda d: list(d), "aten::values": lambda d: list(d.values()),
    "aten::items": lambda d: [tuple(i) for i in d.items()],
    "aten::is_floating_point": lambda t: dtype_of(_real(t)).startswith(("float", "bfloat")),
    "aten::is_complex": lambda t: False, "aten::format": lambda s, *v: s.format(*map(str, v)),
    "prim::dtype": _dtype_number, "prim::device": lambda t: "cpu", "prim::is_cuda": lambda t: False,
    "prim::layout": lambda t: 0, "prim::requires_grad": lambda t: False,
    "prim::is_quantized": lambda t: isinstance(t, Quantized), "prim::data": lambda t: t,
    "prim::shape": _size, "prim::unchecked_cast": lambda v: v,
    "prim::min": _on_numbers(min), "prim::max": _on_numbers(max),
    "aten::floordiv": _on_numbers(py.floordiv), "aten::ceil": _on_numbers(math.ceil),
    "aten::floor": _on_numbers(math.floor), "aten::add": _on_numbers(lambda a, b, *_: a + b),
    "aten::mul": _on_numbers(py.mul), "aten::sub": _on_numbers(lambda a, b, *_: a - b),
    "aten::eq": _on_numbers(py.eq), "aten::ne": _on_numbers(py.ne), "aten::lt": _on_numbers(py.lt),
    "aten::le": _on_numbers(py.le), "aten::gt": _on_numbers(py.gt), "aten::ge": _on_numbers(py.ge),
    "aten::div": _on_numbers(py.truediv), "aten::neg": _on_numbers(py.neg),
    "aten::remainder": _on_numbers(py.mod), "aten::pow": _on_numbers(py.pow),
    "aten::sqrt": _on_numbers(math.sqrt), "aten::__and__": _on_numbers(py.and_),
    "aten::__or__": _on_numbers(py.or_), "aten::warn": lambda *a: None,
}  # fmt: skip
