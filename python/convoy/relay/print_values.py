"""Printing of constants and attributes, and the table of what text cannot hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from convoy.errors import RelayTypeError
from convoy.relay import ast
from convoy.relay import types as ty
from convoy.relay.attrs import Attrs, Int64
from convoy.relay.equality import same_attrs
from convoy.relay.schema import MANDATORY, Field, op_schema
from convoy.relay.type_functor import TypeMutator
from convoy.relay.virtual_device import VirtualDevice

_SUFFIX = {
    "float16": "f16",
    "float32": "f",
    "float64": "f64",
    "int16": "i16",
    "int32": "",
    "int64": "i64",
}


class ValuePrinter:
    """Print constants and attributes of one text.

    Attributes:
        meta: The metadata section: objects by type key.
    """

    def __init__(self) -> None:
        self.meta: dict[str, list[Any]] = {}
        self._index: dict[int | str | ty.SymbolicDim, str] = {}
        self._sizes = _NamedSizes(self._entry)

    def constant(self, expr: ast.Constant) -> str:
        """Print a scalar as a literal, anything else as an entry of the metadata."""
        value = expr.value
        name = ast.dtype_name(value.dtype)
        if value.ndim == 0 and name == "bool":
            return str(bool(value))
        # The text format has no NaN.
        if value.ndim == 0 and name in _SUFFIX and not np.isnan(value):
            number = str(int(value)) if name.startswith("int") else _float(float(value), name)
            return number + _SUFFIX[name]
        return self._entry("relay.Constant", expr)

    def _entry(self, key: str, value: Any) -> str:
        """Return `meta[key][n]`, one entry for one object."""
        identity = value if isinstance(value, (str, ty.SymbolicDim)) else id(value)
        if not isinstance(value, int) and identity in self._index:
            return self._index[identity]
        table = self.meta.setdefault(key, [])
        table.append(value)
        name = f"meta[{key}][{len(table) - 1}]"
        self._index[identity] = name
        return name

    def type(self, typ: ty.Type) -> str:
        """Print a type; a named size is an entry of the metadata, as the text has no names."""
        is_tensor = isinstance(typ, ty.TensorType)  # most are: without the functor's dispatch
        return str(self._sizes.visit_tensor_type(typ) if is_tensor else self._sizes.visit(typ))

    # ---- attributes

    def attrs(self, call: ast.Call) -> list[str]:
        """Print the attributes of a call that differ from their defaults."""
        attrs = call.attrs
        if attrs is None:
            return []
        if not isinstance(call.op, ast.Op):
            items = [f"{k}={self.value(v)}" for k, v in attrs.items()]
            return [*items, f'attrs_type_key="{attrs.type_key}"']
        schema = op_schema(call.op.name)
        if not schema.printed or attrs.cls is None or attrs.cls is not schema.attrs:
            return [self._entry(attrs.type_key, attrs)]
        items = []
        for f in attrs.cls.fields:
            if f.default is MANDATORY or not _same_default(attrs[f.name], f):
                items.append(f"{f.name}={self.value(attrs[f.name], f.kind)}")
        return items

    def value(self, value: Any, kind: str = "") -> str:
        """Print the value of an attribute; `kind` is that of its field."""
        if value is None:
            return "None"
        if isinstance(value, bool):
            return str(value)
        if isinstance(value, int):
            if kind == "box":
                return self._entry("runtime.BoxInt", int(value))
            return f"{int(value)}i64" if isinstance(value, Int64) else str(int(value))
        if isinstance(value, float):
            return _float(value) + "f"
        if isinstance(value, str):
            # The text format has no escapes.
            return self._entry("runtime.String", value) if '"' in value else f'"{value}"'
        if isinstance(value, (tuple, list)):
            return f"[{', '.join(self.value(v, kind) for v in value)}]"
        if isinstance(value, Attrs):
            return self._entry(value.type_key, value)
        if isinstance(value, ast.Constant):
            return self._entry("relay.Constant", value)
        if isinstance(value, ty.Any):
            return self._entry("tir.Any", value)
        if isinstance(value, VirtualDevice):
            return self._entry("VirtualDevice", value)
        if isinstance(value, Mapping):
            return self._entry("Map", dict(value))
        raise RelayTypeError(
            f"an attribute of type {type(value).__name__}", "one that can be printed"
        )


class _NamedSizes(TypeMutator):
    """Replace named sizes by what stands for them in a text."""

    def __init__(self, entry: Callable[[str, Any], str]) -> None:
        self._entry = entry

    def visit_tensor_type(self, typ: ty.Type) -> ty.Type:
        assert isinstance(typ, ty.TensorType)
        if {*map(type, typ.shape)} <= {int, ty.Any}:
            return typ
        return ty.TensorType([self._dim(dim) for dim in typ.shape], typ.dtype)

    def _dim(self, dim: Any) -> Any:
        if isinstance(dim, (int, ty.Any)):
            return dim
        if not isinstance(dim, ty.SymbolicDim):  # of TVM: a variable, or an expression of some
            if not hasattr(dim, "name"):
                return ty.Any()
            dim = ty.SymbolicDim(dim.name)
        return _Written(self._entry("tir.SizeVar", dim))


class _Written(ty.Any):
    """A size that prints as a text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return self._text


def _same_default(value: Any, f: Field) -> bool:
    return same_attrs({"": _typed(value)}, {"": _typed(f.default)})


def _typed(value: Any) -> Any:
    """Mark values such that an int64 differs from an int32."""
    if isinstance(value, tuple):
        return tuple(map(_typed, value))
    return f"{int(value)}i64" if isinstance(value, Int64) else value


def _float(value: float, dtype: str = "float64") -> str:
    """Print six significant digits, as C++ streams do, or as many as tell the value apart.

    TVM always prints six, and then reads back another number.
    """
    short = f"{value:.6g}"
    exact = np.dtype(dtype).type(value)
    if np.dtype(dtype).type(float(short)) == exact:
        return short
    return str(exact)  # the shortest that reads back as the same value
