"""The call that a converter lowers to Relax."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from convoy.errors import DynamicShape, UnsupportedOp
from convoy.ir.layer import layer_name
from convoy.relay import ast
from convoy.relay.ast import dtype_name
from convoy.relay.attrs import Attrs
from convoy.relay.builder import numpy_dtype
from convoy.relay.lazy import ir, relax
from convoy.relay.types import TensorType, TupleType

RelaxExpr = Any  # relax.Expr; the wheel has no stubs

#: Operators that are known by the name of their weight, the second argument.
_LAYERS = ("nn.conv", "nn.dense", "nn.deformable_conv", "nn.matmul", "nn.contrib_dense")


class OpCall:
    """One call of an operator, with what a converter needs to emit it in Relax.

    Attributes:
        name: The operator.
        args: The arguments as Relax expressions; a tuple is a `relax.Tuple` or a variable.
        builder: The `relax.BlockBuilder` that expressions are emitted to.
        layer: The layer that they belong to, where its name is known.
    """

    def __init__(self, call: ast.Call, args: Sequence[RelaxExpr], builder: Any) -> None:
        assert isinstance(call.op, ast.Op)
        self.call, self.args, self.builder = call, list(args), builder
        self.name = call.op.name
        weight = call.args[1] if self.name.startswith(_LAYERS) else None
        self.layer = layer_name(weight.name_hint) if isinstance(weight, ast.Var) else ""

    @property
    def attrs(self) -> Attrs:
        """The attributes of the call."""
        return self.call.attrs if self.call.attrs is not None else Attrs(None, {})

    def type(self, index: int) -> TensorType:
        """Return the Relay type of a tensor argument."""
        found = self.call.args[index].checked_type
        assert isinstance(found, TensorType), "type inference has checked it"
        return found

    def fields(self, index: int) -> tuple[TensorType, ...]:
        """Return the Relay types of a tuple argument's fields."""
        found = self.call.args[index].checked_type
        assert isinstance(found, TupleType), "type inference has checked it"
        return found.fields  # type: ignore[return-value]

    @property
    def result(self) -> Any:
        """The Relay type of the call."""
        return self.call.checked_type

    def shape(self, index: int) -> tuple[int, ...]:
        """Return the static shape of a tensor argument.

        Raises:
            DynamicShape: A dimension is known only at run time.
        """
        return self.static(self.type(index))

    def result_shape(self) -> tuple[int, ...]:
        """Return the static shape of the result; raises as `shape` does."""
        return self.static(self.result)

    def static(self, type_: TensorType) -> tuple[int, ...]:
        """Return the shape of a type; raises as `shape` does."""
        if not type_.is_static:
            raise DynamicShape(
                f"{self.name} of {type_}",
                "static shapes",
                "Give the dimension a size, or keep this operator out of the dynamic part",
            )
        return tuple(int(d) for d in type_.shape)  # type: ignore[arg-type]

    def unsupported(self, got: str, expected: str = "", remedy: str = "") -> UnsupportedOp:
        """Make the error for attributes or arguments that the converter does not support."""
        return UnsupportedOp(f"{self.name} with {got}", expected, remedy)

    # ---- emitting Relax expressions

    def emit(self, expr: RelaxExpr) -> RelaxExpr:
        """Bind an expression to a variable, whose shape is then known."""
        return self.builder.emit(self.of_layer(expr))

    def of_layer(self, expr: RelaxExpr) -> RelaxExpr:
        """Return the expression with the layer's name."""
        from convoy.graph.expr import with_layer  # needs TVM

        return with_layer(expr, self.layer)

    def te(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> RelaxExpr:
        """Emit a call of a tensor expression (such as a topi function)."""
        return self.builder.emit_te(
            function, *args, primfunc_name_hint=self.name.replace(".", "_"), **kwargs
        )

    def tuple(self, *fields: RelaxExpr) -> RelaxExpr:
        """Make a tuple of expressions."""
        return relax.Tuple([self.emit(f) for f in fields])

    def const(self, value: Any, dtype: str) -> RelaxExpr:
        """Make a constant of a dtype."""
        return constant(np.asarray(value), dtype)

    def match_dynamic(self, a: RelaxExpr, b: RelaxExpr, axes: int | None = None) -> RelaxExpr:
        """Cast `b` to the dynamic sizes of `a`, so that Relax can infer the result's shape.

        Two `?` of Relay are two symbolic sizes in Relax. Their equality is checked at run time.

        Args:
            a: The expression whose sizes are taken.
            b: The expression to cast; returned as it is where no size differs.
            axes: Compare only the first `axes` axes; None compares all, aligned at the last one.
        """
        shape_a, shape_b = (getattr(e.ty.shape, "values", None) for e in (a, b))
        if shape_a is None or shape_b is None:
            return b
        sizes = list(shape_b)
        skip = 0 if axes is not None else len(shape_a) - len(shape_b)
        for i in range(len(sizes) if axes is None else axes):
            if 0 <= i + skip < len(shape_a) and not _any_int(shape_a[i + skip], sizes[i]):
                sizes[i] = shape_a[i + skip]
        if all(x is y or x.same_as(y) for x, y in zip(sizes, shape_b, strict=True)):
            return b
        return self.builder.match_cast(b, relax.TensorType(sizes, b.ty.dtype))

    def reshape(self, expr: RelaxExpr, shape: Sequence[int]) -> RelaxExpr:
        """Emit a reshape; fold it for a constant."""
        if is_const(expr):
            return constant(expr.value.numpy().reshape(tuple(shape)))
        return self.emit(relax.op.reshape(expr, tuple(shape)))

    def permute(self, expr: RelaxExpr, axes: Sequence[int]) -> RelaxExpr:
        """Emit a transpose; fold it for a constant, omit the identity."""
        if list(axes) == list(range(len(axes))):
            return expr
        if is_const(expr):
            return constant(np.ascontiguousarray(expr.value.numpy().transpose(axes)))
        return self.emit(relax.op.permute_dims(expr, list(axes)))

    def cast(self, expr: RelaxExpr, dtype: str) -> RelaxExpr:
        """Emit a cast."""
        return self.emit(relax.op.astype(expr, dtype))

    def averaged(self, average: Callable[[RelaxExpr], RelaxExpr]) -> RelaxExpr:
        """Emit an average of argument 0; that of integers is truncated, as in TVM 0.18."""
        dtype = self.type(0).dtype
        if "int" not in dtype:
            return average(self.args[0])
        return self.cast(self.emit(average(self.cast(self.args[0], "float64"))), dtype)

    def unpack(self, index: int) -> list[RelaxExpr]:
        """Return the fields of a tuple argument."""
        value = self.args[index]
        if isinstance(value, relax.Tuple):
            return list(value.fields)
        count = len(self.fields(index))
        return [self.emit(relax.TupleGetItem(value, i)) for i in range(count)]


def constant(value: np.ndarray, dtype: str | None = None) -> RelaxExpr:
    """Make a Relax constant of a numpy array, cast to `dtype` if given."""
    array = np.asarray(value) if dtype is None else np.asarray(value).astype(numpy_dtype(dtype))
    # The dtype is given because TVM narrows float64 by default.
    return relax.const(np.ascontiguousarray(array).reshape(array.shape), dtype_name(array.dtype))


def is_const(expr: RelaxExpr) -> bool:
    """Check whether a Relax expression is a tensor constant."""
    return isinstance(expr, ir.GenericConst)


def ints(values: Iterable[Any]) -> list[int]:
    """Convert the elements of an array attribute to Python integers."""
    return [int(v) for v in values]


def _any_int(*sizes: Any) -> bool:
    """Check whether one of the Relax sizes is a number."""
    return any(hasattr(size, "value") for size in sizes)
