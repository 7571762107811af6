"""The call that a type rule infers the type of."""

from __future__ import annotations

from collections.abc import Sequence

from convoy.errors import ConvoyError, RelayTypeError
from convoy.relay.ast import Call, Constant, Op
from convoy.relay.attrs import Attrs, complete_attrs, is_expression
from convoy.relay.layout import Layout, layout
from convoy.relay.schema import op_schema
from convoy.relay.shapes import same_shape
from convoy.relay.types import Any as DynamicDim
from convoy.relay.types import Dim, TensorType, TupleType, Type


class Undetermined(Exception):
    """Raised where a rule needs the type of an argument that is not known yet."""


class Inputs:
    """The arguments and attributes of one call, with checks that raise a RelayTypeError.

    Attributes:
        call: The call.
        name: The operator.
        types: The type of each argument, None while it is not known.
        assigned: Types that the rule inferred for arguments, by position.
    """

    def __init__(self, call: Call, types: Sequence[Type | None]) -> None:
        assert isinstance(call.op, Op)
        self.call, self.name = call, call.op.name
        self.types = list(types)
        self.assigned: dict[int, Type] = {}

    @property
    def attrs(self) -> Attrs:
        """The attributes, checked to be those of the operator."""
        found, wanted = self.call.attrs, op_schema(self.name).attrs
        if found is None:
            raise self.error("a call without attributes")
        # Saved files can give a call attributes of any class.
        if wanted is not None and not found.has_fields(wanted):
            raise self.error(f"attributes of class {found.type_key}", wanted.type_key)
        if wanted is not None and found.cls is not wanted:  # of these names, but of these kinds?
            complete_attrs(wanted, {name: found[name] for name in wanted.field_names}, self.name)
        return found

    def error(self, got: str, expected: str = "") -> RelayTypeError:
        """Make the error for a call that does not type-check."""
        return RelayTypeError(f"{self.name}: {got}", expected)

    def count(self, number: int) -> None:
        """Check the number of arguments."""
        if len(self.types) != number:
            raise self.error(f"{len(self.types)} arguments", str(number))

    def type(self, index: int) -> Type:
        """Return the type of an argument; raises Undetermined while it is not known."""
        if index >= len(self.types):
            raise self.error(f"{len(self.types)} arguments", f"at least {index + 1}")
        found = self.types[index]
        if found is None:
            raise Undetermined
        return found

    def tensor(self, index: int, ndim: int | None = None) -> TensorType:
        """Return the type of a tensor argument, checked to have `ndim` dimensions if given."""
        found = self.type(index)
        if not isinstance(found, TensorType):
            raise self.error(f"argument {index} is {found}", "a tensor")
        if ndim is not None and len(found.shape) != ndim:
            raise self.error(f"argument {index} is {found}", f"a tensor of {ndim} dimensions")
        return found

    def known(self, index: int) -> TensorType | None:
        """Return the type of a tensor argument, None while it is not known."""
        if index < len(self.types) and self.types[index] is None:
            return None
        return self.tensor(index)

    def tensors(self, index: int) -> list[TensorType]:
        """Return the field types of an argument that is a tuple of tensors."""
        found = self.type(index)
        if not isinstance(found, TupleType):
            raise self.error(f"argument {index} is {found}", "a tuple of tensors")
        for field in found.fields:
            if not isinstance(field, TensorType):
                raise self.error(f"argument {index} has a {field}", "tensors only")
        return list(found.fields)  # type: ignore[arg-type]

    def expect(self, index: int, wanted: TensorType) -> None:
        """Check the type of an argument; assign it where the argument has none yet."""
        found = self.known(index)
        if found is None:
            self.types[index] = self.assigned[index] = wanted
        elif found.dtype != wanted.dtype or not same_shape(found.shape, wanted.shape):
            raise self.error(f"argument {index} is {found}", str(wanted))

    def ints(self, field: str, length: int | None = None) -> tuple[int, ...]:
        """Return an array attribute of integers, checked to have `length` elements if given."""
        value = self.attrs[field]
        if value is None or any(not isinstance(v, int) for v in value):
            raise self.error(f"{field}={value}", "an array of integers")
        if length is not None and len(value) != length:
            raise self.error(f"{field}={list(value)}", f"{length} values")
        return tuple(value)

    def positive(self, field: str, length: int) -> tuple[int, ...]:
        """Return an array attribute of `length` integers over zero."""
        value = self.ints(field, length)
        if any(v <= 0 for v in value):
            raise self.error(f"{field}={list(value)}", "values over zero")
        return value

    def sizes(self, field: str, length: int) -> tuple[Dim, ...]:
        """Return an array attribute of `length` sizes over zero, or expressions of variables."""
        value = self.attrs[field]
        if value is None or len(value) != length or not all(map(_is_size, value)):
            raise self.error(f"{field}={value}", f"{length} sizes")
        if any(isinstance(v, int) and v <= 0 for v in value):
            raise self.error(f"{field}={list(value)}", "values over zero")
        return tuple(value)

    def shape(self, field: str) -> tuple[Dim, ...]:
        """Return an attribute that is a shape."""
        value = self.attrs[field]
        if value is None or not all(map(_is_size, value)):
            raise self.error(f"{field}={value}", "an array of integers")
        if any(isinstance(v, int) and v < 0 for v in value):
            raise self.error(f"{field}={list(value)}", "sizes of at least 0")
        return tuple(value)

    def axis(self, axis: int, ndim: int) -> int:
        """Check an axis; return it counted from the front."""
        if not -ndim <= axis < ndim:
            raise self.error(f"axis {axis} of a tensor of {ndim} dimensions")
        return axis % ndim

    def layout(self, name: str, axes: str) -> Layout:
        """Parse a layout of the given axes."""
        try:
            return layout(name, axes)
        except ConvoyError as error:
            raise error.reworded(f"{self.name}: {error.got}") from None

    def out_dtype(self, fallback: str) -> str:
        """Return the attribute `out_dtype`, or `fallback` where it is empty."""
        return self.attrs["out_dtype"] or fallback


def _is_size(value: object) -> bool:
    """Check for an integer, an unknown size or an expression of TVM."""
    return isinstance(value, (int, DynamicDim)) or is_expression(value)


def constant_ints(call: Inputs, index: int) -> tuple[int, ...]:
    """Return the values of an argument that must be a constant of integers."""
    value = call.call.args[index]
    if not isinstance(value, Constant) or value.value.dtype.kind not in "iu":
        raise call.error(f"argument {index}, which is no constant", "a constant of integers")
    return tuple(int(v) for v in value.value.reshape(-1))
