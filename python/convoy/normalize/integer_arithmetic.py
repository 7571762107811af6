"""Convolutions and matmuls of quantized data and weights -> those of int8 with sums in int32.

Importers write them with integers in int32 without the zero points, or with the floats that the
integers stand for: ``scale * (q - zero)``, and weights with their scale multiplied in. Of the
latter only the rounding of float32 changes: the sums of integers are exact, and scaled once.
The zero point of the data leaves a constant for each output channel, which becomes the bias;
padding is done before, with the zero point. uint8 becomes int8 by a shift of 128, where a value is
quantized if that is in the network: then a kernel may write it behind its own sums. Weights with a
zero point that int8 does not hold are shifted too, and one more channel sums up the data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import tvm
from tvm import relax

from ..graph.expr import (
    as_numpy,
    call_like,
    dtype_of,
    is_const,
    make_const,
    op_name,
    padding4,
    permutation_of,
    rank_of,
    shape_of,
)
from ..graph.function import calls_of
from ..ops.conv_attrs import has_normal_layouts
from .integer_weights import as_integers
from .quantized_data import Quantized, QuantizedData

_CONV, _MATMUL, _CAST = "relax.nn.conv2d", "relax.matmul", "relax.astype"
#: Channels that kernels for integers load at once.
VECTOR = 4
#: Products of int8 in one sum from which on it may not fit into int32.
MOST_PRODUCTS = 1 << 17
#: Rows up to which a product reads its matrix once: float weights stay in 16 bits then.
MOST_ROWS = 16


@dataclass(frozen=True)
class _Operands:
    """Data and weights: ``scales * (int8 + shifts)`` for each output channel.

    With shifts, a channel of ones and channels of zeros, to a multiple of four, follow the
    network's.
    """

    data: Quantized
    weights: np.ndarray
    scales: np.ndarray
    shifts: np.ndarray


class IntegerArithmetic(QuantizedData):
    """Of constant weights: convolutions of one group with channels last, and plain matrices."""

    ops: ClassVar[frozenset[str] | None] = frozenset({_CONV, _MATMUL, _CAST})

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        return super().__call__(mod) if calls_of(mod, frozenset({_CONV, _MATMUL})) else mod

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        if op_name(call) == _CAST:
            return self.narrowed(call)
        if dtype_of(call) not in ("int32", "float32"):
            return None
        return self._convolution(call) if op_name(call) == _CONV else self._matmul(call)

    def _convolution(self, call: relax.Call) -> relax.Expr | None:
        data, kernel = call.args
        if not has_normal_layouts(call) or int(call.attrs.groups) != 1 or not is_const(kernel):
            return None
        padding = padding4(call.attrs.padding)
        found = self._operands(call, data, as_numpy(kernel), any(padding))
        if found is None:
            return None
        more, around = -found.weights.shape[3] % VECTOR, (0, 0, 0, 0)
        if found.data.zero:
            (top, left, bottom, right), padding = padding, (0, 0, 0, 0)
            around = top, bottom, left, right
        x = self.padded(found.data, around, more)
        w = make_const(np.pad(found.weights, [(0, 0)] * 3 + [(0, more)]))
        y = call_like(call, [x, w], padding=padding, out_dtype="int32")
        return self._result(call, y, found)

    def _matmul(self, call: relax.Call) -> relax.Expr | None:
        data, matrix = call.args
        if (turned := self.producer(matrix, "relax.permute_dims")) is not None:
            matrix = turned.args[0]
        if (rank_of(data), rank_of(matrix)) != (2, 2) or not is_const(matrix):
            return None
        if dtype_of(call) == "float32" and shape_of(data)[0] <= MOST_ROWS:
            return None
        swapped = turned is not None and permutation_of(turned) == (1, 0)
        rows = as_numpy(matrix) if swapped else as_numpy(matrix).T
        found = self._operands(call, data, rows, False)
        if found is None:
            return None
        more = -found.weights.shape[1] % VECTOR
        x = self.padded(found.data, (), more)
        w = make_const(np.pad(found.weights, [(0, 0), (0, more)]).T)
        y = call_like(call, [x, w], out_dtype="int32")
        return self._result(call, y, found)

    def _operands(
        self, call: relax.Call, data: relax.Expr, weights: np.ndarray, pads: bool
    ) -> _Operands | None:
        """Data and weights, (k, ...), in 8 bits."""
        result = dtype_of(call)
        if dtype_of(data) != result or str(weights.dtype) not in ("int8", "int32", result):
            return None
        if math.prod(weights.shape[1:]) >= MOST_PRODUCTS:
            return None
        quantized = self.quantized(data)
        if quantized is None:
            return None
        if pads and (quantized.point is not None or not -128 <= quantized.zero <= 127):
            return None
        if (found := as_integers(weights)) is None:
            return None
        integers, scales, shifts = found
        if result == "float32" and not _fit_int32(integers, shifts, quantized.zero):
            return None
        if shifts.any():
            rows = [(0, -(len(integers) + 1) % VECTOR)] + [(0, 0)] * (integers.ndim - 1)
            integers = np.pad(np.concatenate([integers, np.ones_like(integers[:1])]), rows)
        return _Operands(quantized, integers, scales, shifts)

    def _result(self, call: relax.Call, sums: relax.Expr, operands: _Operands) -> relax.Expr:
        """What a call computes, from the sums of ``q`` times the weights."""
        y, data = self.emit(sums), operands.data
        of_ones = operands.weights.astype(np.int64)
        of_ones = of_ones.sum(axis=tuple(range(1, of_ones.ndim)))
        if data.zero:
            y = self.emit(relax.op.add(y, make_const(-data.zero * of_ones, "int32")))
        if data.point is not None:
            shift = self.emit(relax.op.multiply(data.point, make_const(of_ones, "int32")))
            y = self.emit(relax.op.subtract(y, shift))
        if operands.shifts.any():
            count = len(operands.shifts)
            total = self.emit(relax.op.strided_slice(y, [-1], [count], [count + 1]))
            shifted = self.emit(relax.op.multiply(total, make_const(operands.shifts, "int32")))
            y = self.emit(relax.op.strided_slice(y, [-1], [0], [count]))
            y = self.emit(relax.op.add(y, shifted))
        if dtype_of(call) == "int32":
            return y
        y = self.emit(relax.op.astype(y, "float32"))
        return relax.op.multiply(y, make_const(operands.scales * data.scale, "float32"))


def _fit_int32(weights: np.ndarray, shifts: np.ndarray, zero: int) -> bool:
    """Whether no sum of products of ``q - zero`` is beyond int32, where integers wrap around."""
    rows = np.abs(weights.astype(np.int64)).reshape(len(weights), -1)
    largest = (rows.sum(axis=1) + np.abs(shifts) * rows.shape[1]).max()
    return int(largest) * (128 + abs(zero)) < 2**31
