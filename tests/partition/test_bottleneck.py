"""Bottlenecks of residual networks are found from their 3x3 convolution to the first one of the
next bottleneck, as alternatives to the kernels of each convolution."""

from __future__ import annotations

import dataclasses

import pytest
import tvm
from tests.helpers.illegal_sites import illegal_sites
from tvm import relax

from convoy.backends.registry import get
from convoy.graph.expr import op_name
from convoy.graph.function import bindings_of
from convoy.ir.bottleneck import Bottleneck
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.normalize.normal_form import normalize
from convoy.partition import patterns
from convoy.partition.alternatives import plausible, plausible_workloads
from convoy.partition.partition import partition
from convoy.partition.rewrite import with_constant_weights
from convoy.partition.subgraphs import find_subgraphs

from ..graph.nets import Net, preact_resnet, random_inputs, relative_error, run_llvm
from ..partition.test_subgraphs import run_rewritten
from ..partition.test_wide_heads import Only

RELU = Epilogue(bias=True, activation="relu")
ADDED = dataclasses.replace(RELU, residual=True)
BACKENDS = [get(name) for name in ("cutlass", "depthwise", "tvm")]


def tail(net: Net, x: relax.Var, wide: int, shortcut: relax.Var, **conv: object) -> relax.Var:
    """A bottleneck behind its first convolution."""
    y = net.relu(net.conv(x, net.channels(x), **{"bias": True, **conv}))
    return net.relu(net.add(net.conv(y, wide, 1, bias=True), shortcut))


def head(net: Net, x: relax.Var, k: int = 8) -> relax.Var:
    """The first convolution of a bottleneck."""
    return net.relu(net.conv(x, k, 1, bias=True))


def stage(net: Net, x: relax.Var, blocks: int = 3) -> relax.Var:
    """Bottlenecks, of which the first has a convolution as its shortcut."""
    for i in range(blocks):
        shortcut = net.conv(x, 32, 1, bias=True) if i == 0 else x
        x = tail(net, head(net, x), 32, shortcut)
    return x


def joint(module: tvm.IRModule, dtype: str = "float16"):
    """Those of several convolutions in the module's normal form, of which none is illegal."""
    normal = normalize(module, dtype=dtype)
    assert not illegal_sites(normal)
    return [s for s in find_subgraphs(normal) if s.require_workload().op == "bottleneck"]


def pairs(found):
    return [s for s in found if not s.workload.bottleneck.reduce]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_block_of_a_stage(dtype: str) -> None:
    net = Net((2, 16, 9, 9))
    found = joint(net.finish(stage(net, net.x)), dtype)
    assert len(pairs(found)) == 3 and len(found) == 5, "the last block has no next one"
    assert {s.workload.bottleneck for s in pairs(found)} == {Bottleneck(32, ADDED)}
    whole = [s.workload for s in found if s not in pairs(found)]
    assert {w.bottleneck for w in whole} == {Bottleneck(32, ADDED, 8, RELU)}
    for w in (s.workload for s in found):
        assert (w.n, w.h, w.w, w.c, w.k, w.r, w.s) == (2, 9, 9, 8, 8, 3, 3) and w.dtype == dtype
        assert w.epilogue == RELU and w.padding == (1,) * 4
    assert all(s.is_alternative and not s.split for s in found)
    assert [len(s.outputs) for s in found] == [w.num_outputs for w in (s.workload for s in found)]
    assert len({s.root for s in found}) == 5


@pytest.mark.parametrize(
    "conv", [{"r": 5}, {"dilation": 2}, {"r": 1, "s": 3}, {"padding": 0}], ids=str
)
def test_any_filter(conv: dict[str, object]) -> None:
    net = Net((1, 8, 12, 12))
    y = net.relu(net.conv(net.x, 8, bias=True, **conv))
    (found,) = joint(net.finish(net.conv(y, 16, 1)))
    w = found.workload
    assert (w.r, w.s) == (conv.get("r", 3), conv.get("s", conv.get("r", 3)))
    assert w.dilation == (conv.get("dilation", 1),) * 2
    assert w.bottleneck == Bottleneck(16)


@pytest.mark.parametrize("activation", ["none", "clip", "silu"])
def test_any_activation_or_none(activation: str) -> None:
    net = Net((1, 8, 6, 6))

    def activated(x: relax.Var) -> relax.Var:
        if activation == "none":
            return x
        op = relax.op
        return net.emit(op.clip(x, 0, 6) if activation == "clip" else op.nn.silu(x))

    y = activated(net.conv(net.x, 8, bias=True))
    y = activated(net.conv(y, 16, 1, bias=True))
    pair, whole = sorted(
        joint(net.finish(activated(net.conv(y, 8, 1, bias=True)))), key=lambda s: len(s.ops)
    )
    own = Epilogue(bias=True, activation=activation, clip_max=6.0 if activation == "clip" else 0.0)
    assert whole.workload.bottleneck == Bottleneck(16, own, 8, own)
    assert pair.workload.epilogue == whole.workload.epilogue == own
    assert pair.workload.bottleneck == Bottleneck(16, own)


