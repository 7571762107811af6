"""The built-in pattern: a convolution, gradient or GEMM with the epilogue behind it.

A site grows from its root along single-reader edges through the additions and the activation behind
it. Every prefix of that chain is a site of its own, so that each root yields nested alternatives.
The only value of a site that others read is the end of its chain ``y`` (and ``y2``, a function of
``y`` and constants alone; or ``y2`` only).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np
from tvm import relax

from ...graph.expr import (
    as_numpy,
    dtype_of,
    is_const,
    make_const,
    number,
    op_name,
    shape_of,
)
from ...graph.function import used_vars
from ...ir.dtypes import FLOAT_DTYPES, HALF_DTYPES, numpy_dtype
from ...ir.epilogue import Epilogue
from ...ir.workload import Workload
from ...ops.activation import ELU, HARDSWISH, MISH
from .base import GraphView, Pattern, Site, fitted
from .chain import Chain, per_channel
from .requantization import extended_integers
from .roots import Root, find_root

#: A bound of a clip that no 16-bit float reaches, bfloat16 included, but infinity.
_LARGEST = 3.4e38


class ConvEpilogue(Pattern):
    """Convolutions (all three directions) and GEMMs with all operations that can be fused after
    them: residual, bias, activation, and a second result that is scaled, shifted and rectified."""

    name = "epilogue"
    optional = False

    def sites(self, graph: GraphView) -> Iterator[Site]:
        for binding in graph.bindings:
            root = find_root(binding, graph)
            if root is not None:
                yield from _alternatives(graph, binding.var, root)


def _alternatives(graph: GraphView, var: relax.Var, root: Root) -> list[Site]:
    chains = [Chain([var], var)]
    if root.workload.is_batched:
        return [_site(root, *chains)]
    while (longer := extended(graph, chains[-1])) is not None:
        chains.append(longer)
    chains += [dual for chain in chains if (dual := with_affine_relu(graph, chain)) is not None]
    # Longest first; of two as long, the one with fewer outputs.
    chains.sort(key=lambda c: (-len(c.covered), c.affine is not None))
    return [_site(root, chain) for chain in chains]


def _site(root: Root, chain: Chain) -> Site:
    inputs = list(root.inputs)
    inputs += [e for e in (chain.residual, chain.bias) if e is not None]
    outputs = [chain.end] if chain.epilogue.writes_y else []
    if chain.affine is not None:
        inputs += chain.affine[1:]
        outputs.append(chain.affine[0])
    workload = with_epilogue(root.workload, chain)
    return Site(tuple(chain.covered), tuple(outputs), workload, fitted(inputs, workload))


def with_epilogue(workload: Workload, chain: Chain) -> Workload:
    """A root's workload as far as its chain goes, which ends in int8 where that is requantized."""
    return dataclasses.replace(workload, epilogue=chain.epilogue, out_dtype=dtype_of(chain.end))


def extended(graph: GraphView, chain: Chain) -> Chain | None:
    """Return the chain with the next operation, if an epilogue supports it."""
    if dtype_of(chain.end) not in FLOAT_DTYPES:
        return extended_integers(graph, chain)
    reader = graph.only_reader(chain.end)
    if reader is None or chain.epilogue.residual_last:
        return None
    activated = chain.epilogue.activation != "none"
    call = graph.value[reader]
    covered = [*chain.covered, reader]
    epilogue = None if activated else _activation(call, chain.epilogue)
    if epilogue is not None:
        return dataclasses.replace(chain, covered=covered, end=reader, epilogue=epilogue)
    if op_name(call) != "relax.add" or dtype_of(reader) != dtype_of(chain.end):
        return None
    other = call.args[1] if call.args[0].same_as(chain.end) else call.args[0]
    if shape_of(reader) != shape_of(chain.end):
        return None
    used = activated or chain.bias is not None
    bias = None if used else per_channel(other, chain.end)
    if bias is not None:
        epilogue = dataclasses.replace(chain.epilogue, bias=True)
        return dataclasses.replace(chain, covered=covered, end=reader, epilogue=epilogue, bias=bias)
    if chain.residual is None and shape_of(other) == shape_of(chain.end):
        epilogue = dataclasses.replace(chain.epilogue, residual=True, residual_last=activated)
        return dataclasses.replace(
            chain, covered=covered, end=reader, epilogue=epilogue, residual=other
        )
    return None


_ACTIVATIONS = {
    "relax.nn.relu": "relu",
    "relax.sigmoid": "sigmoid",
    "relax.tanh": "tanh",
    "relax.nn.silu": "silu",
    "relax.nn.gelu": "gelu",
    "relax.nn.gelu_tanh": "gelu_tanh",
    HARDSWISH: "hardswish",
    MISH: "mish",
}


