"""1x1 convolutions are found with the depthwise convolution that alone reads their result, as an
alternative to the kernels of both."""

from __future__ import annotations

import dataclasses

import pytest
import tvm
from tests.helpers.illegal_sites import illegal_sites
from tvm import relax

from convoy.backends.registry import get
from convoy.graph.expr import op_name
from convoy.graph.function import bindings_of
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.expansion import Expansion
from convoy.normalize.normal_form import normalize
from convoy.partition import patterns
from convoy.partition.alternatives import plausible, plausible_workloads
from convoy.partition.partition import partition
from convoy.partition.rewrite import with_constant_weights
from convoy.partition.subgraphs import find_subgraphs

from ..graph.nets import Net, random_inputs, relative_error, run_llvm
from ..partition.test_subgraphs import run_rewritten
from ..partition.test_wide_heads import Only

CLIP = Epilogue(bias=True, activation="clip", clip_max=6.0)
BACKENDS = [get(name) for name in ("cutlass", "depthwise", "tvm")]


def block(
    net: Net, x: relax.Var, activation: str = "clip", k: int = 16, **depthwise: object
) -> relax.Var:
    """The two convolutions of an inverted residual that widen its input to ``k`` channels."""
    options = {"bias": True, "groups": k, **depthwise}
    wide = activated(net, net.conv(x, k, 1, bias=True), activation)
    return activated(net, net.conv(wide, k, **options), activation)


def activated(net: Net, x: relax.Var, activation: str) -> relax.Var:
    if activation == "none":
        return x
    if activation == "clip":
        return net.emit(relax.op.clip(x, 0, 6))
    return net.emit(getattr(relax.op.nn, activation)(x))


def joint(module: tvm.IRModule, dtype: str = "float16"):
    """Those of both convolutions in the module's normal form, of which none is illegal."""
    normal = normalize(module, dtype=dtype)
    assert not illegal_sites(normal)
    return [s for s in find_subgraphs(normal) if s.require_workload().op == "expand_depthwise"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("taps", "stride", "dilation"), [(3, 1, 1), (5, 2, 1), (3, 1, 2)])
def test_from_the_first_convolution_to_the_second_activation(taps, stride, dilation, dtype):
    net = Net((2, 8, 9, 9))
    y = block(net, net.x, r=taps, stride=stride, dilation=dilation)
    module = net.finish(net.conv(y, 8, 1))
    (found,) = joint(module, dtype)
    w = found.workload
    assert w.expansion == Expansion(8, CLIP) and w.epilogue == CLIP
    assert (w.n, w.h, w.w, w.k, w.r, w.s) == (2, 9, 9, 16, taps, taps) and w.dtype == dtype
    assert (w.stride, w.dilation, w.groups) == ((stride,) * 2, (dilation,) * 2, 16)
    assert found.is_alternative and not found.split and len(found.ops) == 6


@pytest.mark.parametrize("activation", ["silu", "none", "relu"])
def test_any_activation_or_none(activation: str) -> None:
    net = Net((1, 8, 6, 6))
    (found,) = joint(net.finish(net.conv(block(net, net.x, activation), 8, 1)))
    epilogue = Epilogue(bias=True, activation=activation)
    assert found.workload.expansion.epilogue == found.workload.epilogue == epilogue


def test_without_biases() -> None:
    net = Net((1, 8, 6, 6))
    (found,) = joint(net.finish(net.conv(net.relu(net.conv(net.x, 16, 1)), 16, groups=16)))
    relu = Epilogue(activation="relu")
    assert (found.workload.expansion, found.workload.epilogue) == (Expansion(8, relu), Epilogue())


def test_every_block_of_a_network() -> None:
    net = Net((1, 8, 8, 8))
    x = net.conv(net.x, 8, 3)
    for _ in range(3):
        x = net.add(net.conv(block(net, x), 8, 1, bias=True), x)
    found = joint(net.finish(x))
    assert len(found) == 3 and len({s.root for s in found}) == 3
    assert len({s.workload for s in found}) == 1


def test_it_ends_before_a_residual() -> None:
    net = Net((1, 16, 6, 6))
    wide = net.relu(net.conv(net.x, 16, 1, bias=True))
    y = net.relu(net.add(net.conv(wide, 16, 3, groups=16, bias=True), net.x))
    (found,) = joint(net.finish(y))
    assert found.workload.epilogue == Epilogue(bias=True)
    between = net = Net((1, 16, 6, 6))
    wide = net.add(net.conv(net.x, 16, 1, bias=True), net.x)
    assert not joint(between.finish(net.conv(wide, 16, 3, groups=16)))


