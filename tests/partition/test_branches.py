"""Parallel branches as one convolution: what is found, and that it computes the same."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from convoy.graph.expr import as_numpy, is_const, op_name, shape_of
from convoy.graph.function import bindings_of
from convoy.normalize.normal_form import normalize
from convoy.partition import patterns
from convoy.partition.patterns.base import GraphView, Site, why_illegal
from convoy.partition.patterns.branches import Branches
from convoy.partition.rewrite import rewrite
from convoy.partition.subgraphs import find_subgraphs

from ..graph.nets import Net, random_inputs, relative_error, run_llvm
from ..helpers.longest import longest
from ..partition.test_subgraphs import normal_form, run_rewritten


def joint(mod):
    return [subgraph for subgraph in find_subgraphs(mod) if subgraph.split]


def inception(**options):
    """Three branches of 1x1 convolutions: one goes straight into the concatenation."""
    net = Net((2, 8, 5, 5), **options)
    parts = [net.relu(net.conv(net.x, k, 1, bias=True)) for k in (8, 4, 12)]
    parts[1] = net.relu(net.conv(parts[1], 8, 3, bias=True))
    parts[2] = net.relu(net.conv(parts[2], 8, 5, bias=True))
    return net.finish(net.concat(*parts))


def test_every_subset_of_the_branches_is_a_subgraph() -> None:
    subgraphs = joint(normal_form(inception()))
    assert [subgraph.split for subgraph in subgraphs] == [(8, 4, 12), (8, 4), (8, 12), (4, 12)]
    assert [subgraph.workload.k for subgraph in subgraphs] == [24, 12, 20, 16]
    assert {subgraph.workload.epilogue.name for subgraph in subgraphs} == {"bias_relu"}
    assert len({subgraph.root for subgraph in subgraphs}) == 4, "each is a decision of its own"


@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_joint_convolution_computes_the_same(which: int, dtype: str) -> None:
    mod = inception()
    normal = normal_form(mod, dtype)
    subgraph = joint(normal)[which]
    others = [
        r
        for r in longest(find_subgraphs(normal), lambda w: True)
        if set(r.ops).isdisjoint(subgraph.ops)
    ]
    inputs = random_inputs(mod)
    rewritten, got = run_rewritten(normal, [subgraph, *others], inputs)
    for a, b in zip(got, run_llvm(mod, *inputs), strict=True):
        assert relative_error(a, b) < (1e-5 if dtype == "float32" else 5e-3)
    text = rewritten.script(show_meta=False)
    assert text.count("call_dps_packed") == 1 + len(others)
    assert text.count("strided_slice") == len(subgraph.split) and "conv2d" not in text


def test_products_of_one_input_are_joined() -> None:
    net = Net((3, 8, 1, 1))
    flat = net.emit(op.reshape(net.x, (3, 8)))
    heads = [net.emit(op.matmul(flat, net.const(8, k))) for k in (8, 16)]
    mod = net.finish(*heads)
    normal = normal_form(mod)
    (subgraph,) = joint(normal)
    assert (subgraph.workload.op, subgraph.workload.k, subgraph.split) == ("matmul", 24, (8, 16))
    inputs = random_inputs(mod)
    _, got = run_rewritten(normal, [subgraph], inputs)
    for a, b in zip(got, run_llvm(mod, *inputs), strict=True):
        assert relative_error(a, b) < 1e-5


def test_only_what_all_have_behind_them_is_fused() -> None:
    net = Net((1, 8, 5, 5))
    a = net.relu(net.conv(net.x, 8, 1, bias=True))
    b = net.emit(op.tanh(net.conv(net.x, 8, 1, bias=True)))
    c = net.conv(net.x, 8, 1)
    mod = net.finish(a, b, c)
    found = {(*r.split, r.workload.epilogue.name) for r in joint(normal_form(mod))}
    assert found == {(8, 8, "bias"), (8, 8, ""), (8, 8, 8, "")}


def test_different_problems_are_not_joined() -> None:
    net = Net((1, 8, 6, 6))
    ways = [
        net.conv(net.x, 8, 1),
        net.conv(net.x, 8, 3),
        net.conv(net.x, 8, 3, padding=(0, 0)),
        net.conv(net.x, 8, 1, stride=2),
        net.conv(net.x, 8, 1, groups=4),
        net.conv(net.x, 8, 1, groups=4),
        net.conv(net.relu(net.x), 8, 1),
    ]
    assert joint(normal_form(net.finish(*ways))) == []


def test_weights_of_the_caller_are_not_joined() -> None:
    """They would have to be put behind each other in every run."""
    bb = relax.BlockBuilder()
    x, *weights = (
        relax.Var(name, relax.TensorType(shape, "float32"))
        for name, shape in (("x", (1, 5, 5, 8)), ("v", (8, 1, 1, 8)), ("w", (8, 1, 1, 8)))
    )
    with bb.function("main", [x, *weights]):
        with bb.dataflow():
            made = [
                bb.emit(op.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="OHWI"))
                for w in weights
            ]
            out = bb.emit_output(relax.Tuple(made))
        bb.emit_func_output(out)
    assert joint(normalize(bb.get(), dtype="float32")) == []


def test_of_many_branches_only_all_together() -> None:
    net = Net((1, 8, 5, 5))
    mod = net.finish(net.concat(*(net.conv(net.x, 8, 1) for _ in range(6))))
    assert [subgraph.split for subgraph in joint(normal_form(mod))] == [(8,) * 6]


def test_parts_must_add_up() -> None:
    normal = normal_form(inception())
    view = GraphView(normal["main"])
    site = next(iter(Branches().sites(view)))
    assert why_illegal(view, site) == ""
    wrong = Site(site.covered, site.outputs, site.workload, site.inputs, (8, 4, 8))
    assert "20 channels together, not 24" in why_illegal(view, wrong)
    wrong = Site(site.covered, site.outputs, site.workload, site.inputs, (4, 8, 12))
    assert "operand y[0]" in why_illegal(view, wrong)


def test_a_greedy_cover_takes_none() -> None:
    chosen = longest(find_subgraphs(normal_form(inception())), lambda w: True)
    assert len(chosen) == 5 and not any(subgraph.split for subgraph in chosen)


def test_it_is_registered() -> None:
    assert [pattern.name for pattern in patterns.registered()][:2] == ["epilogue", "branches"]


def test_filters_lie_behind_each_other_in_order() -> None:
    """The joint filter is one constant of the compiled module, not a kernel that makes it."""
    normal = normal_form(inception())
    subgraph = joint(normal)[0]
    rewritten = rewrite(normal, {subgraph.id: "f"})
    (call,) = [
        binding.value
        for binding in bindings_of(rewritten["main"])
        if op_name(binding.value) == "relax.call_dps_packed"
    ]
    _, w, bias = call.args[1]
    parts = [as_numpy(operand.args[0][0]) for operand in subgraph.inputs[1:]]
    assert is_const(w) and shape_of(w) == (24, 1, 1, 8)
    assert is_const(bias) and shape_of(bias) == (24,)
    for whole, first in zip((w, bias), parts, strict=True):
        np.testing.assert_array_equal(as_numpy(whole)[:8], first)
