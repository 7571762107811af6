"""Recurrent layers, unrolled."""

from __future__ import annotations

from collections.abc import Sequence

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import (
    concatenate,
    const,
    dtype_of,
    infer_shape,
    select,
    slice_axis,
    swap,
    unsqueeze,
)
from convoy.relay.frontend.onnx.registry import Node, convert
from convoy.relay.frontend.recurrent import Activation, Layer, activation, gru, lstm, rnn
from convoy.relay.op import tensor as R

_DEFAULTS = {
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
    "GRU": ("Sigmoid", "Tanh"),
    "RNN": ("Tanh",),
}


def _activations(node: Node, directions: int) -> list[list[Activation]]:
    """Return the activations of each direction."""
    defaults = _DEFAULTS[node.name]
    names = node.attr("activations") or list(defaults) * directions
    alphas = list(node.attr("activation_alpha") or [])
    betas = list(node.attr("activation_beta") or [])
    try:
        functions = [
            activation(n, alphas[i] if i < len(alphas) else None,
                       betas[i] if i < len(betas) else None)
            for i, n in enumerate(names)
        ]  # fmt: skip
    except KeyError as unknown:
        raise node.error(f"activation {unknown}") from None
    each = len(defaults)
    return [functions[d * each : (d + 1) * each] for d in range(directions)]


@convert("LSTM", "GRU", "RNN")
def recurrent(node: Node) -> Sequence[Expr]:
    """Convert a recurrent layer: (data, W, R, B, sequence_lens, initial_h, initial_c, P)."""
    data = swap(node[0], 0, 1) if node.attr("layout", 0) else node[0]
    _, batch, _ = infer_shape(data)
    hidden = node.shape(2)[2]
    direction = node.attr("direction", "forward")
    reversed_ = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    if direction not in reversed_:
        raise node.error(f"direction '{direction}'", ", ".join(reversed_))
    ways = reversed_[direction]
    activations = _activations(node, len(ways))
    results = []
    for place, backwards in enumerate(ways):
        layer = _layer(node, place, activations[place], backwards)
        states = [_state(node, index, place, batch, hidden) for index in (5, 6)]
        results.append(_run(node, data, layer, states, place))
    outputs = concatenate([unsqueeze(r[0], [1]) for r in results], 1)
    lasts = [
        concatenate([unsqueeze(r[i], [0]) for r in results], 0) for i in range(1, len(results[0]))
    ]
    if node.attr("layout", 0):
        outputs = R.transpose(outputs, (2, 0, 1, 3))
        lasts = [swap(x, 0, 1) for x in lasts]
    return [outputs, *lasts]


def _layer(node: Node, place: int, functions: Sequence[Activation], backwards: bool) -> Layer:
    weight, recurrence = select(node[1], 0, place), select(node[2], 0, place)
    input_bias = state_bias = None
    if node.get(3) is not None:
        both = select(node[3], 0, place)
        half = infer_shape(both)[0] // 2
        input_bias, state_bias = slice_axis(both, 0, 0, half), slice_axis(both, 0, half, 2 * half)
    return Layer(
        weight, recurrence, input_bias, state_bias, functions, node.attr("clip"), backwards,
        node.get(4),
    )  # fmt: skip


def _state(node: Node, index: int, place: int, batch: int, hidden: int) -> Expr:
    if node.get(index) is None:
        import numpy as np

        return const(np.zeros((batch, hidden), dtype_of(node[0])))
    whole = swap(node[index], 0, 1) if node.attr("layout", 0) else node[index]
    return select(whole, 0, place)


def _run(
    node: Node, data: Expr, layer: Layer, states: Sequence[Expr], place: int
) -> Sequence[Expr]:
    if node.name == "RNN":
        return rnn(data, states[0], layer)
    if node.name == "GRU":
        after = bool(node.attr("linear_before_reset", 0))
        return gru(data, states[0], layer, "zrn", after)
    peepholes = None
    if node.get(7) is not None:
        peepholes = list(R.split(select(node[7], 0, place), 3, axis=0))
    return lstm(
        data, states[0], states[1], layer, "iofg", peepholes,
        couple=bool(node.attr("input_forget", 0)),
    )  # fmt: skip
