"""A recurrent layer, unrolled: one matrix product for all inputs, then one for each step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..call import Call, Value

_ALPHA = {"LeakyRelu": 0.01, "ThresholdedRelu": 1.0, "ScaledTanh": 1.0, "HardSigmoid": 0.2,
          "Elu": 1.0, "Affine": 1.0}  # fmt: skip
_BETA = {"HardSigmoid": 0.5, "ScaledTanh": 1.0, "Affine": 0.0}
_PLAIN = ("Sigmoid", "Tanh", "Relu", "Softsign", "Softplus")


@dataclass
class Cell:
    """One direction: ``r`` (hidden, gates * hidden) and biases by gate; ``f``, ``g``, ``h`` are
    the activations, ``p`` the peepholes."""

    call: Call
    hidden: int
    r: Value
    bias: list[Value]
    activations: list[Callable[[Value], Value]]
    peepholes: list[Value]

    def gates(self, value: Value, count: int) -> list[Value]:
        """(batch, count * hidden) as one tensor for each gate."""
        h = self.hidden
        do = self.call.do
        return [
            do("Slice", value, np.array([i * h]), np.array([(i + 1) * h]), np.array([1]))
            for i in range(count)
        ]


#: A step of a cell: from the projected input and the states to the new states, the result first.
Step = Callable[[Cell, Value, list[Value]], list[Value]]


class Unrolled:
    """The directions of a layer.

    Args:
        gates: Number of gates; the weights of all of them are one matrix.
        activations: Default activations of a direction.
        states: 2 where there is a cell state beside the hidden one.
        late: The recurrent bias of the last gate is added before the reset.
    """

    def __init__(
        self,
        call: Call,
        gates: int,
        step: Step,
        activations: tuple[str, ...],
        states: int,
        late: bool = False,
    ) -> None:
        self._call, self._do, self._step = call, call.do, step
        self._gates, self._states, self._late = gates, states, late
        self._x, self._layout = call.value(0), int(call.attrs.get("layout", 0))
        if len(call.shape()) != 3:
            raise call.contradiction("", "data of (steps, batch, features)")
        if self._layout:
            self._x = self._do("Transpose", self._x, perm=(1, 0, 2))
        self._steps, self._batch, _ = (int(d) for d in self._do("Shape", self._x))
        self._directions, self._hidden = call.shape(1)[0], call.shape(2)[-1]
        self._activations = self._read_activations(activations)
        #: Steps of each sequence; None if all have as many.
        self._lengths = call.value(4) if call.has(4) else None
        if isinstance(self._lengths, np.ndarray) and (self._lengths == self._steps).all():
            self._lengths = None

    def _read_activations(self, defaults: tuple[str, ...]) -> list[Callable[[Value], Value]]:
        attrs = self._call.attrs
        names = list(attrs.get("activations", defaults * self._directions))
        alphas, betas = (list(attrs.get(f"activation_{key}", ())) for key in ("alpha", "beta"))
        # Gates are clipped, not the cell state of an LSTM: so does onnxruntime.
        clips = [attrs.get("clip")] * 2 + [None]
        return [
            _activation(self._call, name, alphas, betas, clips[i % len(defaults)])
            for i, name in enumerate(names)
        ]

    def run(self) -> Value:
        """All directions: (Y, Y_h) and, of an LSTM, Y_c."""
        do = self._do
        results, finals = zip(*map(self._direction, range(self._directions)), strict=True)
        y = do("Concat", *results, axis=1)
        last = [do("Concat", *states, axis=0) for states in zip(*finals, strict=True)]
        if self._layout:
            y = do("Transpose", y, perm=(2, 0, 1, 3))
            last = [do("Transpose", value, perm=(1, 0, 2)) for value in last]
        return (y, *last)

    def _direction(self, d: int) -> tuple[Value, list[Value]]:
        """The results of all steps in one direction, and the states behind the last one."""
        backward = self._call.attrs.get("direction", "forward") == "reverse" or d == 1
        reads_backwards = backward and self._lengths is None
        x = self._reversed(self._x) if backward and not reads_backwards else self._x
        cell, bias = self._cell(d)
        projected = self._do("MatMul", x, self._do("Transpose", self._of(1, d), perm=(1, 0)))
        if bias is not None:
            projected = self._do("Add", projected, bias)
        steps = range(self._steps)
        found, states = self._unroll(
            cell, projected, steps[::-1] if reads_backwards else steps, self._initial(d)
        )
        if reads_backwards:
            found.reverse()
        joined = self._do("Concat", *found, axis=0) if len(found) > 1 else found[0]
        if backward and not reads_backwards:
            joined = self._reversed(joined)
        return (
            self._do("Unsqueeze", joined, np.array([1])),
            [self._do("Unsqueeze", value, np.array([0])) for value in states],
        )

    def _unroll(
        self, cell: Cell, projected: Value, steps: Iterable[int], states: list[Value]
    ) -> tuple[list[Value], list[Value]]:
        """The result of each step, and the states behind the last one."""
        do, zero, found = self._do, self._call.const(0), []
        for t in steps:
            new = self._step(cell, do("Gather", projected, np.array(t), axis=0), states)
            shown = new[0]
            if self._lengths is not None:
                alive = do("Less", np.array(t), do("Cast", self._lengths, to=7))
                alive = self._call.reshape(alive, (self._batch, 1))
                # A sequence without a step ends with zeros, as onnxruntime has it.
                before = states if t else [zero] * self._states
                new = [do("Where", alive, a, b) for a, b in zip(new, before, strict=True)]
                shown = do("Where", alive, shown, zero)
            states = new
            found.append(do("Unsqueeze", shown, np.array([0])))
        return found, states

    def _cell(self, d: int) -> tuple[Cell, Value | None]:
        """The cell of a direction, and the bias of its projected inputs, if it has one."""
        each = len(self._activations) // self._directions
        own = self._activations[d * each : (d + 1) * each]
        r = self._do("Transpose", self._of(2, d), perm=(1, 0))
        cell, bias = Cell(self._call, self._hidden, r, [], own, []), None
        if self._call.has(3):
            of_x, of_r = self._parts(self._of(3, d), 2, self._gates * self._hidden)
            if self._late:
                cell.bias = self._parts(of_r, 3, self._hidden)
                unused = self._do("Mul", cell.bias[2], self._call.const(0))
                of_r = self._do("Concat", *cell.bias[:2], unused, axis=0)
            bias = self._do("Add", of_x, of_r)
        if self._states == 2 and self._call.has(7):
            cell.peepholes = self._parts(self._of(7, d), 3, self._hidden)
        return cell, bias

    def _initial(self, d: int) -> list[Value]:
        """The states before the first step: inputs of the layer, or zeros."""
        call, zeros = self._call, np.zeros((self._batch, self._hidden), self._call.const(0).dtype)
        axis = 1 if self._layout else 0
        return [
            self._do("Gather", call.value(5 + i), np.array(d), axis=axis)
            if call.has(5 + i)
            else zeros
            for i in range(self._states)
        ]

    def _of(self, index: int, d: int) -> Value:
        """The part of an operand that belongs to a direction."""
        return self._do("Gather", self._call.value(index), np.array(d), axis=0)

    def _parts(self, value: Value, count: int, size: int) -> list[Value]:
        """A vector in parts of a size."""
        return [
            self._do(
                "Slice", value, np.array([i * size]), np.array([(i + 1) * size]), np.array([0])
            )
            for i in range(count)
        ]

    def _reversed(self, value: Value) -> Value:
        """The steps of each sequence in reverse order; what is behind its end stays."""
        lengths = self._do("Cast", self._lengths, to=7)
        return self._do("ReverseSequence", value, lengths, time_axis=0, batch_axis=1)


def _activation(
    call: Call, name: str, alphas: list[float], betas: list[float], clip: float | None
) -> Callable[[Value], Value]:
    """An activation of what is clipped, if at all; takes its numbers from the lists."""
    known = {key.lower(): key for key in (*_ALPHA, *_PLAIN)}
    found = known.get(name.lower())
    if found is None:
        raise call.unsupported(f"with the activation {name!r}", f"one of {', '.join(known)}")
    numbers: dict[str, float] = {}
    for key, defaults, given in (("alpha", _ALPHA, alphas), ("beta", _BETA, betas)):
        if found in defaults:
            numbers[key] = given.pop(0) if given else defaults[found]

    def apply(value: Value) -> Value:
        if clip is not None:
            value = call.do("Clip", value, call.const(-clip), call.const(clip))
        attrs: dict[str, Any] = numbers
        return call.do(found, value, **attrs)

    return apply