def ends(case: str) -> tvm.IRModule:
    """Two convolutions that no kernel computes together."""
    net = Net((1, 8, 6, 6))
    wide = net.relu(net.conv(net.x, 16, 1, stride=2 if case == "strided" else 1, bias=True))
    if case == "3x3":
        wide = net.relu(net.conv(net.x, 16, 3))
    if case == "grouped":
        wide = net.relu(net.conv(net.x, 16, 1, groups=2))
    y = net.conv(wide, 32 if case == "multiplier" else 16, 3, groups=2 if case == "dense" else 16)
    also = {"read twice": [net.conv(wide, 8, 1)], "returned": [wide]}
    return net.finish(y, *also.get(case, ()))


@pytest.mark.parametrize(
    "case",
    ["read twice", "returned", "multiplier", "dense", "strided", "3x3", "grouped"],
)
def test_what_is_none(case: str) -> None:
    assert not joint(ends(case))


def test_float32_is_none() -> None:
    net = Net((1, 8, 6, 6))
    assert not joint(net.finish(block(net, net.x)), "float32")


@pytest.mark.parametrize("which", [0, 1])
def test_filters_of_the_caller_are_none(which: int) -> None:
    bb = relax.BlockBuilder()
    shapes = {"x": (1, 8, 6, 6), "v": (16, 8, 1, 1), "w": (16, 1, 3, 3)}
    x, *filters = (relax.Var(n, relax.TensorType(s, "float32")) for n, s in shapes.items())
    given = [filters[which]]
    ones = Net((1, 1, 1, 1)).const(*shapes["vw"[1 - which]])
    v, w = (given[0], ones) if which == 0 else (ones, given[0])
    with bb.function("main", [x, *given]):
        with bb.dataflow():
            wide = bb.emit(relax.op.nn.conv2d(x, v))
            y = bb.emit_output(relax.op.nn.conv2d(wide, w, padding=1, groups=16))
        bb.emit_func_output(y)
    assert not joint(bb.get())


@pytest.mark.parametrize("activation", ["clip", "silu"])
def test_computes_the_same(activation: str) -> None:
    net = Net((2, 8, 7, 7))
    module = net.finish(net.conv(block(net, net.x, activation, r=5, stride=2), 8, 1))
    normal = normalize(module, dtype="float16")
    (subgraph,) = joint(module)
    inputs = random_inputs(module)
    rewritten, (got,) = run_rewritten(normal, [subgraph], inputs)
    (wanted,) = run_llvm(module, *inputs)
    assert relative_error(got, wanted) < 5e-3
    calls = [b.value for b in bindings_of(rewritten["main"])]
    assert [op_name(call) for call in calls].count("relax.nn.conv2d") == 1
    (symbol,) = (
        str(call.args[0].global_symbol)
        for call in calls
        if op_name(call) == "relax.call_dps_packed"
    )
    assert with_constant_weights(rewritten, {symbol: subgraph.workload}) == {symbol}


def network() -> tvm.IRModule:
    net = Net((1, 8, 12, 12))
    module = net.finish(net.conv(block(net, net.x), 8, 1))
    return normalize(module, dtype="float16")


def test_it_is_an_alternative_to_both() -> None:
    graph = partition(network(), [*BACKENDS, Only("joint", "expand_depthwise")])
    (found,) = (s for s in graph.subgraphs if s.is_alternative)
    names = [backend.name for backend in BACKENDS]
    assert not any(map(found.accepted_by, names)) and found.accepted_by("joint")
    assert not any(s.is_alternative for group in plausible(graph, ["joint"]) for s in group)
    for together in (True, False):
        asked = plausible_workloads(graph, [*names, "joint"], together)
        assert (found.workload in asked) == together
    roots = {s.root for s in graph.subgraphs if s is not found}
    assert len(roots.intersection(found.ops)) == 2, "each convolution has subgraphs of its own"


def test_where_no_backend_takes_them_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    module = network()
    device = dataclasses.replace(Device(), arch=80)
    graph = partition(module, BACKENDS, device)
    assert not any(s.is_alternative for s in graph.subgraphs)
    known = [p for p in patterns.registered() if p.name != "expand_depthwise"]
    monkeypatch.setattr(patterns, "registered", lambda: known)
    assert partition(module, BACKENDS, device) == graph
