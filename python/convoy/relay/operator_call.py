"""The base of Relay expressions, operators, and calls, which expressions make (`x + y`).

`ast` has all other nodes, and the names of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from convoy.errors import RelayTypeError
from convoy.relay.attrs import Array, Attrs, make_attrs
from convoy.relay.fusion_kinds import fusion_kind
from convoy.relay.print_hook import print_text
from convoy.relay.schema import op_names, op_schema
from convoy.relay.source import Span
from convoy.relay.types import Type


@dataclass(frozen=True, eq=False, repr=False)
class Expr:
    """Base of all Relay expressions. The last argument of each is its place in a text, `span`.

    Attributes:
        checked_type_: The type that inference found, None before.
    """

    checked_type_: Type | None = field(default=None, init=False)

    if TYPE_CHECKING:  # a field of every subclass, behind its own ones

        @property
        def span(self) -> Span | None:
            """The place of the expression in its text, if it came from one."""

    @property
    def checked_type(self) -> Type:
        """The type that inference found.

        Raises:
            RelayTypeError: If `relay.transform.InferType` (or `parse`) has not seen it yet.
        """
        if self.checked_type_ is None:
            raise RelayTypeError(
                f"a {type(self).__name__} whose type is not known yet",
                remedy="Run relay.transform.InferType()(mod) first",
            )
        return self.checked_type_

    def astext(self, show_meta_data: bool = True, annotate: object = None) -> str:
        """Print the expression as Relay text; free variables come first as `free_var` lines."""
        return print_text(self, show_meta_data)

    def __str__(self) -> str:
        return self.astext(show_meta_data=False)

    def show(self, style: str | None = None, **options: Any) -> None:
        """Print the expression to the terminal; colors and other options are ignored."""
        del style, options
        print(self.astext(show_meta_data=False))

    def same_as(self, other: object) -> bool:
        """Check for the very same node."""
        return self is other

    def __call__(self, *args: Expr) -> Call:
        return Call(self, args)

    def astype(self, dtype: str) -> Call:
        """Cast to another dtype."""
        return op_call("cast", [self], dtype=str(dtype))

    def __neg__(self) -> Call:
        return op_call("negative", [self])

    def __add__(self, other: Expr) -> Call:
        return _binary("add", self, other)

    def __sub__(self, other: Expr) -> Call:
        return _binary("subtract", self, other)

    def __mul__(self, other: Expr) -> Call:
        return _binary("multiply", self, other)

    def __truediv__(self, other: Expr) -> Call:
        return _binary("divide", self, other)

    def __lt__(self, other: Expr) -> Call:
        return _binary("less", self, other)

    def __le__(self, other: Expr) -> Call:
        return _binary("less_equal", self, other)

    def __gt__(self, other: Expr) -> Call:
        return _binary("greater", self, other)

    def __ge__(self, other: Expr) -> Call:
        return _binary("greater_equal", self, other)

    def _refuse_number(self, other: object) -> Expr:
        raise TypeError(f'convert "{other}" with `const` first')

    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = _refuse_number


def _binary(name: str, lhs: Expr, rhs: object) -> Call:
    if not isinstance(rhs, Expr):
        raise TypeError(f'convert "{rhs}" with `const` first')
    return op_call(name, [lhs, rhs])


def check_parts(what: str, kind: type[Expr], *parts: object) -> None:
    """Check the parts of a node when it is made, where a script shows what it did.

    Raises:
        RelayTypeError: One is not of its kind.
    """
    for part in parts:
        if not isinstance(part, kind):
            expected = "an expression" if kind is Expr else f"a {kind.__name__}"
            raise RelayTypeError(f"{type(part).__name__} as {what}", expected, _remedy(part, kind))


def _remedy(part: object, kind: type[Expr]) -> str:
    if isinstance(part, str):
        return "relay.op.get returns an operator by its name, relay.var makes a variable"
    if hasattr(part, "astuple"):
        return "Take one of its fields, or astuple()"
    return "relay.const makes a constant of numbers" if kind is Expr else "relay.var makes one"


@dataclass(frozen=True, eq=False, repr=False)
class Op(Expr):
    """A built-in operator. `op("nn.conv2d")` returns it: there is one node for each name."""

    name: str
    span: Span | None = None

    @staticmethod
    def get(op_name: str) -> Op:
        """Return the one node of a known operator; see `op`."""
        return op(op_name)

    def __repr__(self) -> str:
        return f"Op({self.name})"

    @staticmethod
    def list_op_names() -> list[str]:
        """Return the names of all operators."""
        return list(op_names())

    @property
    def num_inputs(self) -> int:
        """The number of arguments that a call has."""
        return len(op_schema(self.name).inputs)

    def get_attr(self, attr_name: str) -> Any:
        """Return what was registered for the operator under a key, or None."""
        return _op_attributes.get((self.name, attr_name), (None, 0))[0]

    def has_attr(self, attr_name: str) -> bool:
        """Check whether something is registered for the operator under a key."""
        return (self.name, attr_name) in _op_attributes

    def set_attr(self, attr_name: str, value: Any, plevel: int = 10) -> None:
        """Register a value under a key; one of a higher level stays.

        Raises:
            RelayTypeError: There is a value of the same level already.
        """
        _, level = _op_attributes.get((self.name, attr_name), (None, -1))
        if level == plevel:
            raise RelayTypeError(
                f"attribute {attr_name} of {self.name} at level {plevel}, which is registered",
                remedy="Call reset_attr first, or pass a higher level",
            )
        if level < plevel:
            _op_attributes[self.name, attr_name] = (value, plevel)

    def reset_attr(self, attr_name: str) -> None:
        """Forget what is registered under a key."""
        _op_attributes.pop((self.name, attr_name), None)


# Values and their levels by operator and key: functions of users that passes call (`FTVMLegalize`).
_op_attributes: dict[tuple[str, str], tuple[Any, int]] = {}


# The one node of each operator.
_ops: dict[str, Op] = {}


def define_op(node: Op) -> None:
    """Make a node the one of its operator."""
    _ops[node.name] = node


def op(name: str) -> Op:
    """Return the one node of a known operator.

    Raises:
        UnsupportedOp: Relay has no such operator; the message suggests near names.
    """
    if name not in _ops:
        op_schema(name)
        _ops[name] = Op(name)
        _ops[name].set_attr("TOpPattern", fusion_kind(name), plevel=0)
    return _ops[name]


@dataclass(frozen=True, eq=False, repr=False)
class Call(Expr):
    """A call of an operator, a global function, a local function or a variable.

    `checked_type` is the type of the result.
    """

    op: Expr
    args: Sequence[Expr]
    attrs: Attrs | None = None
    type_args: Sequence[Type] = ()
    span: Span | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "args", Array(self.args))
        check_parts("operator or argument of a call", Expr, self.op, *self.args)
        object.__setattr__(self, "type_args", tuple(self.type_args or ()))


def op_call(name: str, args: Sequence[Expr], /, **attrs: Any) -> Call:
    """Make a call of an operator by name, its attributes completed with the C++ defaults."""
    return Call(op(name), tuple(args), make_attrs(name, attrs))
