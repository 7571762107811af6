"""FlexibleShapeDispatch: one network for several sizes of an axis, each compiled for itself."""

from __future__ import annotations

from collections.abc import Sequence

from convoy.errors import InvalidOption
from convoy.relay import ast
from convoy.relay.ast import Expr, Function, GlobalVar, Var, op_call
from convoy.relay.builder import const
from convoy.relay.infer import infer_module
from convoy.relay.module import IRModule
from convoy.relay.ops.padding import pad
from convoy.relay.ops.slicing import strided_slice
from convoy.relay.types import Any, TensorType, TupleType, Type
from convoy.relay.visit import rewrite


class FlexibleShapeDispatch:
    """Compile `main` for several sizes of an axis; a run takes the code of its size.

    Args:
        buckets: The sizes.
        axis: The axis of the inputs and, with `affects_output`, of the results.
        auto_pad: Whether a size between two buckets is padded with zeros to the larger one, and
            the result cut. Right only for networks that treat the positions of the axis apart.
        pad_value: The value to pad with; None is 0.
        input_indices: The inputs with the axis; None is the first one.
        affects_output: Whether the results have the axis too.

    Raises:
        InvalidOption: No sizes, or no such inputs.
    """

    def __init__(
        self,
        buckets: Sequence[int],
        axis: int = 0,
        auto_pad: bool = False,
        pad_value: float | None = None,
        input_indices: Sequence[int] | None = None,
        affects_output: bool = True,
    ) -> None:
        if not buckets:
            raise InvalidOption("no buckets", "one size or more")
        self.buckets, self.axis = sorted({int(b) for b in buckets}), axis
        self.auto_pad, self.pad_value = auto_pad, pad_value or 0
        self.input_indices = [0] if input_indices is None else list(input_indices)
        self.affects_output = affects_output

    def __call__(self, mod: IRModule) -> IRModule:
        """Return a module whose `main` dispatches on the size."""
        mod = infer_module(mod).shallow_copy()
        main = mod["main"]
        if not all(0 <= i < len(main.params) for i in self.input_indices):
            raise InvalidOption(
                f"input_indices={self.input_indices}", f"numbers of the {len(main.params)} inputs"
            )
        for size in self.buckets:
            mod[f"main_{size}"] = self._specialized(main, size)
        infer_module(mod)
        mod["main"] = self._dispatch(mod, main)
        return infer_module(mod)

    def _resized(self, found: Type, size: int | Any) -> Type:
        if isinstance(found, TupleType):
            return TupleType([self._resized(field, size) for field in found.fields])
        assert isinstance(found, TensorType)
        shape = list(found.shape)
        shape[self.axis] = size
        return TensorType(shape, found.dtype)

    def _params(self, main: Function, size: int | Any) -> list[Var]:
        return [
            Var(p.name_hint, self._resized(t, size) if i in self.input_indices else t)
            for i, p in enumerate(main.params)
            if (t := p.checked_type) is not None
        ]

    def _specialized(self, main: Function, size: int) -> Function:
        params = self._params(main, size)
        binds = dict(zip(main.params, params, strict=True))
        body = rewrite(main.body, lambda n: binds.get(n) if isinstance(n, Var) else None)
        return Function(params, body, None, main.type_params)

    def _dispatch(self, mod: IRModule, main: Function) -> Function:
        """Build `if size == bucket: call it`, or `size <= bucket` with padding."""
        params = self._params(main, Any())
        data = params[self.input_indices[0]]
        sizes = op_call("shape_of", [data], dtype="int32")
        found = op_call("take", [sizes, const(self.axis)], axis=0)
        fits = "less_equal" if self.auto_pad else "equal"
        # The largest bucket takes what no other one does; an input that does not fit is refused
        # by the function's type.
        body: Expr | None = None
        for size in reversed(self.buckets):
            call = self._call(mod, size, params, found)
            if body is not None:
                call = ast.If(op_call(fits, [found, const(size)]), call, body)
            body = call
        assert body is not None
        result = main.checked_type.ret_type  # type: ignore[attr-defined]
        return Function(params, body, self._resized(result, Any()) if self.affects_output else None)

    def _call(self, mod: IRModule, size: int, params: Sequence[Var], found: Expr) -> Expr:
        """Call the function of a bucket with inputs of its size."""
        callee = mod.get_global_var(f"main_{size}")
        args: list[Expr] = list(params)
        for index in self.input_indices:
            if self.auto_pad:
                args[index] = self._padded(params[index], size, found)
        result = ast.Call(GlobalVar(callee.name_hint), args)
        if not self.affects_output:
            return result
        # A variable of unknown size, because both branches of an `if` have one type.
        type_ = mod[f"main_{size}"].checked_type.ret_type
        var = Var(f"out_{size}", self._resized(type_, Any()))
        return ast.Let(var, result, self._cut(var, type_, found) if self.auto_pad else var)

    def _padded(self, data: Var, size: int, found: Expr) -> Expr:
        type_ = data.type_annotation
        assert isinstance(type_, TensorType)
        rank, axis = len(type_.shape), self.axis % len(type_.shape)
        after = op_call("subtract", [const(size), found])
        missing = op_call("reshape", [after], newshape=[1, 1])
        width = pad(missing, [[axis, rank - 1 - axis], [1, 0]])
        return pad(data, width, const(self.pad_value, type_.dtype))

    def _cut(self, result: Expr, type_: Type, found: Expr) -> Expr:
        """Cut results to the size of the inputs."""
        if isinstance(type_, TupleType):
            return ast.Tuple(
                [
                    self._cut(ast.TupleGetItem(result, i), field, found)
                    for i, field in enumerate(type_.fields)
                ]
            )
        assert isinstance(type_, TensorType)
        shape, axis = type_.concrete_shape, self.axis % len(type_.shape)
        parts: list[Expr] = [const([d]) for d in shape]
        parts[axis] = op_call("reshape", [found], newshape=[1])
        end = op_call("concatenate", [ast.Tuple(parts)], axis=0)
        begin, strides = const([0] * len(shape)), const([1] * len(shape))
        return strided_slice(result, begin, end, strides)
