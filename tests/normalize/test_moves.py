"""Random networks of matmuls between reshapes, permutations and broadcasts compute the same in
normal form, and with what is attention in it computed at once.

All extents are products of few small numbers, so that dimensions coincide often: a batch is as long
as a head, a matrix is square, a dimension is one.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from convoy.graph.expr import as_numpy, shape_of
from convoy.measure import reference
from convoy.normalize.normal_form import normalize
from convoy.partition.rewrite import rewrite
from convoy.partition.subgraphs import find_subgraphs

from ..helpers.evaluate import evaluate

EXTENTS = st.sampled_from([1, 1, 2, 2, 3, 4])
SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Moves:
    """A network that is drawn operation by operation."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.rng = np.random.default_rng(draw(st.integers(0, 99)))
        self.builder = relax.BlockBuilder()
        shape = tuple(draw(st.lists(EXTENTS, min_size=2, max_size=4)))
        self.x = relax.Var("x", relax.TensorType(shape, "float32"))

    def module(self, length: int) -> Any:
        with self.builder.function("main", [self.x]):
            with self.builder.dataflow():
                values = [self.x]
                for _ in range(length):
                    step = self.draw(st.sampled_from(STEPS))
                    values.append(step(self, self.draw(st.sampled_from(values[-3:]))))
                last = self.builder.emit_output(op.negative(values[-1]))
            self.builder.emit_func_output(last)
        return self.builder.get()

    def emit(self, expr: Any) -> Any:
        return self.builder.emit(expr)

    def const(self, *shape: int) -> Any:
        return relax.const(self.rng.uniform(-1, 1, shape).astype("float32"))

    def reshape(self, x: Any, shape: Any) -> Any:
        return self.emit(op.reshape(x, shape))

    def permute(self, x: Any, axes: Any) -> Any:
        return self.emit(op.permute_dims(x, list(axes)))

    def factors(self, size: int, rank: int) -> list[int]:
        """A shape of so many elements."""
        shape = []
        for _ in range(rank - 1):
            shape.append(self.draw(st.sampled_from([d for d in range(1, 7) if size % d == 0])))
            size //= shape[-1]
        return [*shape, size]

    def batch_of(self, x: Any) -> list[int]:
        """Batch dimensions that broadcast with those of x; each may be one."""
        batch = [self.draw(st.sampled_from([1, extent])) for extent in shape_of(x)[:-2]]
        return batch[self.draw(st.integers(0, len(batch))) :]


def reshape(net: Moves, x: Any) -> Any:
    size = math.prod(shape_of(x))
    return net.reshape(x, net.factors(size, net.draw(st.integers(1, 5))))


def split_rows(net: Moves, x: Any) -> Any:
    """All but the last axis in another shape."""
    *rows, last = shape_of(x)
    return net.reshape(x, [*net.factors(math.prod(rows), net.draw(st.integers(1, 3))), last])


def permute(net: Moves, x: Any) -> Any:
    return net.permute(x, net.draw(st.permutations(range(len(shape_of(x))))))


def elementwise(net: Moves, x: Any) -> Any:
    return net.emit(net.draw(st.sampled_from([op.nn.relu, op.tanh, op.negative]))(x))


def binary(net: Moves, x: Any) -> Any:
    """With a constant that broadcasts, along x or beyond it."""
    shape = [net.draw(st.sampled_from([1, extent])) for extent in shape_of(x)]
    shape = shape[net.draw(st.integers(0, len(shape))) :]
    if len(shape) == len(shape_of(x)) < 5 and math.prod(shape_of(x)) < 100:
        shape = [*net.draw(st.lists(EXTENTS, max_size=1)), *shape]
    operands = [x, net.const(*shape)]
    function = net.draw(st.sampled_from([op.add, op.subtract, op.multiply]))
    return net.emit(function(*(operands if net.draw(st.booleans()) else operands[::-1])))


def own_parts(net: Moves, x: Any) -> Any:
    """A value and its mean over some axes."""
    axes = [a for a in range(len(shape_of(x))) if net.draw(st.booleans())]
    return net.emit(op.add(net.emit(op.mean(x, axes, keepdims=True)), x)) if axes else x


def linear(net: Moves, x: Any) -> Any:
    """With a matrix; one for each of the batch; one that is repeated over it, as PyTorch writes a
    linear layer over what is not contiguous."""
    k, n = shape_of(x)[-1], net.draw(EXTENTS)
    batch = list(shape_of(x)[:-2]) if len(shape_of(x)) > 1 else []
    kind = net.draw(st.sampled_from(["matrix", "batch", "equal", "repeated", "reshaped", "left"]))
    weight = net.const(k, n)
    if kind == "batch":
        weight = net.const(*net.batch_of(x), k, n)
    if kind == "equal":
        weight = relax.const(np.broadcast_to(as_numpy(weight), (*batch, k, n)).copy())
    if kind in ("repeated", "reshaped"):
        source = net.const(*([1] * net.draw(st.integers(0, 1))), k, n)
        if kind == "reshaped" and net.draw(st.booleans()):
            source = net.emit(op.add(net.const(k, n), net.emit(op.mean(x, keepdims=False))))
        whole = net.factors(math.prod(batch), 2)
        weight = net.emit(op.broadcast_to(source, (*whole, k, n)))
        weight = net.reshape(weight, (*batch, k, n))
    if kind == "left" and len(shape_of(x)) > 1:
        rows = shape_of(x)[-2]
        return net.emit(op.matmul(net.const(*net.batch_of(x), n, rows), x))
    return net.emit(op.matmul(x, weight))


