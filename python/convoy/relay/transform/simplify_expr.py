"""SimplifyExpr: drop operators that change nothing, and join those that follow one another."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from convoy.relay.ast import Call, Constant, Expr, op_call
from convoy.relay.builder import numpy_dtype
from convoy.relay.transform.base import Pass, register_pass
from convoy.relay.transform.rewriting import call_pass, op_name, scalar
from convoy.relay.types import TensorType

_RESHAPES = {"reshape", "contrib_reverse_reshape"}
# Dtypes in the order of what they can represent, as TVM compares them.
_KINDS = ("int", "uint", "float")


@register_pass
def SimplifyExpr() -> Pass:
    """Simplify reshapes, transposes, casts, `*_like`, arithmetic with constants, 1 / sqrt."""
    return call_pass("SimplifyExpr", 0, lambda: _Simplifier().rule)


@register_pass
def SimplifyExprPostAlterOp() -> Pass:
    """Do as SimplifyExpr."""
    return call_pass("SimplifyExprPostAlterOp", 0, lambda: _Simplifier().rule)


class _Simplifier:
    """The rules for one function; a replacement keeps the type of what it replaces."""

    def __init__(self) -> None:
        self.types: dict[int, tuple[Expr, TensorType]] = {}

    def rule(self, pre: Call, call: Call) -> Expr | None:
        """Simplify a call until no rule applies; see `rewriting.Rule`."""
        for before, after in zip(pre.args, call.args, strict=True):
            self._remember(after, before.checked_type)
        result = pre.checked_type
        if not isinstance(result, TensorType):
            return None
        current: Expr = call
        while isinstance(current, Call) and op_name(current) in _RULES:
            found = _RULES[op_name(current)](self, current, result)
            if found is None:
                break
            current = found
        self._remember(current, result)
        return current

    def _remember(self, expr: Expr, type_: object) -> None:
        if isinstance(type_, TensorType):
            self.types.setdefault(id(expr), (expr, type_))

    def type(self, expr: Expr) -> TensorType | None:
        """Return the type of an expression, None where it is not known."""
        if id(expr) in self.types:
            return self.types[id(expr)][1]
        return expr.checked_type_ if isinstance(expr.checked_type_, TensorType) else None

    # ---- shapes

    def reshape(self, call: Call, result: TensorType) -> Expr | None:
        inner = call.args[0]
        if op_name(inner) not in _RESHAPES or not result.is_static:
            return None
        assert isinstance(inner, Call)
        data = inner.args[0]
        if self.type(data) == result:
            return data
        return op_call("reshape", [data], newshape=result.concrete_shape)

    def transpose(self, call: Call, result: TensorType) -> Expr | None:
        axes, inner = _axes(call, len(result.shape)), call.args[0]
        if isinstance(inner, Call) and (packed := _between_layouts(inner, call)) is not None:
            return packed
        if axes is None:
            return None
        if axes == list(range(len(axes))):
            return inner
        before = _axes(inner, len(axes)) if isinstance(inner, Call) else None
        if before is None:
            return None
        return op_call("transpose", [inner.args[0]], axes=[before[a] for a in axes])  # type: ignore[attr-defined]

    def like(self, call: Call, result: TensorType) -> Expr | None:
        if not result.is_static:
            return None
        name, shape, dtype = op_name(call), result.concrete_shape, result.dtype
        if name == "reshape_like":
            return op_call("reshape", [call.args[0]], newshape=shape)
        if name in ("zeros_like", "ones_like"):
            return op_call(name.removesuffix("_like"), [], shape=shape, dtype=dtype)
        if name == "full_like":
            return op_call("full", [call.args[1]], shape=shape, dtype=dtype)
        if name == "broadcast_to_like":
            return op_call("broadcast_to", [call.args[0]], shape=shape)
        sizes = Constant(np.array(shape, "int32"))
        return op_call("collapse_sum_to", [call.args[0], sizes])

    # ---- casts

    def cast(self, call: Call, result: TensorType) -> Expr | None:
        inner, given = call.args[0], self.type(call.args[0])
        if op_name(call) == "cast_like":
            return op_call("cast", [inner], dtype=result.dtype)
        if given is not None and given.dtype == result.dtype:
            return inner
        if not isinstance(inner, Call) or op_name(inner) not in ("cast", "cast_like"):
            return None
        data = inner.args[0]
        source = self.type(data)
        if source is None or given is None:
            return None
        if _widens(source.dtype, given.dtype):
            return op_call("cast", [data], dtype=result.dtype)
        if op_name(data) == "clip" and _keeps(data, given.dtype):
            # Numbers that the clip left fit into the dtype between.
            if source.dtype == result.dtype:
                return data
            if numpy_dtype(result.dtype).kind in "iu" and _widens(given.dtype, result.dtype):
                return op_call("cast", [data], dtype=result.dtype)
        return None

    def clip(self, call: Call, result: TensorType) -> Expr | None:
        inner = call.args[0]
        if numpy_dtype(result.dtype).kind not in "iu":
            return None
        info = np.iinfo(numpy_dtype(result.dtype))
        assert call.attrs is not None
        outside = call.attrs["a_min"] <= info.min and call.attrs["a_max"] >= info.max
        return inner if outside else None

    # ---- arithmetic

    def arithmetic(self, call: Call, result: TensorType) -> Expr | None:
        name = op_name(call)
        identity = 0 if name in ("add", "subtract") else 1
        lhs, rhs = call.args
        if name == "add" and lhs is rhs:
            return op_call("multiply", [lhs, scalar(2, result.dtype)])
        if name in ("add", "multiply") and (joined := _joined(call)) is not None:
            return joined
        if name == "multiply" and (distributed := _distributed(call)) is not None:
            return distributed
        for data, other, right in ((lhs, rhs, True), (rhs, lhs, False)):
            value = self._number(other)
            if value is None or self.type(data) != result:
                continue
            if value == identity and (right or name in ("add", "multiply")):
                return data
            if not isinstance(other, Constant):
                number = scalar(value, result.dtype)
                self._remember(number, TensorType((), result.dtype))
                return op_call(name, [data, number] if right else [number, data])
        if name == "divide" and op_name(call.args[1]) == "sqrt":
            root = call.args[1]
            assert isinstance(root, Call)
            if isinstance(call.args[0], Constant):
                inverse = op_call("rsqrt", root.args)
                found = self.type(root)
                self._remember(inverse, found)
                one = self._number(call.args[0]) == 1 and found == result
                return inverse if one else op_call("multiply", [call.args[0], inverse])
        return None

    def _number(self, expr: Expr) -> float | None:
        """Return the number that all elements of an expression are, None for any other."""
        if op_name(expr) in ("zeros", "zeros_like"):
            return 0
        if op_name(expr) in ("ones", "ones_like"):
            return 1
        if isinstance(expr, Call) and op_name(expr) == "full":
            return self._number(expr.args[0])
        if isinstance(expr, Constant) and expr.value.size == 1:
            return expr.value.item()
        return None

    # ---- order of quantized values

    def order(self, call: Call, result: TensorType) -> Expr | None:
        inner = call.args[0]
        if op_name(inner) != "qnn.dequantize":
            return None
        assert isinstance(inner, Call)
        scale = self._number(inner.args[1])
        if scale is None or scale <= 0 or self._number(inner.args[2]) is None:
            return None
        return Call(call.op, [inner.args[0]], call.attrs)


def _axes(call: Call, rank: int) -> list[int] | None:
    """Return the order of axes of a transpose, None for what is none."""
    if op_name(call) == "layout_transform":
        assert call.attrs is not None
        source, target = call.attrs["src_layout"], call.attrs["dst_layout"]
        plain = sorted(source) == sorted(target) and source.isupper()
        return [source.index(a) for a in target] if plain else None
    if op_name(call) != "transpose":
        return None
    axes = call.attrs["axes"] if call.attrs else None
    return [int(a) % rank for a in axes] if axes is not None else list(range(rank))[::-1]


def _between_layouts(inner: Call, call: Call) -> Expr | None:
    """Return one change of layout for two that follow one another, one of them of packed channels.

    A transpose is a change of layout too.
    """
    if op_name(call) == "layout_transform":
        middle, target = _layouts(call)
        source = _layout_before(inner, middle)
    elif op_name(call) == "transpose" and op_name(inner) == "layout_transform":
        source, middle = _layouts(inner)
        axes = _axes(call, len(middle)) or []
        target = "".join(middle[a] for a in axes) if middle.isalpha() else ""
    else:
        return None
    if not source or not target or (source + middle + target).isalpha():
        return None
    if source == target:
        return inner.args[0]
    return op_call("layout_transform", inner.args, src_layout=source, dst_layout=target)


def _layouts(call: Call) -> tuple[str, str]:
    """Return the layouts before and after a layout_transform."""
    assert call.attrs is not None
    return call.attrs["src_layout"], call.attrs["dst_layout"]


def _layout_before(call: Call, after: str) -> str:
    """Return the layout before a change to the layout `after`, "" for anything else."""
    if op_name(call) == "layout_transform":
        source, target = _layouts(call)
        return source if target == after else ""
    axes = _axes(call, len(after)) if op_name(call) == "transpose" and after.isalpha() else None
    return "".join(after[axes.index(a)] for a in range(len(axes))) if axes else ""


def _with_constant(expr: Expr, name: str) -> tuple[Expr, np.ndarray] | None:
    """Return the operands of a sum or product with a constant, the constant last."""
    if isinstance(expr, Call) and op_name(expr) == name:
        for data, constant in (expr.args, reversed(expr.args)):
            if isinstance(constant, Constant):
                return data, constant.value
    return None


def _joined(call: Call) -> Expr | None:
    """Return `x + (a + b)` for `(x + a) + b`, and so for products."""
    name = op_name(call)
    outer = _with_constant(call, name)
    inner = _with_constant(outer[0], name) if outer else None
    if outer is None or inner is None:
        return None
    join = np.add if name == "add" else np.multiply
    return op_call(name, [inner[0], Constant(join(inner[1], outer[1]))])


def _distributed(call: Call) -> Expr | None:
    """Return `x * b + a * b` for `(x + a) * b`, so that sums with constants meet."""
    outer = _with_constant(call, "multiply")
    inner = _with_constant(outer[0], "add") if outer else None
    if outer is None or inner is None:
        return None
    product = op_call("multiply", [inner[0], Constant(outer[1])])
    shift = Constant(inner[1] * outer[1])
    return op_call("add", [_joined(product) or product, shift])


def _widens(before: str, after: str) -> bool:
    """Check whether a cast keeps every value, as far as dtypes are concerned."""
    kinds = ["uint" if d == "bool" else d.rstrip("0123456789") for d in (before, after)]
    if any(kind not in _KINDS for kind in kinds) or after == "bool":
        return before == after
    sizes = [numpy_dtype(d).itemsize if d != "bool" else 0 for d in (before, after)]
    if kinds[0] == kinds[1]:
        return sizes[0] <= sizes[1]
    if kinds[1] == "float":  # an integer that a float may round is as exact as the final cast
        return True
    return kinds == ["uint", "int"] and sizes[0] < sizes[1]


def _keeps(clip: Expr, dtype: str) -> bool:
    kind = numpy_dtype(dtype)
    assert isinstance(clip, Call) and clip.attrs is not None
    if kind.kind not in "iu":
        return False
    info = np.iinfo(kind)
    return bool(clip.attrs["a_min"] >= info.min and clip.attrs["a_max"] <= info.max)


_Method = Callable[[_Simplifier, Call, TensorType], Expr | None]
_RULES: dict[str, _Method] = {
    **dict.fromkeys(_RESHAPES, _Simplifier.reshape),
    **dict.fromkeys(("transpose", "layout_transform"), _Simplifier.transpose),
    **dict.fromkeys(
        (
            "reshape_like", "zeros_like", "ones_like", "full_like", "broadcast_to_like",
            "collapse_sum_like",
        ),
        _Simplifier.like,
    ),
    **dict.fromkeys(("cast", "cast_like"), _Simplifier.cast),
    "clip": _Simplifier.clip,
    **dict.fromkeys(("add", "subtract", "multiply", "divide"), _Simplifier.arithmetic),
    **dict.fromkeys(("argmax", "argmin", "argsort"), _Simplifier.order),
}  # fmt: skip
