"""The built-in pattern: a convolution, gradient or GEMM with the epilogue behind it.

A site grows from its root along single-reader edges through the additions and the activation behind
it. Every prefix of that chain is a site of its own, so that each root yields nested alternatives.
The only value of a site that others read is the end of its chain ``y`` (and ``y2``, a function of
``y`` and constants alone; or ``y2`` only).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from tvm import relax

from ...graph.expr import (
    dtype_of,
    is_const,
    make_const,
    number,
    numpy_dtype,
    op_name,
    rank_of,
    shape_of,
)
from ...graph.rewriter import used_vars
from ...ir.epilogue import Epilogue
from ...normalize.affine import channel_values
from ...ops.activation import ELU, HARDSWISH, MISH
from .base import GraphView, Pattern, Site, fitted
from .roots import Root, find_root


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


@dataclass
class Chain:
    """A root and the epilogue taken so far."""

    covered: list[relax.Var]
    end: relax.Var
    epilogue: Epilogue = field(default_factory=Epilogue)
    residual: relax.Expr | None = None
    bias: relax.Expr | None = None
    affine: tuple[relax.Var, relax.Expr, relax.Expr] | None = None


def _alternatives(graph: GraphView, var: relax.Var, root: Root) -> list[Site]:
    chains = [Chain([var], var)]
    if root.workload.is_batched:
        return [_site(root, *chains)]
    while (longer := extended(graph, chains[-1])) is not None:
        chains.append(longer)
    chains += [dual for chain in chains if (dual := _with_affine_relu(graph, chain)) is not None]
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
    workload = dataclasses.replace(root.workload, epilogue=chain.epilogue)
    return Site(tuple(chain.covered), tuple(outputs), workload, fitted(inputs, workload))


def extended(graph: GraphView, chain: Chain) -> Chain | None:
    """Return the chain with the next operation, if an epilogue supports it."""
    reader = graph.only_reader(chain.end)
    if reader is None or chain.epilogue.residual_last:
        return None
    is_integer = dtype_of(chain.end) == "int32"  # then a bias is all
    activated = chain.epilogue.activation != "none"
    call = graph.value[reader]
    covered = [*chain.covered, reader]
    epilogue = None if activated or is_integer else _activation(call, chain.epilogue)
    if epilogue is not None:
        return dataclasses.replace(chain, covered=covered, end=reader, epilogue=epilogue)
    if op_name(call) != "relax.add" or dtype_of(reader) != dtype_of(chain.end):
        return None
    other = call.args[1] if call.args[0].same_as(chain.end) else call.args[0]
    if shape_of(reader) != shape_of(chain.end):
        return None
    used = activated or chain.bias is not None
    bias = None if used else _per_channel(other, chain.end)
    if bias is not None:
        epilogue = dataclasses.replace(chain.epilogue, bias=True)
        return dataclasses.replace(chain, covered=covered, end=reader, epilogue=epilogue, bias=bias)
    if not is_integer and chain.residual is None and shape_of(other) == shape_of(chain.end):
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
    if name == "relax.clip":
        low, high = (float(number(arg)) for arg in call.args[1:3])
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


def _is_plain_softplus(call: relax.Expr) -> bool:
    """Without a factor; the threshold from which it is the identity is beyond all rounding."""
    return float(call.attrs.beta) == 1.0 and float(call.attrs.threshold) >= 15.0


def _per_channel(expr: relax.Expr, y: relax.Var) -> relax.Expr | None:
    """``expr`` as a (k,) operand of y's dtype when it broadcasts along y's last axis only."""
    k = shape_of(y)[-1]
    if is_const(expr):
        values = channel_values(expr, y)
        if values is None:
            return None
        return make_const(np.broadcast_to(values, (k,)), dtype_of(y))
    shape = shape_of(expr)
    if dtype_of(expr) != dtype_of(y) or not shape or shape == shape_of(y):
        return None
    if shape[-1] != k or any(d != 1 for d in shape[:-1]) or len(shape) > rank_of(y):
        return None
    return expr if shape == (k,) else relax.op.reshape(expr, (k,))


def _with_affine_relu(graph: GraphView, chain: Chain) -> Chain | None:
    """Return the chain with ``relu(y * scale + shift)`` as a second output where y has other
    readers, as the only one where it has none; a missing scale or shift counts as ones or zeros."""
    y = chain.end
    if dtype_of(y) == "int32":
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
    operand = _per_channel(other, y)
    if operand is None:
        return None
    ready = all(graph.position[v] < graph.position[y] for v in used_vars(operand))
    return operand if ready else None
