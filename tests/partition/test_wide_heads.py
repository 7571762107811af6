"""Attention of wide heads: one kernel, or two GEMMs and a softmax, whichever is cheaper."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from convoy.graph.expr import op_name
from convoy.graph.function import bindings_of
from convoy.ir.candidate import Candidate, Decline
from convoy.ir.device import Device
from convoy.ir.measurement import Measurement
from convoy.ir.offer import Offer, Offers
from convoy.lower.executable import lower
from convoy.partition.match_graph import MatchGraph
from convoy.partition.partition import partition
from convoy.partition.wide_heads import WideHeads
from convoy.pipeline import place
from convoy.placement.cover import find_cover
from convoy.placement.priced import priced

from ..attention.graphs import normal

RNG = np.random.default_rng(0)


def attention(
    dim: int, masked: bool = False, safe: bool = False, returned: bool = False, tokens: int = 96
):
    """Attention of two heads, as importers write it."""
    bb = relax.BlockBuilder()
    names = ("q", "k", "v")
    inputs = [relax.Var(name, relax.TensorType((2, tokens, dim), "float32")) for name in names]
    with bb.function("main", inputs):
        with bb.dataflow():
            q, k, v = inputs
            keys = bb.emit(op.permute_dims(k, [0, 2, 1]))
            scores = bb.emit(op.matmul(q, keys))
            scores = bb.emit(op.multiply(scores, relax.const(dim**-0.5, "float32")))
            if masked:
                hidden = np.where(RNG.random((tokens, tokens)) < 0.2, -np.inf, 0).astype("float32")
                scores = bb.emit(op.add(scores, relax.const(hidden)))
            weights = bb.emit(op.nn.softmax(scores, -1))
            if safe:
                seen = bb.emit(op.logical_not(op.equal(scores, relax.const(-np.inf, "float32"))))
                none = op.logical_not(op.astype(op.max(op.astype(seen, "int8"), -1, True), "bool"))
                weights = bb.emit(op.where(none, op.full_like(weights, relax.const(0.0)), weights))
            out = [bb.emit(op.matmul(weights, v)), *([scores] if returned else [])]
            out = bb.emit_output(relax.Tuple(out))
        bb.emit_func_output(out)
    return normal(bb.get())


class Only:
    """A backend that takes one operator."""

    after_others_us = (0.0, 0.0)

    def __init__(self, name: str, operator: str) -> None:
        self.name, self._operator = name, operator

    def accepts(self, workload, _device):
        return None if workload.op == self._operator else Decline(self.name, workload.op)


BACKENDS = [Only("fused", "attention"), Only("gemm", "matmul")]


def chosen(graph: MatchGraph, us: dict[str, float]) -> list[str]:
    """Backends of the cheapest cover, with times by operator."""
    offers = {
        w: Offers(w, [Offer(Candidate(name, "kernel"), Measurement(kernel_us=us[w.op]))])
        for w in graph.workloads()
        for name in [{"attention": "fused", "matmul": "gemm"}[w.op]]
        if w.op in us
    }
    launches = find_cover(priced(graph, offers)).launches
    return sorted(o.candidate.backend for s, o in launches if s.workload is not None)


def test_the_cheaper_of_both_covers_is_selected() -> None:
    graph = partition(attention(256), BACKENDS)  # type: ignore[arg-type]
    assert [w.op for w in graph.workloads()] == ["attention", "matmul", "matmul"]
    assert chosen(graph, {"attention": 60.0, "matmul": 1.0}) == ["gemm", "gemm"]
    assert chosen(graph, {"attention": 3.0, "matmul": 1.0}) == ["fused"], "softmax costs, too"
    assert chosen(graph, {"attention": 4.0}) == ["fused"], "products of TVM are not free"
    assert chosen(graph, {"matmul": 1.0}) == ["gemm", "gemm"]


def test_what_is_not_chosen_is_not_left_to_tvm() -> None:
    placement = place(attention(512, tokens=1024), device=Device(), measure=False)
    assert "attention" in {workload.op for workload in placement.workloads}
    assert {choice.workload.op for choice in placement.plan.choices} == {"matmul"}
    assert not placement.native


def test_narrow_heads_are_one_kernel() -> None:
    graph = partition(attention(128), BACKENDS)  # type: ignore[arg-type]
    assert [w.op for w in graph.workloads()] == ["attention"]


@pytest.mark.parametrize("options", [{"masked": True}, {"returned": True}])
def test_what_stays_as_it_is_written(options) -> None:
    module = attention(256, **options)
    tvm.ir.assert_structural_equal(WideHeads()(module), module)


@pytest.mark.parametrize("safe", [False, True])
def test_scores_are_not_rounded(safe: bool) -> None:
    """Scores of some thousand, which scale to some hundred: in 16 bits they overflow or are off by
    a quarter before they are scaled."""
    dim = 256
    module = WideHeads()(attention(dim, safe=safe))
    kinds = [op_name(binding.value) for binding in bindings_of(module["main"])]
    assert "relax.where" not in kinds and kinds.count("relax.matmul") == 2
    q, k, v = (RNG.standard_normal((2, 96, dim)).astype("float16") for _ in range(3))
    q, k = 30 * q, 12 * k
    machine = relax.VirtualMachine(lower(module, "llvm"), tvm.cpu())
    tensors = [tvm.runtime.tensor(x.astype("float32"), tvm.cpu()) for x in (q, k, v)]
    got = machine["main"](*tensors)[0].numpy()
    scores = q.astype("float64") @ k.astype("float64").swapaxes(1, 2) / math.sqrt(dim)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    exact = weights / weights.sum(-1, keepdims=True) @ v.astype("float64")
    assert np.linalg.norm(got - exact) < 1e-3 * np.linalg.norm(exact)
