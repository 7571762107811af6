"""One call of an ONNX operator, as converters see it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ConvoyError, DynamicShape, InvalidModel, UnsupportedDtype, UnsupportedOp
from ..ir.dtypes import numpy_dtype
from .builder import Builder, Expr

if TYPE_CHECKING:
    from .importer import Importer

#: A tensor that is known (an array) or not (an expression), a sequence of them, or nothing.
Value = Any
Converter = Callable[["Call"], Any]

#: Converters by domain and operator.
CONVERTERS: dict[tuple[str, str], Converter] = {}

#: The opset whose operators converters call.
OPSET = 18

#: What to do about shapes and branches that depend on an input.
CONSTANTS = (
    "Give the input that it depends on as a constant, for example constants={'rate': 16000} of "
    "convoy.from_onnx, --constant rate=16000."
)

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "bfloat16",
)  # fmt: skip


def converter(*names: str, domain: str = "") -> Callable[[Converter], Converter]:
    """Register a converter: a function of a :class:`Call` that returns its value, or a tuple."""

    def register(function: Converter) -> Converter:
        for name in names:
            CONVERTERS[domain, name] = function
        return function

    return register


@dataclass
class Call:
    """Operator, attributes and inputs of one node, and the importer that it is emitted by.

    Attributes:
        inputs: Values; None for an optional input that is left out.
        version: The opset that the node is of.
        outputs: How many results are used; those behind are not needed.
        scope: The names that subgraphs among the attributes see.
        sources: The names of the inputs.
    """

    importer: Importer
    op: str
    inputs: Sequence[Value]
    attrs: Mapping[str, Any]
    version: int = OPSET
    outputs: int = 1
    name: str = ""
    scope: dict[str, Value] = field(default_factory=dict)
    sources: Sequence[str] = ()

    @property
    def builder(self) -> Builder:
        return self.importer.builder

    # ---- inputs

    def has(self, index: int) -> bool:
        """Whether an input is there."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def value(self, index: int) -> Value:
        """An input as an array or an expression.

        Raises:
            UnsupportedOp: It is left out.
        """
        if not self.has(index):
            raise self.unsupported(f"without input {index}", "")
        return self.inputs[index]

    def x(self, index: int = 0) -> Expr:
        """An input as an expression; arrays become constants."""
        return self.expr(self.value(index))

    def array(self, index: int) -> np.ndarray | None:
        """An input as an array; None where it is left out or depends on the model's inputs."""
        value = self.inputs[index] if self.has(index) else None
        return value if isinstance(value, np.ndarray) else None

    def constant(self, index: int, what: str) -> np.ndarray:
        """An input that has to be known.

        Raises:
            UnsupportedOp: It depends on the model's inputs.
        """
        found = self.array(index)
        if found is None and self.has(index):
            found = self.importer.parameters.get(id(self.inputs[index]))
        if found is None:
            raise self.unsupported(
                f"whose {what} depends on the model's inputs", f"a constant {what}", CONSTANTS
            )
        return found

    def ints(self, name: str, index: int) -> list[int] | None:
        """Integers that are an attribute in old opsets and an input in new ones; None: neither."""
        if name in self.attrs:
            return [int(i) for i in np.atleast_1d(self.attrs[name])]
        if not self.has(index):
            return None
        return [int(i) for i in self.constant(index, name).reshape(-1)]

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """The shape of an input."""
        found = self.dims(index)
        if not self.is_static(index):
            text = ", ".join(map(str, found))
            raise DynamicShape(
                f"ONNX operator {self.op} ({self.name!r}) of shape ({text})",
                "sizes",
                "Give the shapes of the model's inputs",
            )
        return found

    def dims(self, index: int = 0) -> tuple[Any, ...]:
        """The shape of an input, in which sizes that are known at run time only are no int."""
        value = self.value(index)
        if isinstance(value, np.ndarray):
            return value.shape
        with self.naming():
            return self.builder.dims(self.expr(value))

    def is_static(self, index: int = 0) -> bool:
        """Whether all sizes of an input are known."""
        return all(isinstance(size, int) for size in self.dims(index))

    def rank(self, index: int = 0) -> int:
        return len(self.dims(index))

    def dtype(self, index: int = 0) -> str:
        """The dtype of an input, by its name."""
        return str(self.do_dtype(self.value(index)))

    def axis(self, default: int, index: int = 0) -> int:
        """The attribute ``axis``, counted from the front of an input."""
        axis, rank = int(self.attrs.get("axis", default)), self.rank(index)
        if not -rank <= axis < max(rank, 1):
            raise self.unsupported(f"with axis {axis}", f"an axis of {rank} dimensions")
        return axis % rank if rank else 0

    # ---- results

    def make(self, op: str, *args: Any, **attrs: Any) -> Expr:
        """The value of an operator of the builder; arrays among its arguments become constants."""
        values = [self.expr(arg) if isinstance(arg, np.ndarray) else arg for arg in args]
        with self.naming():
            return self.emit(self.builder.apply(op, *values, **attrs))

    def items(self, expr: Expr, count: int) -> tuple[Expr, ...]:
        """The first fields of a tuple."""
        return tuple(self.emit(self.builder.item(expr, i)) for i in range(count))

    def emit(self, expr: Expr) -> Expr:
        """Bind an expression to a variable, which has a type."""
        return self.builder.emit(expr, self.name)

    def expr(self, value: Value) -> Expr:
        """An array as a constant; an expression stays."""
        if isinstance(value, np.ndarray | np.generic):
            return self.importer.constant(np.asarray(value))
        if not self.builder.is_expr(value):
            raise self.unsupported(f"of a {type(value).__name__}", "tensors")
        return value

    def const(self, value: Any, index: int = 0) -> np.ndarray:
        """Numbers as an array with the dtype of an input."""
        return np.asarray(value).astype(numpy_dtype(self.dtype(index)))

    def do(self, op: str, *inputs: Value, outputs: int = 1, **attrs: Any) -> Any:
        """The value of another operator of opset 18; computed where all inputs are arrays."""
        return self.importer.call(
            Call(self.importer, op, inputs, attrs, OPSET, outputs, self.name, self.scope)
        )

    def reshape(self, value: Value, shape: Sequence[int]) -> Value:
        return self.do("Reshape", value, np.array(shape, "int64"), allowzero=1)

    def cast(self, value: Value, dtype: str) -> Value:
        if isinstance(value, np.ndarray):
            return value.astype(numpy_dtype(dtype))
        return value if self.builder.dtype(value) == dtype else self.make("astype", value, dtype)

    def do_dtype(self, value: Value) -> np.dtype[Any]:
        """The numpy dtype of a value."""
        if isinstance(value, np.ndarray):
            return value.dtype
        return numpy_dtype(self.builder.dtype(self.expr(value)))

    # ---- errors

    @property
    def _where(self) -> str:
        return f"ONNX operator {self.op}" + (f" ({self.name!r})" if self.name else "")

    def unsupported(self, got: str, expected: str = "", remedy: str = "") -> UnsupportedOp:
        """The error for a call that cannot be converted."""
        return UnsupportedOp(f"{self._where} {got}".rstrip(), expected, remedy)

    def contradiction(self, got: str, expected: str, remedy: str = "") -> InvalidModel:
        """The error for a node that does not suit its inputs, with their dtypes and shapes."""
        return InvalidModel(f"{self._where} of {self.operands()} {got}".rstrip(), expected, remedy)

    def operands(self) -> str:
        """Dtypes and shapes of the inputs."""
        found = []
        for value in self.inputs:
            if isinstance(value, np.ndarray):
                found.append(f"{value.dtype} {value.shape}")
            elif self.builder.is_expr(value):
                found.append(f"{self.builder.dtype(value)} {self.builder.dims(value)}")
            else:
                found.append("nothing" if value is None else f"a {type(value).__name__}")
        return ", ".join(found)

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Name the call in errors of the builder."""
        try:
            yield
        except ConvoyError as err:
            if "ONNX operator" in err.got:
                raise
            raise err.reworded(f"{self._where}: {err.got}") from err


def checked_dtype(dtype: Any, what: str) -> str:
    """The name of a dtype that networks may compute with.

    Raises:
        UnsupportedDtype: Text, complex numbers, and types of fewer than eight bits or of float8.
    """
    name = str(np.dtype(dtype))
    if name not in DTYPES:
        raise UnsupportedDtype(f"{what} of dtype {name}", f"one of {', '.join(DTYPES)}")
    return name
