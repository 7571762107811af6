"""LSTM and GRU: one ``convoy.recurrent`` for each layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from tvm import relax
from tvm.relax import op

from ..graph.expr import dtype_of, shape_of
from ..ops.recurrent import recurrent

#: Operators of which this file converts those that :func:`is_whole` is true of.
WHOLE = ("lstm", "gru")


def is_whole(node: Any) -> bool:
    """Whether a call has batches of equal lengths, no dropout and no projections of its outputs."""
    if not node.target.__name__.endswith(".input"):
        return False
    _, _, params, has_biases, layers, dropout, train, bidirectional, _ = node.args
    each = 4 if has_biases else 2
    return len(params) == layers * (1 + bidirectional) * each and not (train and dropout)


@contextmanager
def with_shapes_of_states() -> Iterator[None]:
    """Trace LSTMs with states of the shapes that they have: PyTorch 2.11 computes those of one
    layer on a GPU, and in float64, with an axis too many."""
    from torch._decomp import decompositions

    original = decompositions.one_layer_lstm
    decompositions.one_layer_lstm = _reshaping(original)
    try:
        yield
    finally:
        decompositions.one_layer_lstm = original


def _reshaping(one_layer: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: torch.Tensor, states: Sequence[torch.Tensor], *args: Any, **kwargs: Any) -> Any:
        out, last = one_layer(x, states, *args, **kwargs)
        return out, tuple(a.reshape(b.shape) for a, b in zip(last, states, strict=True))

    return run


def _convert(node: Any, importer: Any) -> relax.Expr:
    """(input, states, parameters, has biases, layers, dropout, train, bidirectional, batch first).

    The parameters of a direction of a layer are those of its inputs, of its states, and a bias of
    each.
    """
    x, given, params, has_biases, layers, _, _, bidirectional, batch_first = importer.retrieve_args(
        node
    )
    emit = importer.block_builder.emit
    cell = node.target.__name__.partition(".")[0]
    states = list(given) if cell == "lstm" else [given]
    directions, each = 1 + bidirectional, 4 if has_biases else 2
    single = len(shape_of(x)) == 2  # without a batch
    if single:
        x = emit(op.expand_dims(x, [1]))
        states = [emit(op.expand_dims(state, [1])) for state in states]
    elif batch_first:
        x = emit(op.permute_dims(x, [1, 0, 2]))
    last = []
    for number in range(layers):
        first, end = number * directions, (number + 1) * directions
        parts = [params[i * each : (i + 1) * each] for i in range(first, end)]
        own = [emit(op.strided_slice(state, [0], [first], [end])) for state in states]
        whole = emit(_layer(emit, x, parts, own, cell))
        x, *after = (emit(relax.TupleGetItem(whole, i)) for i in range(1 + len(states)))
        last.append(after)
    found = [emit(op.concat(list(parts), 0)) for parts in zip(*last, strict=True)]
    if single:
        x, *found = (emit(op.squeeze(value, [1])) for value in (x, *found))
    elif batch_first:
        x = emit(op.permute_dims(x, [1, 0, 2]))
    return relax.Tuple([x, *found])


def _layer(
    emit: Any,
    x: relax.Expr,
    parts: Sequence[Sequence[relax.Expr]],
    states: Sequence[relax.Expr],
    cell: str,
) -> relax.Call:
    """A layer of (time, batch, features), by the parameters of each direction."""
    of_input, of_state, *biases = (list(values) for values in zip(*parts, strict=True))
    weights = emit(op.permute_dims(emit(op.concat(of_input, 0)), [1, 0]))
    projected = emit(op.matmul(x, weights))
    if biases:
        projected = emit(op.add(projected, emit(op.concat(biases[0], 0))))
        bias = emit(op.stack(biases[1], 0))
    else:
        bias = relax.const(np.zeros((len(parts), shape_of(of_state[0])[0]), dtype_of(x)))
    return recurrent(projected, emit(op.stack(of_state, 0)), bias, *states, cell=cell)


CONVERTERS = {f"{name}.input": _convert for name in WHOLE}
