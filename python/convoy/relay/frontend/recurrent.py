"""Recurrent layers, unrolled over their steps.

The input projection of all steps is one GEMM; each step adds that of its state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import (
    concatenate,
    infer_shape,
    scalar_like,
    select,
    slice_axis,
    unsqueeze,
)
from convoy.relay.frontend.linear_algebra import dense
from convoy.relay.op import tensor as R

Activation = Callable[[Expr], Expr]


@dataclass(frozen=True)
class Layer:
    """One direction of a recurrent layer.

    Attributes:
        weight: (gates * hidden, input), for the input.
        recurrence: (gates * hidden, hidden), for the state.
        input_bias, state_bias: (gates * hidden,), or None.
        activations: Those of the gates, of the candidate, of the cell's output.
        reverse: Whether time runs backwards.
    """

    weight: Expr
    recurrence: Expr
    input_bias: Expr | None = None
    state_bias: Expr | None = None
    activations: Sequence[Activation] = (R.sigmoid, R.tanh, R.tanh)
    reverse: bool = False

    def act(self, which: int, value: Expr) -> Expr:
        """Apply one of the activations."""
        return self.activations[which](value)


# One step: (projection of the input, states) -> new states, the first of which is the output.
Step = Callable[[Expr, Sequence[Expr]], Sequence[Expr]]


def unroll(data: Expr, states: Sequence[Expr], layer: Layer, step: Step) -> tuple[Expr, list[Expr]]:
    """Run a layer over a sequence.

    Args:
        data: (time, batch, input).
        states: Initial states, (batch, hidden) each.
        layer: The weights.
        step: What a step computes.

    Returns:
        The outputs, (time, batch, hidden), and the last states.
    """
    projected = plus(dense(data, layer.weight), layer.input_bias)
    count = infer_shape(data)[0]
    order = range(count - 1, -1, -1) if layer.reverse else range(count)
    outputs = {}
    current = list(states)
    for time in order:
        current = list(step(select(projected, 0, time), current))
        outputs[time] = unsqueeze(current[0], [0])
    return concatenate([outputs[t] for t in range(count)], 0), current


def plus(value: Expr, other: Expr | None) -> Expr:
    """Add an optional term."""
    return value if other is None else R.add(value, other)


def gates_of(value: Expr, count: int) -> list[Expr]:
    """Split (batch, count * hidden) in the gates."""
    return list(R.split(value, count, axis=1))


def lstm(
    data: Expr,
    hidden: Expr,
    cell: Expr,
    layer: Layer,
    order: str = "ifgo",
    projection: Expr | None = None,
) -> tuple[Expr, Expr, Expr]:
    """Run an LSTM.

    Args:
        data: (time, batch, input).
        hidden, cell: (batch, hidden) before the first step.
        layer: The weights.
        order: The gates in the weights: input, forget, g (the candidate), output.
        projection: (projected, hidden), which maps the output of each step.

    Returns:
        The outputs, the last hidden state and the last cell.
    """

    def step(projected: Expr, states: Sequence[Expr]) -> Sequence[Expr]:
        h, c = states
        values = R.add(projected, plus(dense(h, layer.recurrence), layer.state_bias))
        gate = dict(zip(order, gates_of(values, 4), strict=True))
        i, f, o = (layer.act(0, gate[name]) for name in "ifo")
        new = R.add(R.multiply(f, c), R.multiply(i, layer.act(1, gate["g"])))
        h = R.multiply(o, layer.activations[2](new))
        return (h if projection is None else dense(h, projection)), new

    outputs, (h, c) = unroll(data, [hidden, cell], layer, step)
    return outputs, h, c


def gru(
    data: Expr, hidden: Expr, layer: Layer, order: str = "rzn", reset_after: bool = True
) -> tuple[Expr, Expr]:
    """Run a GRU.

    Args:
        data: (time, batch, input).
        hidden: (batch, hidden) before the first step.
        layer: The weights.
        order: The gates in the weights: reset, z (update), n (the candidate).
        reset_after: Whether the reset gate multiplies the projection of the state, as in PyTorch,
            or the state.

    Returns:
        The outputs and the last state.
    """
    size = infer_shape(layer.recurrence)[1]

    def part(value: Expr, name: str, axis: int) -> Expr:
        at = order.index(name) * size
        return slice_axis(value, axis, at, at + size)

    def step(projected: Expr, states: Sequence[Expr]) -> Sequence[Expr]:
        (h,) = states
        of_input = dict(zip(order, gates_of(projected, 3), strict=True))
        if reset_after:
            sums = plus(dense(h, layer.recurrence), layer.state_bias)
            of_state = dict(zip(order, gates_of(sums, 3), strict=True))
        else:
            of_state = {name: of_part(h, name) for name in "rz"}
        r = layer.act(0, R.add(of_input["r"], of_state["r"]))
        z = layer.act(0, R.add(of_input["z"], of_state["z"]))
        last = R.multiply(r, of_state["n"]) if reset_after else of_part(R.multiply(r, h), "n")
        n = layer.act(1, R.add(of_input["n"], last))
        rest = R.multiply(R.subtract(scalar_like(1, z), z), n)
        return (R.add(rest, R.multiply(z, h)),)

    def of_part(state: Expr, name: str) -> Expr:
        bias = None if layer.state_bias is None else part(layer.state_bias, name, 0)
        return plus(dense(state, part(layer.recurrence, name, 0)), bias)

    outputs, (h,) = unroll(data, [hidden], layer, step)
    return outputs, h


def rnn(data: Expr, hidden: Expr, layer: Layer) -> tuple[Expr, Expr]:
    """Run a simple recurrent layer, whose activation is the first one of the layer.

    Args:
        data: (time, batch, input).
        hidden: (batch, hidden) before the first step.
        layer: The weights.

    Returns:
        The outputs and the last state.
    """

    def step(projected: Expr, states: Sequence[Expr]) -> Sequence[Expr]:
        sums = R.add(projected, plus(dense(states[0], layer.recurrence), layer.state_bias))
        return (layer.act(0, sums),)

    outputs, (h,) = unroll(data, [hidden], layer, step)
    return outputs, h
