"""``convoy.recurrent``: the steps of an LSTM or GRU whose input projections are known.

An LSTM has the gates i, f, g, o: c' = sigmoid(f) c + sigmoid(i) tanh(g), h' = sigmoid(o) tanh(c').
A GRU has r, z, n: h' = (1 - z) n + z h with n = tanh(x_n + sigmoid(r) (W_n h + b_n)). These are the
formulas of ``torch.nn.LSTM`` and ``torch.nn.GRU``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.relax import op

from ..graph.expr import attr_fields, dtype_of, shape_of
from .registration import NAMESPACE, make_call, register_op

RECURRENT = NAMESPACE + "recurrent"

#: Gates by kind of cell.
GATES = {"lstm": 4, "gru": 3}

Emit = Callable[[relax.Expr], relax.Expr]


@dataclass(frozen=True)
class Recurrent:
    """Sizes of a layer.

    Attributes:
        cell: "lstm" or "gru".
        reversed: Whether the first direction runs backwards; a second one always does.
    """

    cell: str
    time: int
    batch: int
    directions: int
    hidden: int
    dtype: str
    reversed: bool = False

    @classmethod
    def of(cls, call: relax.Call) -> Recurrent:
        """Read the sizes of a call."""
        time, batch, _ = shape_of(call.args[0])
        directions, _, hidden = shape_of(call.args[1])
        attrs = attr_fields(call.attrs)
        return cls(
            str(attrs["cell"]), time, batch, directions, hidden, dtype_of(call.args[0]),
            bool(attrs["reversed"]),
        )  # fmt: skip

    @property
    def gates(self) -> int:
        """Gates of a unit."""
        return GATES[self.cell]

    @property
    def results(self) -> list[tuple[int, ...]]:
        """Shapes of the outputs and of the states after the last step."""
        outputs = (self.time, self.batch, self.directions * self.hidden)
        return [outputs, *[(self.directions, self.batch, self.hidden)] * self.states]

    @property
    def states(self) -> int:
        """2 for an LSTM, which has a cell state beside the hidden one."""
        return 2 if self.cell == "lstm" else 1


def recurrent(
    projected: relax.Expr,
    weights: relax.Expr,
    bias: relax.Expr,
    *states: relax.Expr,
    cell: str,
    reversed: bool = False,
) -> relax.Call:
    """All steps of a layer, in one or two directions.

    Args:
        projected: (time, batch, directions * gates * hidden), with the bias of the input.
        weights: (directions, gates * hidden, hidden), of the hidden state.
        bias: (directions, gates * hidden), of the hidden state.
        states: Before the first step, (directions, batch, hidden): hidden, and the cell's if it is
            an LSTM.
        cell: "lstm" or "gru".
        reversed: Whether the first direction runs backwards; a second one always does.

    Returns:
        The outputs (time, batch, directions * hidden) and the states after the last step.
    """
    return make_call(
        "recurrent", [projected, weights, bias, *states], cell=cell, reversed=bool(reversed)
    )


def _infer(call: relax.Call, _builder: relax.BlockBuilder | None = None) -> tvm.ir.Type:
    layer = Recurrent.of(call)
    return tvm.ir.TupleType([relax.TensorType(shape, layer.dtype) for shape in layer.results])


def unrolled(call: relax.Call, emit: Emit) -> relax.Tuple:
    """The same by a GEMM and element-wise operators for each step."""
    layer = Recurrent.of(call)
    one = _Unrolled(layer, list(call.args), emit)
    found = [one.direction(d) for d in range(layer.directions)]
    outputs, *states = zip(*found, strict=True)
    return relax.Tuple([one.joined(outputs, 2), *(one.joined(state, 0) for state in states)])


@dataclass(frozen=True)
class _Unrolled:
    layer: Recurrent
    args: Sequence[relax.Expr]
    emit: Emit

    def joined(self, parts: Sequence[relax.Expr], axis: int) -> relax.Expr:
        return self.emit(op.concat(list(parts), axis)) if len(parts) > 1 else parts[0]

    def part(self, value: relax.Expr, axis: int, first: int, size: int) -> relax.Expr:
        """``size`` elements along an axis."""
        if shape_of(value)[axis] == size:
            return value
        return self.emit(op.strided_slice(value, [axis], [first], [first + size]))

    def of_direction(self, value: relax.Expr, d: int) -> relax.Expr:
        """The part of an operand, without its first axis."""
        return self.emit(op.squeeze(self.part(value, 0, d, 1), [0]))

    def direction(self, d: int) -> list[relax.Expr]:
        """The outputs (time, batch, hidden) and last states (1, batch, hidden) of a direction."""
        layer, emit = self.layer, self.emit
        width = layer.gates * layer.hidden
        projected = self.part(self.args[0], 2, d * width, width)
        bias = self.of_direction(self.args[2], d)
        weights = emit(op.permute_dims(self.of_direction(self.args[1], d), [1, 0]))
        states = [self.of_direction(state, d) for state in self.args[3:]]
        if layer.cell == "lstm":
            projected = emit(op.add(projected, bias))
        backwards = layer.reversed or d == 1
        outputs = []
        for t in range(layer.time)[:: -1 if backwards else 1]:
            x = emit(op.squeeze(self.part(projected, 0, t, 1), [0]))
            sums = emit(op.matmul(states[0], weights))
            states = self._lstm(x, sums, states) if layer.cell == "lstm" else self._gru(
                x, emit(op.add(sums, bias)), states
            )  # fmt: skip
            outputs.append(emit(op.expand_dims(states[0], [0])))
        ordered = outputs[::-1] if backwards else outputs
        last = [emit(op.expand_dims(state, [0])) for state in states]
        return [self.joined(ordered, 0), *last]

    def _gates(self, value: relax.Expr) -> list[relax.Expr]:
        size = self.layer.hidden
        return [self.part(value, 1, i * size, size) for i in range(self.layer.gates)]

    def _lstm(
        self, x: relax.Expr, sums: relax.Expr, states: Sequence[relax.Expr]
    ) -> list[relax.Expr]:
        emit = self.emit
        i, f, g, o = self._gates(emit(op.add(x, sums)))
        new = emit(op.multiply(emit(op.sigmoid(i)), emit(op.tanh(g))))
        kept = emit(op.multiply(emit(op.sigmoid(f)), states[1]))
        cell = emit(op.add(kept, new))
        return [emit(op.multiply(emit(op.sigmoid(o)), emit(op.tanh(cell)))), cell]

    def _gru(
        self, x: relax.Expr, sums: relax.Expr, states: Sequence[relax.Expr]
    ) -> list[relax.Expr]:
        emit = self.emit
        (xr, xz, xn), (r, z, n) = self._gates(x), self._gates(sums)
        reset = emit(op.sigmoid(emit(op.add(xr, r))))
        update = emit(op.sigmoid(emit(op.add(xz, z))))
        candidate = emit(op.tanh(emit(op.add(xn, emit(op.multiply(reset, n))))))
        one = relax.const(1, self.layer.dtype)
        new = emit(op.multiply(emit(op.subtract(one, update)), candidate))
        return [emit(op.add(new, emit(op.multiply(update, states[0]))))]


def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    return unrolled(call, builder.emit)


register_op("recurrent", "All steps of an LSTM or GRU.", _infer, _legalize, recurrent)