def test_without_biases() -> None:
    net = Net((1, 8, 6, 6))
    y = net.conv(net.relu(net.conv(net.relu(net.conv(net.x, 8)), 16, 1)), 8, 1)
    _, whole = sorted(joint(net.finish(y)), key=lambda s: len(s.ops))
    relu = Epilogue(activation="relu")
    assert whole.workload.bottleneck == Bottleneck(16, relu, 8)
    assert whole.workload.epilogue == relu


def test_each_1x1_convolution_that_reads_it() -> None:
    """Beside others, whose value they read as well."""
    net = Net((1, 8, 6, 6))
    wide = tail(net, net.x, 16, net.conv(net.x, 16, 1))
    readers = head(net, wide, 8), head(net, wide, 24), net.conv(wide, 8, 3), net.relu(wide)
    found = joint(net.finish(*readers, wide, net.conv(wide, 8, 1, stride=2)))
    assert sorted(s.workload.bottleneck.reduce for s in found) == [0, 8, 24]
    assert all(s.outputs[0] == found[0].outputs[0] for s in found)


def test_a_residual_behind_the_activation_is_left_out() -> None:
    net = Net((1, 16, 6, 6))
    y = net.relu(net.conv(net.x, 16, bias=True))
    y = net.add(net.relu(net.conv(y, 16, 1, bias=True)), net.x)
    (found,) = joint(net.finish(y, net.conv(y, 8, 1)))
    assert found.workload.bottleneck == Bottleneck(16, RELU)


def test_the_third_ends_before_a_residual() -> None:
    net = Net((1, 16, 6, 6))
    wide = net.conv(net.conv(net.x, 8), 32, 1)
    third = net.relu(net.add(net.conv(wide, 16, 1, bias=True), net.x))
    _, whole = sorted(joint(net.finish(third)), key=lambda s: len(s.ops))
    assert whole.workload.bottleneck == Bottleneck(
        32, reduce=16, reduce_epilogue=Epilogue(bias=True)
    )