def _activation(call: relax.Expr, epilogue: Epilogue) -> Epilogue | None:
    name = op_name(call)
    if name in _ACTIVATIONS:
        return dataclasses.replace(epilogue, activation=_ACTIVATIONS[name])
    if (bounds := _bounds(call)) is not None:
        low, high = bounds
        return dataclasses.replace(epilogue, activation="clip", clip_min=low, clip_max=high)
    if name == "relax.nn.leakyrelu":
        alpha = float(call.attrs.alpha)
        return dataclasses.replace(epilogue, activation="leaky_relu", alpha=alpha)
    if name == ELU:
        alpha = float(call.attrs["alpha"])
        return dataclasses.replace(epilogue, activation="elu", alpha=alpha)
    if name == "relax.nn.softplus" and _is_plain_softplus(call):
        return dataclasses.replace(epilogue, activation="softplus")
    return None


def _bounds(call: relax.Expr) -> tuple[float, float] | None:
    """Finite bounds of a clip, or of a maximum or minimum with a number."""
    name = op_name(call)
    if name == "relax.clip":
        low, high = (float(number(arg)) for arg in call.args[1:3])
    elif name in ("relax.maximum", "relax.minimum"):
        numbers = [arg for arg in call.args if is_const(arg) and as_numpy(arg).size == 1]
        if len(numbers) != 1:
            return None
        bound = float(as_numpy(numbers[0]).item())
        low, high = (bound, math.inf) if name == "relax.maximum" else (-math.inf, bound)
    else:
        return None
    if dtype_of(call) in HALF_DTYPES:  # to which numbers beyond 16 bits are rounded as infinity
        low, high = (min(max(bound, -_LARGEST), _LARGEST) for bound in (low, high))
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def _is_plain_softplus(call: relax.Expr) -> bool:
    """Without a factor; the threshold from which it is the identity is beyond all rounding."""
    return float(call.attrs.beta) == 1.0 and float(call.attrs.threshold) >= 15.0


def with_affine_relu(graph: GraphView, chain: Chain) -> Chain | None:
    """Return the chain with ``relu(y * scale + shift)`` as a second output where y has other
    readers, as the only one where it has none; a missing scale or shift counts as ones or zeros."""
    y = chain.end
    if dtype_of(y) not in FLOAT_DTYPES:
        return None
    alone = graph.only_reader(y) is not None
    if len(graph.readers[y]) == 1 and chain.epilogue.activation == "none":
        reader = graph.value[graph.readers[y][0]]
        if op_name(reader) in ("relax.add", "relax.nn.relu") and y not in graph.returned:
            return None  # a plain bias or relu: one output does
    for first in dict.fromkeys(graph.readers[y]):
        taken: list[relax.Var] = []
        scale, shift, at = None, None, first
        if op_name(graph.value[at]) == "relax.multiply":
            scale = _coefficient(graph, at, y, y)
            nxt = graph.only_reader(at)
            if scale is None or nxt is None:
                continue
            taken, before, at = [*taken, at], at, nxt
        else:
            before = y
        if op_name(graph.value[at]) == "relax.add":
            shift = _coefficient(graph, at, before, y)
            nxt = graph.only_reader(at)
            if shift is None or nxt is None:
                continue
            taken, at = [*taken, at], nxt
        if op_name(graph.value[at]) != "relax.nn.relu" or at in chain.covered:
            continue
        ones = np.ones(shape_of(y)[-1], numpy_dtype(dtype_of(y)))
        scale = make_const(ones) if scale is None else scale
        shift = make_const(ones * 0) if shift is None else shift
        return dataclasses.replace(
            chain,
            covered=[*chain.covered, *taken, at],
            epilogue=dataclasses.replace(chain.epilogue, affine_relu=True, affine_only=alone),
            affine=(at, scale, shift),
        )
    return None


def _coefficient(
    graph: GraphView, at: relax.Var, before: relax.Var, y: relax.Var
) -> relax.Expr | None:
    """Return the per-channel operand of ``at`` next to ``before``, known by the time y is
    computed."""
    args = graph.value[at].args
    other = args[1] if args[0].same_as(before) else args[0]
    if other.same_as(before) or shape_of(at) != shape_of(y):
        return None
    operand = per_channel(other, y)
    if operand is None:
        return None
    ready = all(graph.position[v] < graph.position[y] for v in used_vars(operand))
    return operand if ready else None
