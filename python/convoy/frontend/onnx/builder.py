"""Emit the operators of an ONNX model as Relax."""

from __future__ import annotations

import operator
import re
from typing import Any

import numpy as np
from tvm import relax
from tvm.ir import GenericConst

from ...errors import InvalidModel
from ...graph.expr import dtype_of, is_tensor, shape_of
from ...normalize.name_layers import named
from ...onnx.builder import Builder
from .recurrent import NATIVE


class RelaxBuilder(Builder):
    """Bindings of a :class:`relax.BlockBuilder`, ``block``, named after the nodes, as are the
    layers of convolutions and matmuls."""

    native = NATIVE

    def __init__(self) -> None:
        self.block = relax.BlockBuilder()

    def is_expr(self, value: Any) -> bool:
        return isinstance(value, relax.Expr)

    def constant(self, array: np.ndarray) -> relax.Expr:
        if not array.size:  # a module that is saved has no empty constants
            return self.block.emit(relax.op.zeros(array.shape, str(array.dtype)))
        array = np.ascontiguousarray(array).reshape(array.shape)
        return self.block.normalize(relax.const(array, str(array.dtype)))

    def apply(self, op: str, *args: Any, **attrs: Any) -> relax.Expr:
        return operator.attrgetter(op)(relax.op)(*args, **attrs)

    def has(self, op: str) -> bool:
        return False

    def emit(self, expr: relax.Expr, name: str) -> relax.Expr:
        if not isinstance(expr, relax.Var | GenericConst):
            hint = re.sub(r"\W+", "_", name).strip("_")
            # The block has names of functions and of variables in one place.
            expr = self.block.emit(named(expr, name), "value" if hint == "main" else hint)
        if is_tensor(expr) and min(shape := shape_of(expr), default=0) < 0:
            raise InvalidModel(f"a result of shape {shape}", "data as large as its windows")
        return expr

    def item(self, expr: relax.Expr, index: int) -> relax.Expr:
        return relax.TupleGetItem(expr, index)

    def dims(self, expr: relax.Expr) -> tuple[int, ...]:
        return shape_of(expr)

    def dtype(self, expr: relax.Expr) -> str:
        return dtype_of(expr)
