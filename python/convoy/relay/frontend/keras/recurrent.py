"""Recurrent layers, unrolled over their steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import concatenate, const, infer_shape, reshape, swap
from convoy.relay.frontend.keras.activation import activate
from convoy.relay.frontend.keras.registry import Layer, Tensor, convert, converter_of
from convoy.relay.frontend.recurrent import Layer as Cell
from convoy.relay.frontend.recurrent import gru, lstm, rnn
from convoy.relay.op import tensor as R


def _activation(layer: Layer, name: Any) -> Callable[[Expr], Expr]:
    return lambda x: activate(layer, name, x)


def run(
    layer: Layer, kind: str, config: dict[str, Any], weights: list[np.ndarray], prefix: str = "",
    states: list[Expr] | None = None,
) -> list[Expr]:  # fmt: skip
    """Run a layer; return its outputs, (batch, time, units), and its last states."""
    data = swap(layer.x.last(), 0, 1)
    units, batch = config["units"], infer_shape(data)[1]
    zeros = const(np.zeros((batch, units), "float32"))
    kernel = layer.param(f"{prefix}kernel", weights[0].T)
    recurrence = layer.param(f"{prefix}recurrent_kernel", weights[1].T)
    biases: list[Any] = [None, None]
    if config["use_bias"]:
        bias = weights[2]
        if bias.ndim == 2:
            biases = [layer.param(f"{prefix}bias", bias[0]),
                      layer.param(f"{prefix}recurrent_bias", bias[1])]  # fmt: skip
        else:
            biases[0] = layer.param(f"{prefix}bias", bias)
    main = _activation(layer, config["activation"])
    gate = _activation(layer, config.get("recurrent_activation"))
    functions = (main,) if kind == "SimpleRNN" else (gate, main, main)
    cell = Cell(kernel, recurrence, biases[0], biases[1], functions,
                reverse=bool(config["go_backwards"]))  # fmt: skip
    given = states or [zeros, zeros]
    if kind == "LSTM":
        outputs, h, c = lstm(data, given[0], given[1], cell, "ifgo")
        lasts = [h, c]
    elif kind == "GRU":
        outputs, h = gru(data, given[0], cell, "zrn", bool(config["reset_after"]))
        lasts = [h]
    else:
        outputs, h = rnn(data, given[0], cell)
        lasts = [h]
    return [swap(outputs, 0, 1), *lasts]


@convert("LSTM", "GRU", "SimpleRNN")
def recurrent(layer: Layer) -> Any:
    """Convert a recurrent layer; outputs of `go_backwards` are in the order of its steps."""
    states = [t.last() for t in layer.inputs[1:]] or None
    outputs, *lasts = run(layer, layer.name, layer.config, layer.weights, states=states)
    if not layer.config["return_sequences"]:
        result = lasts[0]
    else:
        result = R.reverse(outputs, axis=1) if layer.config["go_backwards"] else outputs
    if layer.config["return_state"]:
        return [Tensor(result), *(Tensor(s) for s in lasts)]
    return Tensor(result)


@convert("Bidirectional")
def bidirectional(layer: Layer) -> Tensor:
    """Run a layer in both directions.

    Raises:
        UnsupportedOp: Another layer than LSTM, GRU and SimpleRNN, or states as outputs.
    """
    results = []
    half = len(layer.weights) // 2
    for place, (name, inner) in enumerate(
        (("forward_", layer.layer.forward_layer), ("backward_", layer.layer.backward_layer))
    ):
        config, kind = inner.get_config(), type(inner).__name__
        if kind not in ("LSTM", "GRU", "SimpleRNN") or config["return_state"]:
            raise layer.error(f"of a {kind}", "LSTM, GRU or SimpleRNN without return_state")
        weights = layer.weights[place * half : (place + 1) * half]
        outputs, last, *_ = run(layer, kind, config, weights, name)
        results.append(outputs if config["return_sequences"] else last)
    mode = layer.config["merge_mode"]
    if mode == "concat":
        return Tensor(concatenate(results, -1))
    if mode not in ("sum", "mul", "ave"):
        raise layer.error(f"merge_mode={mode!r}", "concat, sum, mul or ave")
    if mode == "mul":
        return Tensor(R.multiply(*results))
    total = R.add(*results)
    return Tensor(total if mode == "sum" else R.multiply(total, const(np.asarray(0.5, "float32"))))


@convert("TimeDistributed")
def time_distributed(layer: Layer) -> Tensor:
    """Apply a layer to each step, with steps as part of the batch.

    Raises:
        UnsupportedOp: A layer without a converter.
    """

    inner = layer.layer.layer
    converter = converter_of(type(inner).__name__)
    if converter is None:
        raise layer.error(f"of a {type(inner).__name__}", "a layer that is supported")
    shape = layer.x.shape
    flat = Tensor(reshape(layer.x.last(), (shape[0] * shape[1], *shape[2:])))
    result = converter(Layer(inner, [flat], layer.params, layer._variables))
    return Tensor(reshape(result.last(), (shape[0], shape[1], *result.shape[1:])))
