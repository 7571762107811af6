"""What a converter gets, and the registry of converters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import GenericConst

from convoy.errors import DynamicShape, UnsupportedOp
from convoy.relay import ast
from convoy.relay.ast import dtype_name
from convoy.relay.attrs import Attrs
from convoy.relay.types import TensorType, TupleType

RelaxExpr = Any  # relax.Expr; the wheel has no stubs


class OpCall:
    """One call of an operator that is being converted.

    Attributes:
        name: the operator.
        args: the arguments as Relax expressions; a tuple argument is a `relax.Tuple` or a variable.
    """

    def __init__(
        self, call: ast.Call, args: Sequence[RelaxExpr], builder: relax.BlockBuilder
    ) -> None:
        assert isinstance(call.op, ast.Op)
        self.call, self.args, self.builder = call, list(args), builder
        self.name = call.op.name

    @property
    def attrs(self) -> Attrs:
        return self.call.attrs if self.call.attrs is not None else Attrs(None, {})

    def type(self, index: int) -> TensorType:
        """The Relay type of a tensor argument."""
        found = self.call.args[index].checked_type
        assert isinstance(found, TensorType), "type inference has checked it"
        return found

    def fields(self, index: int) -> tuple[TensorType, ...]:
        """The Relay types of a tuple argument's fields."""
        found = self.call.args[index].checked_type
        assert isinstance(found, TupleType), "type inference has checked it"
        return found.fields  # type: ignore[return-value]

    @property
    def result(self) -> Any:
        """The Relay type of the call."""
        return self.call.checked_type

    def shape(self, index: int) -> tuple[int, ...]:
        """The shape of a tensor argument.

        Raises:
            DynamicShape: a dimension is known only at run time.
        """
        return self.static(self.type(index))

    def static(self, type_: TensorType) -> tuple[int, ...]:
        if not type_.is_static:
            raise DynamicShape(
                f"{self.name} of {type_}",
                "static shapes",
                "Give the dimension a size, or keep this operator out of the dynamic part",
            )
        return tuple(int(d) for d in type_.shape)  # type: ignore[arg-type]

    def result_shape(self) -> tuple[int, ...]:
        return self.static(self.result)

    def unsupported(self, got: str, expected: str = "", remedy: str = "") -> UnsupportedOp:
        return UnsupportedOp(f"{self.name} with {got}", expected, remedy)

    # ---- making Relax expressions

    def emit(self, expr: RelaxExpr) -> RelaxExpr:
        """Bind an expression to a variable, whose shape is then known."""
        return self.builder.emit(expr)

    def te(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> RelaxExpr:
        """Call a tensor expression (of topi, say) on Relax arguments."""
        return self.builder.emit_te(
            function, *args, primfunc_name_hint=self.name.replace(".", "_"), **kwargs
        )

    def const(self, value: Any, dtype: str) -> RelaxExpr:
        """A constant of a dtype."""
        return constant(np.asarray(value), dtype)

    def meet(self, a: RelaxExpr, b: RelaxExpr, axes: int | None = None) -> RelaxExpr:
        """`b`, whose unknown sizes are taken to be those of `a` where `a`'s are unknown too.

        Two `?` of Relay are two sizes for Relax, which could then not tell the result's shape;
        that they are equal is checked at run time. Axes are compared from the last one on, or
        only the first `axes` ones.
        """
        shape_a, shape_b = (getattr(e.ty.shape, "values", None) for e in (a, b))
        if shape_a is None or shape_b is None:
            return b
        sizes = list(shape_b)
        skip = 0 if axes is not None else len(shape_a) - len(shape_b)
        for i in range(len(sizes) if axes is None else axes):
            if 0 <= i + skip < len(shape_a) and not _is_int(shape_a[i + skip], sizes[i]):
                sizes[i] = shape_a[i + skip]
        if all(x is y or x.same_as(y) for x, y in zip(sizes, shape_b, strict=True)):
            return b
        return self.builder.match_cast(b, relax.TensorType(sizes, b.ty.dtype))

    def reshape(self, expr: RelaxExpr, shape: Sequence[int]) -> RelaxExpr:
        """A reshape; a constant is reshaped here."""
        if is_const(expr):
            return constant(expr.value.numpy().reshape(tuple(shape)))
        return self.emit(relax.op.reshape(expr, tuple(shape)))

    def permute(self, expr: RelaxExpr, axes: Sequence[int]) -> RelaxExpr:
        """A transpose; a constant is transposed here, the identity is left out."""
        if list(axes) == list(range(len(axes))):
            return expr
        if is_const(expr):
            return constant(np.ascontiguousarray(expr.value.numpy().transpose(axes)))
        return self.emit(relax.op.permute_dims(expr, list(axes)))

    def cast(self, expr: RelaxExpr, dtype: str) -> RelaxExpr:
        return self.emit(relax.op.astype(expr, dtype))


Converter = Callable[[OpCall], RelaxExpr]
CONVERTERS: dict[str, Converter] = {}


def converter(*names: str) -> Callable[[Converter], Converter]:
    """Register a function as the converter of operators."""

    def register(function: Converter) -> Converter:
        for name in names:
            CONVERTERS[name] = function
        return function

    return register


def constant(value: np.ndarray, dtype: str | None = None) -> RelaxExpr:
    """A Relax constant of a numpy array."""
    from convoy.relay.builder import numpy_dtype

    array = np.asarray(value) if dtype is None else np.asarray(value).astype(numpy_dtype(dtype))
    # The dtype is given because TVM narrows float64 by default.
    return relax.const(np.ascontiguousarray(array).reshape(array.shape), dtype_name(array.dtype))


def _is_int(*sizes: Any) -> bool:
    """Whether one of the sizes is a number."""
    return any(hasattr(size, "value") for size in sizes)


def is_const(expr: RelaxExpr) -> bool:
    """Whether an expression is a tensor constant."""
    return isinstance(expr, GenericConst)
