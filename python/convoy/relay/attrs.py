"""Attributes of calls: values by name, of one attribute class.

Integers are `int` (int32 in files) or `Int64`; arrays are tuples; a dtype is its name, "" for
void; a null reference is None.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np

from convoy.errors import RelayTypeError
from convoy.relay.schema import MANDATORY, AttrsClass, Field, op_schema
from convoy.relay.source import nearest
from convoy.relay.types import Any as DynamicDim
from convoy.relay.types import Size

# No attribute nests deeper than a list of pairs.
_MAX_NESTING = 4


class Int64(Size):
    """An integer written `2i64` in text: it stays 64 bits wide when printed and saved."""

    __slots__ = ()


class Array(tuple[Any, ...]):
    """An array as scripts see it: a tuple that equals, and is printed as, a list."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return tuple.__eq__(self, tuple(other) if isinstance(other, list) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__

    def __repr__(self) -> str:
        return repr(list(self))


def _array_of(value: Any) -> Any:
    return Array(map(_array_of, value)) if isinstance(value, tuple) else value


class Attrs(Mapping[str, Any]):
    """The attributes of a call: `attrs["strides"]` or `attrs.strides`.

    Attributes:
        cls: The attribute class, None for a dictionary of free names (DictAttrs).
    """

    __slots__ = ("_values", "cls")
    cls: AttrsClass | None
    _values: dict[str, Any]

    def __init__(self, cls: AttrsClass | None, values: Mapping[str, Any]) -> None:
        object.__setattr__(self, "cls", cls)
        object.__setattr__(self, "_values", dict(values))

    @property
    def type_key(self) -> str:
        """The type key in files: `relay.attrs.Conv2DAttrs`."""
        return self.cls.type_key if self.cls else "DictAttrs"

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __getattr__(self, name: str) -> Any:
        try:
            return _array_of(self._values[name])
        except KeyError:
            raise AttributeError(f"{self.type_key} has no field '{name}'") from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("attributes are immutable")

    def __reduce__(self) -> tuple[Any, ...]:
        return Attrs, (self.cls, self._values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def has_fields(self, cls: AttrsClass) -> bool:
        """Check whether all fields of a class are there."""
        return self._values.keys() >= set(cls.field_names)

    def get_int(self, key: str) -> int:
        """Return the integer of a field.

        Raises:
            RelayTypeError: Something else in it, which only damaged files have.
        """
        value = self._values[key]
        if not isinstance(value, int):
            raise RelayTypeError(f"{self.type_key} with {key}={reprlib.repr(value)}", "an integer")
        return int(value)

    def get_int_tuple(self, key: str) -> tuple[int, ...]:
        """Return the integers of a field, as TVM's method of that name does."""
        return tuple(int(value) for value in self._values[key])

    def get_str(self, key: str) -> str:
        """Return the text of a field, as TVM's method of that name does."""
        return str(self._values[key])

    def __repr__(self) -> str:
        return f"{self.type_key}({self._values})"


def make_attrs(op_name: str, given: Mapping[str, Any]) -> Attrs | None:
    """Complete the attributes of a call with the C++ defaults.

    Args:
        op_name: The operator.
        given: Attributes by name.

    Returns:
        The attributes; None for an operator without any.

    Raises:
        RelayTypeError: A name that the class does not have, a value of the wrong kind, or a
            mandatory field without a value.
    """
    cls = op_schema(op_name).attrs
    if cls is None:
        if given:
            names = ", ".join(f"'{n}'" for n in given)
            raise RelayTypeError(f"attribute {names} of {op_name}, which takes no attributes")
        return None
    return complete_attrs(cls, given, op_name)


def complete_attrs(cls: AttrsClass, given: Mapping[str, Any], where: str) -> Attrs:
    """Complete attributes of a class with the C++ defaults; raises as `make_attrs`.

    Args:
        cls: The attribute class.
        given: Attributes by name.
        where: The call, for errors.
    """
    known = cls.field_names
    for name in given:
        if name not in known:
            raise RelayTypeError(
                f"{where} has no attribute '{name}'; its attributes are {', '.join(known)}",
                remedy=nearest(name, known),
            )
    values = {}
    for field in cls.fields:
        if field.name in given:
            values[field.name] = _coerce(field, given[field.name], where)
        elif field.default is MANDATORY:
            raise RelayTypeError(
                f"{where} without its mandatory attribute '{field.name}'"
                + (" (it may be None)" if field.kind in ("expr", "array") else "")
            )
        else:
            values[field.name] = _default(field)
    return Attrs(cls, values)


@cache
def _default(field: Field) -> Any:
    sizes = field.kind in ("expr", "array")
    return _COERCE[field.kind](field.default) if sizes else field.default


def _coerce(field: Field, value: Any, where: str) -> Any:
    """Convert a value to the kind of a field."""
    check = _COERCE[field.kind]
    try:
        return check(value)
    except (TypeError, ValueError, OverflowError):
        raise RelayTypeError(
            f"{where}: {field.name}={reprlib.repr(value)}", _EXPECTED.get(field.kind, field.kind)
        ) from None


def _int(value: Any) -> int:
    if isinstance(value, Int64):
        return value
    if isinstance(value, (bool, np.bool_)):
        return int(value)
    if isinstance(value, np.int64):
        return Int64(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    raise TypeError


def _bool(value: Any) -> bool:
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise TypeError


def _double(value: Any) -> float:
    if isinstance(value, (bool, str)):
        raise TypeError
    number = float(value)
    if math.isnan(number):
        raise ValueError
    return number


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _dtype(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, (np.dtype, type)):
        return np.dtype(value).name
    name = str(value)  # a tvm DataType
    if not name.replace("_", "").isalnum():
        raise TypeError
    return name


def _expr(value: Any) -> int | None:
    if value is None or isinstance(value, Int64):
        return value
    number = _int(value)
    return number if isinstance(number, Int64) else Size(number)


def _element(value: Any, depth: int = 0) -> Any:
    if isinstance(value, (list, tuple, np.ndarray)):
        if depth >= _MAX_NESTING:
            raise TypeError
        return tuple(_element(v, depth + 1) for v in value)
    if isinstance(value, (float, np.floating)):
        return float(value)
    if isinstance(value, DynamicDim) or is_expression(value):
        return value
    return _expr(value)


def is_expression(value: object) -> bool:
    """Check for an expression of TVM, such as a `te.var` as a size."""
    return type(value).__module__.startswith("tvm.") and hasattr(value, "same_as")


def _array(value: Any) -> tuple[Any, ...] | None:
    if value is None:
        return None
    if isinstance(value, (str, bytes, int)):
        raise TypeError
    return tuple(map(_element, value))


def _floats(value: Any) -> tuple[float, ...] | None:
    return None if value is None else tuple(map(_double, value))


def _box(value: Any) -> int | tuple[int, ...]:
    if isinstance(value, (list, tuple, np.ndarray)):
        return tuple(int(_int(v)) for v in value)
    return int(_int(value))


def _any(value: Any) -> Any:
    return value


_COERCE = {
    "int": lambda v: int(_int(v)),
    "bool": _bool,
    "double": _double,
    "dtype": _dtype,
    "text": _text,
    "string": _text,
    "expr": _expr,
    "array": _array,
    "floats": _floats,
    "box": _box,
    "relay": _any,
    "object": _any,
}
_EXPECTED = {
    "int": "an integer",
    "bool": "True or False",
    "double": "a number",
    "dtype": 'a dtype such as "float32"',
    "text": "a string",
    "string": "a string",
    "expr": "an integer or None",
    "array": "an array such as [1, 1]",
    "floats": "an array of floats or None",
    "box": "an integer or an array of integers",
}
