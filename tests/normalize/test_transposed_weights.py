"""Values times transposed attention weights become weights times values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from convoy.graph.expr import op_name
from convoy.graph.function import bindings_of
from convoy.normalize.normal_form import normalize
from convoy.normalize.transposed_weights import TransposeWeights
from convoy.partition.subgraphs import find_subgraphs

from ..helpers.evaluate import evaluate

#: How a network comes from scores (queries x keys) to weights (keys x queries).
WAYS = ("permuted", "cast and permuted", "permuted and cast", "over keys", "over keys, scaled")


def network(
    way: str, batch: tuple[int, ...], queries: int, keys: int, dim: int, channels: int, **how: Any
) -> Any:
    """``v p^T`` as networks write it that keep channels in front of pixels. ``how`` has scores that
    are ``masked``, or weights or scores that are ``read`` by others as well."""
    rng = np.random.default_rng(queries + keys)
    bb = relax.BlockBuilder()
    shapes = (*batch, dim, queries), (*batch, dim, keys), (*batch, channels, keys)
    q, k, v = (
        relax.Var(name, relax.TensorType(shape, "float32"))
        for name, shape in zip("qkv", shapes, strict=True)
    )
    swap = [*range(len(batch)), len(batch) + 1, len(batch)]
    axis = len(batch)
    with bb.function("main", [q, k, v]):
        with bb.dataflow():
            if way.startswith("over keys"):
                scores = bb.emit(op.matmul(bb.emit(op.permute_dims(k, swap)), q))
                if "scaled" in way:
                    scores = bb.emit(op.multiply(scores, relax.const(0.5, "float32")))
                weights = p = bb.emit(op.nn.softmax(scores, axis=axis))
            else:
                scores = bb.emit(op.matmul(bb.emit(op.permute_dims(q, swap)), k))
                if how.get("masked"):
                    mask = rng.standard_normal((queries, keys)).astype("float32")
                    scores = bb.emit(op.add(scores, relax.const(mask)))
                p = bb.emit(op.nn.softmax(scores, axis=how.get("axis", -1)))
                wide = bb.emit(op.astype(p, "float64")) if way.startswith("cast") else p
                weights = bb.emit(op.permute_dims(wide, swap))
                if way.startswith("cast"):
                    weights = bb.emit(op.astype(weights, "float32"))
                if way.endswith("and cast"):
                    weights = bb.emit(op.astype(bb.emit(op.astype(weights, "float64")), "float32"))
            result = bb.emit(op.matmul(v, weights))
            extra = {"weights": p, "scores": scores, "": None}[how.get("read", "")]
            results = [result] if extra is None else [result, extra]
            gv = bb.emit_output(relax.Tuple(results))
        bb.emit_func_output(gv)
    return bb.get()


def inputs(mod: Any) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = [tuple(map(int, param.ty.shape)) for param in mod["main"].params]
    return [rng.standard_normal(shape).astype("float32") for shape in shapes]


def weights_are_first(mod: Any) -> bool:
    """Whether the last product's first operand is the softmax."""
    values = {b.var: b.value for b in bindings_of(mod["main"])}
    last = [v for v in values.values() if op_name(v) == "relax.matmul"][-1]
    made = values.get(last.args[0])
    while op_name(made) == "relax.astype":
        made = values.get(made.args[0])
    return op_name(made) == "relax.nn.softmax"


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(WAYS),
    st.lists(st.integers(1, 3), max_size=3).map(tuple),
    *(st.integers(1, 5) for _ in range(4)),
    st.booleans(),
)
def test_results_are_the_same(
    way: str, batch: tuple[int, ...], queries: int, keys: int, dim: int, channels: int, masked: bool
) -> None:
    mod = network(way, batch, queries, keys, dim, channels, masked=masked)
    changed = TransposeWeights()(mod)
    assert weights_are_first(changed)
    given_ = inputs(mod)
    for got, want in zip(evaluate(changed, given_), evaluate(mod, given_), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("way", "read"),
    [*((way, "weights") for way in WAYS), *((way, "scores") for way in WAYS[3:])],
)
def test_weights_that_others_read_stay(way: str, read: str) -> None:
    mod = network(way, (2,), 4, 5, 3, 2, read=read)
    assert not weights_are_first(TransposeWeights()(mod))


def test_a_softmax_over_queries_stays() -> None:
    mod = network("permuted", (2,), 4, 4, 3, 2, axis=-2)
    assert not weights_are_first(TransposeWeights()(mod))


def check_same(mod: Any) -> None:
    """Weights come first, with the same result."""
    changed = TransposeWeights()(mod)
    assert weights_are_first(changed)
    given_ = inputs(mod)
    np.testing.assert_allclose(
        evaluate(changed, given_)[0], evaluate(mod, given_)[0], rtol=1e-12, atol=1e-12
    )


def test_values_of_another_rank_broadcast() -> None:
    bb = relax.BlockBuilder()
    q = relax.Var("q", relax.TensorType((3, 4, 6), "float32"))
    v = relax.Var("v", relax.TensorType((2, 1, 5, 4), "float32"))
    with bb.function("main", [q, v]):
        with bb.dataflow():
            turned = bb.emit(op.permute_dims(q, [0, 2, 1]))
            p = bb.emit(op.nn.softmax(bb.emit(op.matmul(q, turned))))
            gv = bb.emit_output(op.matmul(v, bb.emit(op.permute_dims(p, [0, 2, 1]))))
        bb.emit_func_output(gv)
    check_same(bb.get())


def test_a_global_context_is_not_transposed() -> None:
    """Values are pixels with channels last behind a convolution, and so are read as they are."""
    rng = np.random.default_rng(0)
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 8, 4, 5), "float32"))
    filters = [relax.const(rng.standard_normal((k, 8, 1, 1)).astype("float32")) for k in (8, 1)]
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit(op.nn.conv2d(x, filters[0]))
            scores = bb.emit(op.reshape(bb.emit(op.nn.conv2d(y, filters[1])), (2, 1, 20)))
            p = bb.emit(op.reshape(bb.emit(op.nn.softmax(scores, axis=2)), (2, 20, 1)))
            context = bb.emit(op.matmul(bb.emit(op.reshape(y, (2, 8, 20))), p))
            gv = bb.emit_output(bb.emit(op.add(y, bb.emit(op.reshape(context, (2, 8, 1, 1))))))
        bb.emit_func_output(gv)
    mod = bb.get()
    check_same(mod)
    values = [binding.value for binding in bindings_of(normalize(mod)["main"])]
    moved = [value for value in values if op_name(value) == "relax.permute_dims"]
    assert len(moved) == 2  # the image and the result of the network


@pytest.mark.parametrize("way", WAYS[:1] + WAYS[3:])
def test_it_is_attention(way: str) -> None:
    found = find_subgraphs(normalize(network(way, (2, 4), 16, 24, 8, 32)))
    assert [s.require_workload().op for s in found].count("attention") == 1
