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
    scalar,
    scalar_like,
    select,
    slice_axis,
    unsqueeze,
)
from convoy.relay.frontend.linear_algebra import dense
from convoy.relay.op import nn
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
        clip: The bound of what activations are applied to, None for none.
        reverse: Whether time runs backwards.
        lengths: (batch,) valid steps of each sequence, None for all.
    """

    weight: Expr
    recurrence: Expr
    input_bias: Expr | None = None
    state_bias: Expr | None = None
    activations: Sequence[Activation] = (R.sigmoid, R.tanh, R.tanh)
    clip: float | None = None
    reverse: bool = False
    lengths: Expr | None = None

    def bounded(self, value: Expr) -> Expr:
        """Clip what an activation is applied to."""
        return value if self.clip is None else R.clip(value, -self.clip, self.clip)

    def act(self, which: int, value: Expr) -> Expr:
        """Apply one of the activations."""
        return self.activations[which](self.bounded(value))


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
    by_sequence = layer.reverse and layer.lengths is not None
    if by_sequence:
        data = R.reverse_sequence(data, layer.lengths, seq_axis=0, batch_axis=1)
    projected = plus(dense(data, layer.weight), layer.input_bias)
    count = infer_shape(data)[0]
    order = range(count)
    if layer.reverse and not by_sequence:
        order = range(count - 1, -1, -1)
    outputs = {}
    current = list(states)
    for time in order:
        new = list(step(select(projected, 0, time), current))
        output = new[0]
        if layer.lengths is not None:
            valid = R.less(scalar_like(time, layer.lengths), layer.lengths)
            valid = unsqueeze(valid, [1])
            output = R.where(valid, output, scalar_like(0, output))
            new = [R.where(valid, n, c) for n, c in zip(new, current, strict=True)]
        outputs[time] = unsqueeze(output, [0])
        current = new
    joined = concatenate([outputs[t] for t in range(count)], 0)
    if by_sequence:
        joined = R.reverse_sequence(joined, layer.lengths, seq_axis=0, batch_axis=1)
    return joined, current


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
    peepholes: Sequence[Expr] | None = None,
    projection: Expr | None = None,
    couple: bool = False,
) -> tuple[Expr, Expr, Expr]:
    """Run an LSTM.

    Args:
        data: (time, batch, input).
        hidden, cell: (batch, hidden) before the first step.
        layer: The weights.
        order: The gates in the weights: input, forget, g (the candidate), output.
        peepholes: Weights of the cell for the input, output and forget gates, (hidden,) each.
        projection: (projected, hidden), which maps the output of each step.
        couple: Whether the forget gate is 1 minus the input gate.

    Returns:
        The outputs, the last hidden state and the last cell.
    """

    def step(projected: Expr, states: Sequence[Expr]) -> Sequence[Expr]:
        h, c = states
        values = R.add(projected, plus(dense(h, layer.recurrence), layer.state_bias))
        gate = dict(zip(order, gates_of(values, 4), strict=True))
        look = dict(zip("iof", peepholes, strict=True)) if peepholes is not None else {}
        for name in "if":
            if name in look:
                gate[name] = R.add(gate[name], R.multiply(look[name], c))
        i = layer.act(0, gate["i"])
        f = R.subtract(scalar_like(1, i), i) if couple else layer.act(0, gate["f"])
        new = R.add(R.multiply(f, c), R.multiply(i, layer.act(1, gate["g"])))
        o = gate["o"]
        if "o" in look:
            o = R.add(o, R.multiply(look["o"], new))
        h = R.multiply(layer.act(0, o), layer.activations[2](new))
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


def activation(name: str, alpha: float | None = None, beta: float | None = None) -> Activation:
    """Return the activation of a recurrent layer by its ONNX name.

    Args:
        name: Sigmoid, Tanh, Relu, ... in any case.
        alpha, beta: Its parameters; None is ONNX's default.

    Raises:
        KeyError: Another name.
    """

    def number(given: float | None, default: float) -> float:
        return default if given is None else given

    def affine(x: Expr, a: float, b: float) -> Expr:
        return R.add(R.multiply(scalar_like(a, x), x), scalar_like(b, x))

    one = scalar(1, "float32")
    functions: dict[str, Activation] = {
        "sigmoid": R.sigmoid,
        "tanh": R.tanh,
        "relu": nn.relu,
        "affine": lambda x: affine(x, number(alpha, 1.0), number(beta, 0.0)),
        "leakyrelu": lambda x: nn.leaky_relu(x, number(alpha, 0.01)),
        "thresholdedrelu": lambda x: R.where(
            R.greater(x, scalar_like(number(alpha, 1.0), x)), x, scalar_like(0, x)
        ),
        "scaledtanh": lambda x: affine(R.tanh(affine(x, number(beta, 1.0), 0)), alpha or 1.0, 0),
        "hardsigmoid": lambda x: R.clip(affine(x, number(alpha, 0.2), number(beta, 0.5)), 0, 1),
        "elu": lambda x: R.where(
            R.less(x, scalar_like(0, x)),
            affine(R.exp(x), number(alpha, 1.0), -number(alpha, 1.0)),
            x,
        ),
        "softsign": lambda x: R.divide(x, R.add(scalar_like(1, x), R.abs(x))),
        "softplus": lambda x: R.log(R.add(R.exp(x), one)),
    }
    return functions[name.lower()]
