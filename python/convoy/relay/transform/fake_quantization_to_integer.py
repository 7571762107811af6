"""FakeQuantizationToInteger: compute in integers between dequantize and quantize.

A network that was trained or calibrated for integers computes `quantize(op(dequantize(q)))`. Where
all operators between have a rule, they are replaced by operators of integers; see
`transform/integer_rules.py` for the rules, and `register_fake_quantization_to_integer` to add some.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import convoy.relay.transform.integer_rules  # noqa: F401
from convoy.errors import ConvoyError
from convoy.relay import ast
from convoy.relay.affine import TensorAffineType, TupleAffineType
from convoy.relay.ast import Call, Expr, op_call
from convoy.relay.infer import infer_expr
from convoy.relay.infer.incremental import type_of
from convoy.relay.registration import (
    register_fake_quantization_to_integer,
    register_optional_fake_quantization_to_integer,
)
from convoy.relay.transform.base import FunctionPass, Pass, register_pass
from convoy.relay.transform.rewriting import expr_pass, op_name
from convoy.relay.types import TensorType
from convoy.relay.visit import children, post_order, rebuild

__all__ = [
    "FakeQuantizationToInteger",
    "register_fake_quantization_to_integer",
    "register_optional_fake_quantization_to_integer",
]

AffineType = TensorAffineType | TupleAffineType
_RULE, _OPTIONAL = "FTVMFakeQuantizationToInteger", "FTVMOptionalFakeQuantizationToInteger"
_EDGES = ("qnn.quantize", "qnn.dequantize", "qnn.requantize")
# Averages take the quantization of the result only right before it: else a coarse final step would
# be that of all that follows.
_AVERAGES = ("nn.avg_pool2d", "nn.global_avg_pool2d", "nn.adaptive_avg_pool1d", "mean")
# Operators whose results' quantization follows from that of their arguments.
_FROM_ARGUMENTS = {
    "broadcast_to", "clip", "expand_dims", "max", "maximum", "min", "minimum", "nn.avg_pool2d",
    "nn.batch_flatten", "nn.batch_matmul", "nn.bias_add", "nn.conv2d", "nn.conv2d_transpose",
    "nn.dense", "nn.depth_to_space", "nn.global_avg_pool2d", "nn.max_pool2d", "nn.pad", "nn.relu",
    "reshape", "split", "squeeze", "strided_slice", "transpose",
}  # fmt: skip


@register_pass
def FakeQuantizationToInteger(
    hard_fail: bool = False, use_qat: bool = False, optional_qnn_ops: Collection[str] | None = None
) -> Pass:
    """Replace arithmetic between dequantize and quantize by arithmetic of integers.

    Args:
        hard_fail: Raise the error of an operator without a rule, or of a rule, instead of leaving
            that part of the network as it is.
        use_qat: Also move dequantize behind operators that no quantize follows, as far as their
            rules need no scale of the result.
        optional_qnn_ops: Names of operators that are replaced although integers are less exact:
            `nn.softmax`.
    """
    optional = frozenset(optional_qnn_ops or ())

    def run(function: Expr) -> Expr:
        found = _between(function, hard_fail, optional)
        return _behind(infer_expr(found)) if use_qat else found

    made: FunctionPass = expr_pass("FakeQuantizationToInteger", 0, run)
    return made


def _rule(name: str, optional: Collection[str] = ()) -> Any:
    """Return the rule of an operator, or None."""
    operator = ast.op(name)
    found = operator.get_attr(_RULE)
    return operator.get_attr(_OPTIONAL) if found is None and name in optional else found


def _between(function: Expr, hard_fail: bool, optional: Collection[str]) -> Expr:
    """Rewrite every quantize, inner ones first."""
    memo: dict[int, Expr] = {}
    for node in post_order(function):
        new = memo[id(node)] = rebuild(node, memo)
        if op_name(node) != "qnn.quantize":
            continue
        assert isinstance(new, Call)
        region = quantized_region(new)
        missing = [n for n in map(op_name, region) if n and _rule(n, optional) is None]
        if not region or (missing and not hard_fail):
            continue
        try:
            if missing:
                raise NotImplementedError(f"no integer rule for {', '.join(missing)}")
            memo[id(node)] = _Region(new, optional).rewritten()
        except (ConvoyError, NotImplementedError, TypeError, ValueError):
            if hard_fail:
                raise
    return memo[id(function)]


def quantized_region(quantize: Call) -> list[Expr]:
    """Return the nodes between a quantize and dequantizes, inner ones first.

    The list is empty where something else comes in: a variable, a function, another quantize.
    """
    region: list[Expr] = []
    dataflow = (ast.Op, ast.Constant, ast.Tuple, ast.TupleGetItem)
    for node in post_order(quantize.args[0], lambda n: op_name(n) != "qnn.dequantize"):
        name = op_name(node)
        if name == "qnn.quantize" or not (name or isinstance(node, dataflow)):
            return []
        if not isinstance(node, (ast.Op, ast.Constant)):
            region.append(node)
    return region if any(op_name(n) == "qnn.dequantize" for n in region) else []


class _Types(dict[Expr, AffineType]):
    """Affine types by expression, with a message for what has none."""

    def __missing__(self, key: Expr) -> AffineType:
        raise NotImplementedError(f"{op_name(key) or type(key).__name__} is not quantized")


class _Region:
    """The rewriting of what one quantize takes."""

    def __init__(self, quantize: Call, optional: Collection[str]) -> None:
        self.quantize, self.optional = quantize, optional
        assert quantize.attrs is not None
        attrs = quantize.attrs
        self.result = TensorAffineType(
            quantize.args[1], quantize.args[2], attrs["out_dtype"], int(attrs["axis"])
        )
        self.types = _Types()
        self.memo: dict[int, Expr] = {}

    def rewritten(self) -> Expr:
        """Return integers in the place of the quantize."""
        for node in [*quantized_region(self.quantize), self.quantize]:
            self._node(node)
        return self.memo[id(self.quantize)]

    def _node(self, node: Expr) -> None:
        name = op_name(node)
        if name == "qnn.dequantize":
            new: Expr = node
            self.types[node] = dequantized_type(node)
        else:
            for child in children(node):
                self.memo.setdefault(id(child), child)
            new = rebuild(node, self.memo)
        if isinstance(new, ast.Tuple):
            self.types[new] = TupleAffineType([self.types[f] for f in new.fields])  # type: ignore[misc]
        elif isinstance(new, ast.TupleGetItem):
            found = self.types[new.tuple_value]
            assert isinstance(found, TupleAffineType)
            self.types[new] = found.types[new.index]
        elif isinstance(new, Call):
            if name not in ("qnn.dequantize", "qnn.quantize"):
                self.types[new] = self._result_type(node, new)
            new, self.types[new] = _applied(name, new, self.types, self.optional)
        self.memo[id(node)] = new

    def _result_type(self, node: Expr, new: Call) -> AffineType:
        inner = op_name(node) in _AVERAGES and node is not self.quantize.args[0]
        return self.types[new.args[0]] if inner else self.result


def dequantized_type(call: Expr) -> TensorAffineType:
    """Return the affine type of the integers that a dequantize takes."""
    assert isinstance(call, Call) and call.attrs is not None
    integers = type_of(call.args[0])
    assert isinstance(integers, TensorType)
    return TensorAffineType(call.args[1], call.args[2], integers.dtype, int(call.attrs["axis"]))


def _applied(
    name: str, call: Call, types: Mapping[Expr, AffineType], optional: Collection[str]
) -> tuple[Expr, AffineType]:
    expr, type_ = _rule(name, optional)(call, types)
    return expr, type_


def _behind(function: Expr) -> Expr:
    """Move dequantize behind operators, one by one."""
    memo: dict[int, Expr] = {}
    for node in post_order(function):
        new = memo[id(node)] = rebuild(node, memo)
        if op_name(node) not in _FROM_ARGUMENTS or not isinstance(new, Call):
            continue
        values = [a for a in new.args if not isinstance(a, ast.Constant)]
        rule = _rule(op_name(node))
        if rule is None or not values or any(op_name(a) != "qnn.dequantize" for a in values):
            continue
        try:
            memo[id(node)] = _dequantized_after(rule, new, values)
        except (ConvoyError, NotImplementedError, TypeError, ValueError):
            continue
    return memo[id(function)]


def _dequantized_after(rule: Any, call: Call, values: list[Expr]) -> Expr:
    types = _Types({value: dequantized_type(value) for value in values})
    integers = {id(v): v.args[0] for v in values if isinstance(v, Call)}
    args = [integers.get(id(a), a) for a in call.args]
    types.update({integers[id(v)]: types[v] for v in values})
    moved = Call(call.op, args, call.attrs, span=call.span)
    types[moved] = types[integers[id(values[0])]]
    expr, found = rule(moved, types)
    if isinstance(found, TupleAffineType):
        parts = [ast.TupleGetItem(expr, i) for i in range(len(found.types))]
        fields = [_dequantize(p, t, values[0]) for p, t in zip(parts, found.types, strict=True)]
        return ast.Tuple(fields)
    return _dequantize(expr, found, values[0])


def _dequantize(expr: Expr, found: TensorAffineType, before: Expr) -> Expr:
    """Dequantize to the dtype of an earlier dequantize."""
    assert isinstance(before, Call) and before.attrs is not None
    args = [expr, found.scale, found.zero_point]
    dtype = before.attrs["out_dtype"]
    return op_call("qnn.dequantize", args, axis=found.axis, out_dtype=dtype)