def own_product(net: Moves, x: Any) -> Any:
    """x x^T x, with a softmax between; scaled and masked as may be."""
    if len(shape_of(x)) < 2:
        return elementwise(net, x)
    last = len(shape_of(x)) - 1
    scores = net.emit(op.matmul(x, net.permute(x, [*range(last - 1), last, last - 1])))
    if net.draw(st.booleans()):
        scores = net.emit(op.multiply(scores, relax.const(0.5)))
    if net.draw(st.booleans()):
        *batch, rows, keys = shape_of(scores)
        some = [net.draw(st.sampled_from([1, extent])) for extent in (*batch, rows)]
        scores = net.emit(op.add(scores, net.const(*some, keys)))
    return net.emit(op.matmul(net.emit(op.nn.softmax(scores)), x))


def attention(net: Moves, x: Any) -> Any:
    """Heads of a projection to queries, keys and values, in one of several ways; the result in the
    shape of the rows."""
    if len(shape_of(x)) == 1:
        x = net.reshape(x, (1, *shape_of(x)))
    *batch, rows, c = shape_of(x)
    n, heads, dim = math.prod(batch), net.draw(EXTENTS), net.draw(st.sampled_from([1, 2, 4]))
    x = net.reshape(x, (n, rows, c))
    qkv = net.emit(op.matmul(x, net.const(c, 3 * heads * dim)))
    if net.draw(st.booleans()):
        order = net.draw(st.permutations([3, heads, dim]).filter(lambda p: p[-1] == dim))
        qkv = net.reshape(qkv, (n, rows, *order))
        which = 2 + order.index(3)
        parts = net.emit(op.split(qkv, 3, which))
        parts = [net.emit(op.squeeze(net.emit(parts[i]), [which])) for i in range(3)]
    else:
        parts = net.emit(op.split(qkv, 3, 2))
        parts = [net.reshape(net.emit(parts[i]), (n, rows, heads, dim)) for i in range(3)]
    q, k, v = (net.permute(part, [0, 2, 1, 3]) for part in parts)
    shape = [n, heads, rows, rows]
    if net.draw(st.booleans()):
        q, k, v = (net.reshape(part, (n * heads, rows, dim)) for part in (q, k, v))
    last = len(shape_of(k)) - 1
    scores = net.emit(op.matmul(q, net.permute(k, [*range(last - 1), last, last - 1])))
    if net.draw(st.booleans()):
        some = [net.draw(st.sampled_from([1, extent])) for extent in shape]
        scores = net.reshape(scores, shape)
        scores = net.emit(op.add(scores, net.const(*some[:-1], rows)))
        windows = [d for d in (1, 2, 3) if n % d == 0]
        outer = net.draw(st.sampled_from(windows))
        if net.draw(st.booleans()):
            scores = net.reshape(scores, (n // outer, outer, heads, rows, rows))
            scores = net.emit(op.add(scores, net.const(1, outer, 1, rows, rows)))
        scores = net.reshape(scores, (*shape_of(q)[:-1], rows))
    o = net.emit(op.matmul(net.emit(op.nn.softmax(scores)), v))
    o = net.reshape(o, (n, heads, rows, dim))
    return net.reshape(net.permute(o, [0, 2, 1, 3]), (n, rows, heads * dim))


STEPS = [
    *(reshape, split_rows, permute, elementwise, binary, binary, own_parts),
    *(linear, linear, linear, own_product, attention),
]


@st.composite
def networks(draw: Any) -> Any:
    return Moves(draw).module(draw(st.integers(1, 6)))


def close(got: Any, wanted: Any, tolerance: float) -> None:
    scale = max(1.0, float(np.abs(wanted).max()))
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance * scale)


_symbols = itertools.count()


def fused(module: Any) -> tuple[Any, dict[str, Any]]:
    """The module with calls in place of each attention, and what they compute."""
    chosen, functions = {}, {}
    taken: set[str] = set()
    for subgraph in find_subgraphs(module):
        workload = subgraph.require_workload()
        if workload.op != "attention" or taken & {*subgraph.ops}:
            continue
        taken.update(subgraph.ops)
        symbol = chosen[subgraph.id] = f"attention_{next(_symbols)}"

        def compute(*operands: Any, workload: Any = workload) -> Any:
            names = [name for name, _, _ in workload.operand_shapes()]
            return reference.full(workload, dict(zip(names[:-1], operands, strict=True)))[0]

        functions[symbol] = compute
    return rewrite(module, chosen), functions


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float16", 1e-2)])
@settings(SETTINGS, max_examples=60)
@given(networks())
def test_the_normal_form_computes_the_same(dtype: str, tolerance: float, module: Any) -> None:
    """Everything is computed in float64; in float16 constants alone are rounded."""
    shape = shape_of(module["main"].params[0])
    x = np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")
    (wanted,) = evaluate(module, [x])
    normal = normalize(module, dtype=dtype)
    replaced, functions = fused(normal)
    for got in (evaluate(normal, [x]), evaluate(replaced, [x], functions)):
        close(got[0], wanted, tolerance)