def test_a_bias_that_is_made_later_is_none() -> None:
    """The kernel is called where the wide tensor is bound."""
    bb = relax.BlockBuilder()
    shapes = {"x": (1, 6, 6, 8), "b": (1, 1, 1, 8)}
    x, b = (relax.Var(name, relax.TensorType(size, "float16")) for name, size in shapes.items())
    net = Net((1, 1, 1, 1), dtype="float16")
    layouts = {"data_layout": "NHWC", "kernel_layout": "OHWI"}

    def conv(value: relax.Expr, k: int, r: int, c: int) -> relax.Var:
        filters = net.const(k, r, r, c)
        return bb.emit(relax.op.nn.conv2d(value, filters, padding=r // 2, **layouts))

    with bb.function("main", [x, b]):
        with bb.dataflow():
            wide = conv(conv(x, 8, 3, 8), 16, 1, 8)
            bias = bb.emit(relax.op.exp(b))
            y = bb.emit_output(relax.op.add(conv(wide, 8, 1, 16), bias))
        bb.emit_func_output(y)
    module = bb.get()
    assert not illegal_sites(module)
    found = [s.workload.bottleneck for s in find_subgraphs(module) if s.workload.bottleneck]
    assert found == [Bottleneck(16)]


def none(case: str) -> tvm.IRModule:
    """Two convolutions that no kernel computes together."""
    net = Net((1, 8, 6, 6))
    first = {"strided": {"stride": 2}, "grouped": {"groups": 2}, "1x1": {"r": 1}}
    y = net.conv(net.x, 8, **first.get(case, {}), bias=True)
    y = net.add(y, net.x) if case == "residual" else net.relu(y)
    second = {
        "strided 1x1": {"stride": 2},
        "padded": {"padding": 1},
        "grouped 1x1": {"groups": 2},
        "3x3": {"r": 3},
    }
    wide = net.conv(y, 16, **{"r": 1, **second.get(case, {})})
    also = {"read twice": [net.conv(y, 8, 3)], "returned": [y]}
    return net.finish(wide, *also.get(case, ()))


@pytest.mark.parametrize(
    "case",
    [
        *("strided", "grouped", "1x1", "residual", "strided 1x1", "padded", "grouped 1x1"),
        *("3x3", "read twice", "returned"),
    ],
)
def test_what_is_none(case: str) -> None:
    assert not joint(none(case))


def test_float32_is_none() -> None:
    net = Net((1, 16, 6, 6))
    assert not joint(net.finish(stage(net, net.x)), "float32")


@pytest.mark.parametrize("which", range(3))
def test_filters_of_the_caller_are_none(which: int) -> None:
    bb = relax.BlockBuilder()
    shapes = {"x": (1, 8, 6, 6), "u": (8, 8, 3, 3), "v": (16, 8, 1, 1), "w": (8, 16, 1, 1)}
    x, *filters = (relax.Var(n, relax.TensorType(s, "float32")) for n, s in shapes.items())
    given = filters[which]
    net = Net((1, 1, 1, 1))
    u, v, w = (f if f is given else net.const(*shapes[f.name]) for f in filters)
    with bb.function("main", [x, given]):
        with bb.dataflow():
            wide = bb.emit(relax.op.nn.conv2d(bb.emit(relax.op.nn.conv2d(x, u, padding=1)), v))
            y = bb.emit_output(relax.op.nn.conv2d(wide, w))
        bb.emit_func_output(y)
    assert [s.workload.bottleneck.reduce for s in joint(bb.get())] == ([0] if which == 2 else [])


@pytest.mark.parametrize("whole", [True, False])
def test_computes_the_same(whole: bool) -> None:
    """Of a stage whose wide tensors other operations read as well."""
    net = Net((2, 16, 7, 7))
    y = stage(net, net.x)
    module = net.finish(y, net.max_pool(y))
    normal = normalize(module, dtype="float16")
    found = joint(module)
    chosen = [s for s in found if (s not in pairs(found)) == whole]
    if whole:
        covered = {name for s in chosen for name in s.ops}
        chosen += [s for s in pairs(found) if covered.isdisjoint(s.ops)]
        assert [s.workload.num_outputs for s in chosen] == [2, 2, 1]
    assert len(chosen) == 3
    inputs = random_inputs(module)
    rewritten, got = run_rewritten(normal, chosen, inputs)
    for one, wanted in zip(got, run_llvm(module, *inputs), strict=True):
        assert relative_error(one, wanted) < 5e-3
    calls = [b.value for b in bindings_of(rewritten["main"])]
    left = 2 if whole else 4  # the first convolution and the first shortcut
    assert [op_name(call) for call in calls].count("relax.nn.conv2d") == left
    symbols = [
        str(call.args[0].global_symbol)
        for call in calls
        if op_name(call) == "relax.call_dps_packed"
    ]
    workloads = dict(zip(symbols, (s.workload for s in chosen), strict=True))
    assert with_constant_weights(rewritten, workloads) == set(symbols)


def test_of_a_network_with_batch_norms_in_front() -> None:
    """There the wide tensor is not what the next convolution reads."""
    found = joint(preact_resnet(blocks=(2, 1), width=8))
    assert [s.workload.bottleneck for s in found] == [
        Bottleneck(32, Epilogue(residual=True)),
        Bottleneck(32, Epilogue(residual=True)),
    ]


def network() -> tvm.IRModule:
    net = Net((1, 32, 12, 12))
    module = net.finish(head(net, tail(net, head(net, net.x), 32, net.x)))
    return normalize(module, dtype="float16")


def test_it_is_an_alternative_to_all() -> None:
    graph = partition(network(), [*BACKENDS, Only("joint", "bottleneck")])
    found = [s for s in graph.subgraphs if s.is_alternative]
    assert [s.workload.num_outputs for s in found] == [2, 1], "the longest first"
    names = [backend.name for backend in BACKENDS]
    for subgraph in found:
        assert not any(map(subgraph.accepted_by, names)) and subgraph.accepted_by("joint")
    assert not any(s.is_alternative for group in plausible(graph, ["joint"]) for s in group)
    for together in (True, False):
        asked = plausible_workloads(graph, [*names, "joint"], together)
        assert {s.workload in asked for s in found} == {together}
    roots = {s.root for s in graph.subgraphs if not s.is_alternative}
    assert len(roots.intersection(found[0].ops)) == 3, "each has subgraphs of its own"


def test_where_no_backend_takes_them_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    module = network()
    device = dataclasses.replace(Device(), arch=80)
    graph = partition(module, BACKENDS, device)
    assert not any(s.is_alternative for s in graph.subgraphs)
    known = [p for p in patterns.registered() if p.name != "bottleneck"]
    monkeypatch.setattr(patterns, "registered", lambda: known)
    assert partition(module, BACKENDS, device) == graph
