"""Recurrent networks, unrolled: one matrix product for all inputs, then one for each step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..call import Call, Value, converter

_ALPHA = {"LeakyRelu": 0.01, "ThresholdedRelu": 1.0, "ScaledTanh": 1.0, "HardSigmoid": 0.2,
          "Elu": 1.0, "Affine": 1.0}  # fmt: skip
_BETA = {"HardSigmoid": 0.5, "ScaledTanh": 1.0, "Affine": 0.0}
_PLAIN = ("Sigmoid", "Tanh", "Relu", "Softsign", "Softplus")


@dataclass
class _Cell:
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
        return [do("Slice", value, np.array([i * h]), np.array([(i + 1) * h]), np.array([1]))
                for i in range(count)]  # fmt: skip


@converter("LSTM")
def lstm(call: Call) -> Value:
    """Gates in the order input, output, forget, cell; peepholes input, output, forget."""

    def step(cell: _Cell, x: Value, state: list[Value]) -> list[Value]:
        do, (f, g, h) = call.do, cell.activations
        before, memory = state
        i, o, forget, c = cell.gates(do("Add", x, do("MatMul", before, cell.r)), 4)
        if cell.peepholes:
            i = do("Add", i, do("Mul", cell.peepholes[0], memory))
            forget = do("Add", forget, do("Mul", cell.peepholes[2], memory))
        i = f(i)
        kept = do("Sub", np.ones((), call.const(0).dtype), i)
        forget = kept if call.attrs.get("input_forget", 0) else f(forget)
        memory = do("Add", do("Mul", forget, memory), do("Mul", i, g(c)))
        if cell.peepholes:
            o = do("Add", o, do("Mul", cell.peepholes[1], memory))
        return [do("Mul", f(o), h(memory)), memory]

    return _run(call, 4, step, ("Sigmoid", "Tanh", "Tanh"), 2)


@converter("GRU")
def gru(call: Call) -> Value:
    """Gates in the order update, reset, hidden."""
    late = bool(call.attrs.get("linear_before_reset", 0))

    def step(cell: _Cell, x: Value, state: list[Value]) -> list[Value]:
        do, (f, g), h = call.do, cell.activations, cell.hidden
        (before,) = state
        xz, xr, xh = cell.gates(x, 3)
        part = call.do("Slice", cell.r, np.array([0]), np.array([2 * h]), np.array([1]))
        last = call.do("Slice", cell.r, np.array([2 * h]), np.array([3 * h]), np.array([1]))
        z, r = cell.gates(do("MatMul", before, part), 2)
        z, r = f(do("Add", xz, z)), f(do("Add", xr, r))
        if late:
            inner = do("MatMul", before, last)
            inner = do("Add", inner, cell.bias[2]) if cell.bias else inner
            new = do("Mul", r, inner)
        else:
            new = do("MatMul", do("Mul", r, before), last)
        new = g(do("Add", xh, new))
        rest = do("Sub", np.ones((), call.const(0).dtype), z)
        return [do("Add", do("Mul", rest, new), do("Mul", z, before))]

    return _run(call, 3, step, ("Sigmoid", "Tanh"), 1, late)


@converter("RNN")
def rnn(call: Call) -> Value:
    def step(cell: _Cell, x: Value, state: list[Value]) -> list[Value]:
        (f,) = cell.activations
        return [f(call.do("Add", x, call.do("MatMul", state[0], cell.r)))]

    return _run(call, 1, step, ("Tanh",), 1)


def _run(
    call: Call,
    gates: int,
    step: Callable[[_Cell, Value, list[Value]], list[Value]],
    activations: tuple[str, ...],
    states: int,
    late: bool = False,
) -> Value:
    """Run all directions: (Y, Y_h) and, of an LSTM, Y_c.

    Args:
        states: 2 where there is a cell state beside the hidden one.
        late: The recurrent bias of the last gate is added before the reset.
    """
    do, direction = call.do, call.attrs.get("direction", "forward")
    x, layout = call.value(0), int(call.attrs.get("layout", 0))
    if layout:
        x = do("Transpose", x, perm=(1, 0, 2))
    steps, batch, _ = (int(d) for d in do("Shape", x))
    hidden = call.shape(2)[-1]
    directions = call.shape(1)[0]
    names = list(call.attrs.get("activations", activations * directions))
    alphas = list(call.attrs.get("activation_alpha", ()))
    betas = list(call.attrs.get("activation_beta", ()))
    # Gates are clipped, not the cell state of an LSTM: so does onnxruntime.
    clips = [call.attrs.get("clip")] * 2 + [None]
    functions = [
        _activation(call, name, alphas, betas, clips[i % len(activations)])
        for i, name in enumerate(names)
    ]
    lengths = call.value(4) if call.has(4) else None
    if isinstance(lengths, np.ndarray) and (lengths == steps).all():
        lengths = None
    outputs: list[Value] = []
    finals: list[list[Value]] = []
    for d in range(directions):

        def of(index: int, d: int = d) -> Value:
            return do("Gather", call.value(index), np.array(d), axis=0)

        weight = do("Transpose", of(1), perm=(1, 0))
        r = do("Transpose", of(2), perm=(1, 0))
        backward = direction == "reverse" or d == 1
        each = len(functions) // directions
        cell = _Cell(call, hidden, r, [], functions[d * each : (d + 1) * each], [])
        source = x
        if backward and lengths is not None:
            source = do("ReverseSequence", x, do("Cast", lengths, to=7), time_axis=0, batch_axis=1)
        projected = do("MatMul", source, weight)
        if call.has(3):
            both = of(3)
            half = np.array([gates * hidden])
            wb = do("Slice", both, np.array([0]), half, np.array([0]))
            rb = do("Slice", both, half, 2 * half, np.array([0]))
            if late:
                parts = [do("Slice", rb, np.array([i * hidden]), np.array([(i + 1) * hidden]),
                            np.array([0])) for i in range(3)]  # fmt: skip
                cell.bias = parts
                rb = do("Concat", *parts[:2], do("Mul", parts[2], call.const(0)), axis=0)
            projected = do("Add", projected, do("Add", wb, rb))
        if states == 2 and call.has(7):
            peepholes = of(7)
            cell.peepholes = [do("Slice", peepholes, np.array([i * hidden]),
                                 np.array([(i + 1) * hidden]), np.array([0]))
                              for i in range(3)]  # fmt: skip
        state = [_initial(call, 5 + i, d, layout, (batch, hidden)) for i in range(states)]
        found: list[Value] = []
        reverse = backward and lengths is None
        for t in reversed(range(steps)) if reverse else range(steps):
            now = do("Gather", projected, np.array(t), axis=0)
            new = step(cell, now, state)
            shown = new[0]
            if lengths is not None:
                alive = do("Less", np.array(t), do("Cast", lengths, to=7))
                alive = call.reshape(alive, (batch, 1))
                # A sequence without a step ends with zeros, as onnxruntime has it.
                before = state if t else [call.const(0)] * states
                new = [do("Where", alive, a, b) for a, b in zip(new, before, strict=True)]
                shown = do("Where", alive, shown, call.const(0))
            state = new
            found.append(do("Unsqueeze", shown, np.array([0])))
        if reverse:
            found.reverse()
        joined = do("Concat", *found, axis=0) if len(found) > 1 else found[0]
        if backward and lengths is not None:
            joined = do("ReverseSequence", joined, do("Cast", lengths, to=7), time_axis=0,
                        batch_axis=1)  # fmt: skip
        outputs.append(do("Unsqueeze", joined, np.array([1])))
        finals.append([do("Unsqueeze", value, np.array([0])) for value in state])
    y = do("Concat", *outputs, axis=1)
    last = [do("Concat", *(final[i] for final in finals), axis=0) for i in range(states)]
    if layout:
        y = do("Transpose", y, perm=(2, 0, 1, 3))
        last = [do("Transpose", value, perm=(1, 0, 2)) for value in last]
    return (y, *last)


def _initial(call: Call, index: int, d: int, layout: int, shape: tuple[int, int]) -> Value:
    if not call.has(index):
        return np.zeros(shape, call.const(0).dtype)
    return call.do("Gather", call.value(index), np.array(d), axis=1 if layout else 0)


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
        if found == "Affine":
            scaled = call.do("Mul", value, call.const(numbers["alpha"]))
            return call.do("Add", scaled, call.const(numbers["beta"]))
        if found == "ScaledTanh":
            inner = call.do("Tanh", call.do("Mul", value, call.const(numbers["beta"])))
            return call.do("Mul", inner, call.const(numbers["alpha"]))
        attrs: dict[str, Any] = numbers
        return call.do(found, value, **attrs)

    return apply
