"""The epilogue of int8: constant biases, and what makes int8 of the sums again.

Quantized networks scale the sums, add a bias, perhaps rectify, scale to the steps of the result,
round, add the zero point and clip. A kernel that computes all of this in float32, each operation
rounded as it stands in the network, has the same result.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from tvm import relax

from ...graph.expr import as_numpy, dtype_of, is_const, make_const, number, op_name, shape_of
from ...ir.epilogue import Epilogue
from ...normalize.affine import channel_values
from .base import GraphView
from .chain import Chain, per_channel


def extended_integers(graph: GraphView, chain: Chain) -> Chain | None:
    """Return a chain of int32 with another constant bias, or requantized; None if neither is
    behind it."""
    if dtype_of(chain.end) != "int32" or not (chain.bias is None or is_const(chain.bias)):
        return None
    walk = _Walk(graph, chain.end)
    if (values := walk.constant("relax.add")) is None:
        return _requantized(graph, chain)
    bias = values.astype(np.int32)
    if chain.bias is not None:
        bias = bias + as_numpy(chain.bias)
    return dataclasses.replace(
        chain,
        covered=[*chain.covered, *walk.covered],
        end=walk.end,
        epilogue=dataclasses.replace(chain.epilogue, bias=True),
        bias=per_channel(make_const(bias), chain.end),
    )


def _requantized(graph: GraphView, chain: Chain) -> Chain | None:
    walk, k = _Walk(graph, chain.end), shape_of(chain.end)[-1]
    if walk.call("relax.astype") is None or dtype_of(walk.end) != "float32":
        return None
    scale = walk.constant("relax.multiply", 1.0)
    shift = walk.constant("relax.add", 0.0)
    rectified = walk.call("relax.nn.relu") is not None
    factor = walk.constant("relax.multiply", 1.0)
    if walk.call("relax.round") is None:
        return None
    zeros = walk.constant("relax.add", 0.0)
    clip = walk.call("relax.clip")
    if clip is None or walk.call("relax.astype") is None or dtype_of(walk.end) != "int8":
        return None
    if scale is None or shift is None or factor is None or zeros is None or zeros.size != 1:
        return None
    low, high = (float(number(arg)) for arg in clip.args[1:3])
    zero = float(zeros.item())
    if rectified:
        low = max(low, zero)
    exact = all(value == int(value) for value in (low, zero)) and high == 127
    if not exact or not -128 <= min(low, zero) <= max(low, zero) <= 127 or (factor <= 0).any():
        return None
    if not all(np.isfinite(values).all() for values in (scale, shift, factor)):
        return None
    rows = np.zeros((k, 4), np.int32)
    if chain.bias is not None:
        rows[:, 0] = as_numpy(chain.bias)
    for column, values in enumerate((scale, shift, factor), 1):
        rows[:, column] = np.broadcast_to(values.astype(np.float32), (k,)).view(np.int32)
    return dataclasses.replace(
        chain,
        covered=[*chain.covered, *walk.covered],
        end=walk.end,
        epilogue=Epilogue(bias=True, activation="clip", clip_min=low - zero, clip_max=high - zero),
        bias=make_const(rows),
    )


class _Walk:
    """Along single-reader edges, over operators that keep the shape."""

    def __init__(self, graph: GraphView, start: relax.Var) -> None:
        self._graph, self.end = graph, start
        self.covered: list[relax.Var] = []

    def call(self, name: str) -> relax.Call | None:
        """Take the next operator if it has this name."""
        reader = self._graph.only_reader(self.end)
        if reader is None or op_name(self._graph.value[reader]) != name:
            return None
        if shape_of(reader) != shape_of(self.end):
            return None
        self.end = reader
        self.covered.append(reader)
        return self._graph.value[reader]

    def constant(self, name: str, default: float | None = None) -> np.ndarray | None:
        """Take the next operator if it has this name and a constant per channel, or one for all;
        return that, and the default without such an operator."""
        missing = None if default is None else np.array(default)
        before, reader = self.end, self._graph.only_reader(self.end)
        if reader is None or op_name(self._graph.value[reader]) != name:
            return missing
        left, right = self._graph.value[reader].args
        values = channel_values(left if right.same_as(before) else right, before)
        if values is None or dtype_of(reader) != dtype_of(before):
            return missing
        return missing if self.call(name) is None else values
