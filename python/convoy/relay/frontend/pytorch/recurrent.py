"""Recurrent layers, unrolled over their steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import concatenate, select, swap, unsqueeze
from convoy.relay.frontend.pytorch.registry import Call, convert
from convoy.relay.frontend.recurrent import Layer, gru, lstm, rnn
from convoy.relay.op import nn
from convoy.relay.op import tensor as R

# Runs one direction of one layer: (data, states, layer, projection) -> outputs and last states.
Runner = Callable[[Expr, Sequence[Expr], Layer, Any], tuple[Expr, list[Expr]]]


def _stacked(call: Call, states: Sequence[Expr], run: Runner) -> list[Expr]:
    """Run the layers of a stack, in one or two directions each."""
    if "data" in call.args:
        raise call.error("packed sequences", "tensors", "Leave out pack_padded_sequence")
    if call.get("train") and call.get("dropout"):
        call.warn_of_training()
    weights = [call.tensor(p) for p in call.get("params")]
    ways = 2 if call.get("bidirectional") else 1
    data = swap(call["input"], 0, 1) if call.get("batch_first") else call["input"]
    each = 4 if call.get("has_biases") else 2
    projected = len(weights) > each * ways * call.get("num_layers")
    each += projected
    lasts: list[list[Expr]] = [[] for _ in states]
    for layer in range(call.get("num_layers")):
        outputs = []
        for way in range(ways):
            place = layer * ways + way
            own = weights[place * each : (place + 1) * each]
            projection = own.pop() if projected else None
            biases: list[Any] = list(own[2:]) if len(own) > 2 else [None, None]
            activations = (R.sigmoid, R.tanh, R.tanh)
            cell = Layer(own[0], own[1], biases[0], biases[1], activations, reverse=way == 1)
            output, ends = run(data, [select(s, 0, place) for s in states], cell, projection)
            outputs.append(output)
            for kept, end in zip(lasts, ends, strict=True):
                kept.append(unsqueeze(end, [0]))
        data = concatenate(outputs, 2)
    result = swap(data, 0, 1) if call.get("batch_first") else data
    return [result, *(concatenate(kept, 0) for kept in lasts)]


@convert("lstm")
def convert_lstm(call: Call) -> list[Expr]:
    """Convert an LSTM; gates are in the order input, forget, candidate, output."""

    def run(data: Expr, states: Sequence[Expr], layer: Layer, projection: Any) -> Any:
        outputs, h, c = lstm(data, states[0], states[1], layer, "ifgo", projection=projection)
        return outputs, [h, c]

    return _stacked(call, [call.tensor(s) for s in call.get("hx")], run)


@convert("gru")
def convert_gru(call: Call) -> list[Expr]:
    """Convert a GRU; gates are in the order reset, update, candidate."""

    def run(data: Expr, states: Sequence[Expr], layer: Layer, projection: Any) -> Any:
        outputs, h = gru(data, states[0], layer, "rzn")
        return outputs, [h]

    return _stacked(call, [call["hx"]], run)


@convert("rnn_tanh", "rnn_relu")
def convert_rnn(call: Call) -> list[Expr]:
    function = R.tanh if call.short == "rnn_tanh" else nn.relu

    def run(data: Expr, states: Sequence[Expr], layer: Layer, projection: Any) -> Any:
        cell = Layer(layer.weight, layer.recurrence, layer.input_bias, layer.state_bias,
                     (function,), reverse=layer.reverse)  # fmt: skip
        outputs, h = rnn(data, states[0], cell)
        return outputs, [h]

    return _stacked(call, [call["hx"]], run)


def _cell(call: Call) -> Layer:
    names = ("w_ih", "w_hh", "b_ih", "b_hh")
    found: list[Any] = [call[n] if call.get(n) is not None else None for n in names]
    return Layer(*found)


@convert("lstm_cell")
def lstm_cell(call: Call) -> list[Expr]:
    hidden, cell = (call.tensor(s) for s in call.get("hx"))
    _, h, c = lstm(unsqueeze(call["input"], [0]), hidden, cell, _cell(call), "ifgo")
    return [h, c]


@convert("gru_cell")
def gru_cell(call: Call) -> Expr:
    return gru(unsqueeze(call["input"], [0]), call["hx"], _cell(call), "rzn")[1]


@convert("rnn_tanh_cell", "rnn_relu_cell")
def rnn_cell(call: Call) -> Expr:
    function = R.tanh if "tanh" in call.short else nn.relu
    found = _cell(call)
    layer = Layer(found.weight, found.recurrence, found.input_bias, found.state_bias, (function,))
    return rnn(unsqueeze(call["input"], [0]), call["hx"], layer)[1]
