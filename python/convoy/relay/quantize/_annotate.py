"""Rounding to integers, simulated: a quantize and a dequantize whose scale is a variable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import IntEnum

import numpy as np

from convoy.relay import ast
from convoy.relay.ast import Call, Constant, Expr, Function, Var, op_call
from convoy.relay.quantize.config import QConfig
from convoy.relay.transform.rewriting import is_primitive, op_name
from convoy.relay.types import TensorType
from convoy.relay.visit import children, post_order, rebuild

_CONVOLUTIONS = ("nn.conv1d", "nn.conv2d", "nn.conv2d_transpose")
_GEMMS = ("nn.dense", "nn.batch_matmul")
# Operators that have integer rules and keep the quantization of their first argument.
_FOLLOW = (
    "nn.relu", "nn.bias_add", "add", "subtract", "clip", "nn.max_pool2d", "nn.batch_flatten",
    "reshape", "squeeze", "transpose", "expand_dims", "strided_slice",
)  # fmt: skip
# These are cheaper on 8 bits than on sums of 32.
_NARROW = ("nn.batch_flatten", "nn.max_pool2d")


class QAnnotateKind(IntEnum):
    """Kind of a rounded tensor."""

    IDENTITY = 0
    INPUT = 1
    WEIGHT = 2
    ACTIVATION = 3


def attach_simulated_quantize(
    data: Expr, kind: QAnnotateKind, sign: bool = True, rounding: str = "round"
) -> Expr:
    """Round a tensor to 8-bit integers times a scale, a new variable.

    Args:
        data: The tensor.
        kind: What it is; a part of the variable's name.
        sign: Whether it has negative values.
        rounding: "round".
    """
    del rounding
    scale = Var(f"{QAnnotateKind(kind).name.lower()}_scale", TensorType((), "float32"))
    return rounded(data, scale, "int8" if sign else "uint8")


def rounded(data: Expr, scale: Expr, dtype: str) -> Expr:
    """Quantize and dequantize a tensor."""
    zero = Constant(np.asarray(0, "int32"))
    quantized = op_call("qnn.quantize", [data, scale, zero], axis=-1, out_dtype=dtype)
    args = [quantized, scale, zero]
    return op_call("qnn.dequantize", args, axis=-1, out_dtype="float32")


class Annotator:
    """Annotate one function.

    Attributes:
        points: For each scale the tensor that it belongs to, as it was, and its kind.
    """

    def __init__(self, config: QConfig) -> None:
        self.config = config
        self.points: dict[Var, tuple[Expr, QAnnotateKind]] = {}
        self._rounded: dict[tuple[int, int], Expr] = {}
        self._integers: set[Expr] = set()  # computed from integers alone
        self._convolutions = 0
        self._users: Counter[int] = Counter()

    def annotated(self, function: Function) -> Function:
        """Return the function with the inputs of convolutions and GEMMs rounded."""
        memo: dict[int, Expr] = {}
        for node in post_order(function):
            self._users.update(map(id, children(node)))
        for node in post_order(function, lambda n: not is_primitive(n)):
            new = node if is_primitive(node) else rebuild(node, memo)
            if isinstance(node, Call) and isinstance(new, Call):
                new = self._call(node, new)
            memo[id(node)] = new
        return memo[id(function)]  # type: ignore[return-value]

    def _call(self, node: Call, new: Call) -> Expr:
        name = op_name(node)
        if not self._is_float(node):
            return new
        if self._wanted(name):
            self._integers.add(node)
            last = QAnnotateKind.INPUT if name == "nn.batch_matmul" else QAnnotateKind.WEIGHT
            return self._with(node, new, (QAnnotateKind.INPUT, last))
        if name in ("add", "subtract") and self._is_sum(node):
            self._integers.add(node)
            return self._with(node, new, [self._summand(a) for a in node.args])
        if name in _FOLLOW and node.args[0] in self._integers:
            self._integers.add(node)
            if name in _NARROW or self._is_shared(node.args[0]):
                return self._with(node, new, (QAnnotateKind.INPUT,))
        return new

    def _summand(self, arg: Expr) -> QAnnotateKind | None:
        """Round what the other summand of a residual block is, and what others use too."""
        if isinstance(arg, Constant) or (arg in self._integers and not self._is_shared(arg)):
            return None
        return QAnnotateKind.INPUT

    def _is_shared(self, arg: Expr) -> bool:
        """Check for a value of several users: it is rounded once, for all of them."""
        return self._users[id(arg)] > 1

    def _with(self, node: Call, new: Call, kinds: Sequence[QAnnotateKind | None]) -> Call:
        pairs = zip(node.args, new.args, strict=True)
        rest = [*kinds, *[None] * (len(new.args) - len(kinds))]
        args = [
            arg if kind is None else self._point(old, arg, kind)
            for (old, arg), kind in zip(pairs, rest, strict=True)
        ]
        return Call(new.op, args, new.attrs, span=new.span)

    def _point(self, old: Expr, new: Expr, kind: QAnnotateKind) -> Expr:
        if kind is QAnnotateKind.WEIGHT and not isinstance(old, Constant):
            kind = QAnnotateKind.INPUT
        key = (id(old), kind)
        if key not in self._rounded:
            found = attach_simulated_quantize(new, kind)
            scale = found.args[1]  # type: ignore[attr-defined]
            self.points[scale] = (old, kind)
            self._rounded[key] = found
        return self._rounded[key]

    def _wanted(self, name: str) -> bool:
        config = self.config
        if name in _CONVOLUTIONS:
            number = self._convolutions
            self._convolutions += 1
            if number in (config.skip_conv_layers or ()):
                return False
        elif name not in _GEMMS or (name == "nn.dense" and config.skip_dense_layer):
            return False
        return config.debug_enabled_ops is None or name in config.debug_enabled_ops

    def _is_sum(self, node: Call) -> bool:
        """Check for a sum with one summand of integers, and no constant of many sizes."""
        return any(a in self._integers for a in node.args)

    @staticmethod
    def _is_float(node: Expr) -> bool:
        found = node.checked_type_
        return (
            isinstance(found, TensorType)
            and found.dtype == "float32"
            and not isinstance(node, ast.Tuple)
        )
