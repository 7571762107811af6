"""Squeeze-and-excitation blocks are found from the mean to the multiplication or the activation
behind it, as alternatives to the kernels of their products."""

from __future__ import annotations

import dataclasses

import pytest
import tvm
from tests.helpers.illegal_sites import illegal_sites
from tvm import relax
from tvm.relax import op

from convoy.backends.registry import get
from convoy.graph.expr import op_name
from convoy.graph.function import bindings_of
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.squeeze_excite import SqueezeExcite
from convoy.normalize.normal_form import normalize
from convoy.partition import patterns
from convoy.partition.alternatives import plausible, plausible_workloads
from convoy.partition.partition import partition
from convoy.partition.rewrite import with_constant_weights
from convoy.partition.subgraphs import find_subgraphs

from ..graph.nets import Net, random_inputs, relative_error, run_llvm
from ..helpers.gated_images import activated, block, dense_gates, gates
from ..partition.test_subgraphs import run_rewritten
from ..partition.test_wide_heads import Only

RELU, SIGMOID = (Epilogue(bias=True, activation=name) for name in ("relu", "sigmoid"))
OWN = SqueezeExcite(8, RELU, SIGMOID)
BACKENDS = [get(name) for name in ("cutlass", "depthwise", "tvm")]


def joint(module: tvm.IRModule, dtype: str = "float16"):
    """The blocks in the module's normal form, of which none is illegal."""
    normal = normalize(module, dtype=dtype)
    assert not illegal_sites(normal)
    return [s for s in find_subgraphs(normal) if s.require_workload().op == "squeeze_excite"]


def inside(net: Net, x: relax.Var) -> relax.Var:
    """A block between two convolutions."""
    return net.conv(block(net, net.conv(x, 16), 8), 8, 1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("n", [1, 3])
def test_block_of_convolutions(n: int, dtype: str) -> None:
    net = Net((n, 8, 9, 7))
    (found,) = joint(net.finish(inside(net, net.x)), dtype)
    w = found.workload
    assert (w.n, w.h, w.w, w.c, w.k, w.r, w.s, w.dtype) == (n, 9, 7, 16, 16, 1, 1, dtype)
    assert w.epilogue == Epilogue() and w.squeeze_excite == OWN
    assert found.is_alternative and not found.split and not found.optional
    assert len(found.outputs) == 1 and len(found.ops) == 8


@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize("n", [1, 3])
def test_block_of_linear_layers(n: int, keepdims: bool) -> None:
    net = Net((n, 8, 9, 7))
    x = net.conv(net.x, 16)
    vectors = dense_gates(net, x, 6, keepdims)
    y = net.emit(op.multiply(x, net.emit(op.reshape(vectors, (n, 16, 1, 1)))))
    (found,) = joint(net.finish(net.conv(y, 8, 1)))
    assert found.workload.squeeze_excite == SqueezeExcite(6, RELU, SIGMOID)
    assert (found.workload.n, found.workload.c) == (n, 16)


def test_gates_that_are_spread_before_they_are_used() -> None:
    net = Net((2, 8, 9, 7))
    x = net.conv(net.x, 16)
    vectors = net.emit(op.reshape(dense_gates(net, x, 6), (2, 16, 1, 1)))
    y = net.emit(op.multiply(x, net.emit(op.broadcast_to(vectors, (2, 16, 9, 7)))))
    (found,) = joint(net.finish(net.conv(y, 8, 1)))
    assert found.workload.squeeze_excite == SqueezeExcite(6, RELU, SIGMOID)


@pytest.mark.parametrize("shape", [(1, 1, 8, 1), (1, 1, 1, 8)], ids=str)
def test_gates_along_another_axis_are_none(shape: tuple[int, ...]) -> None:
    """An axis of the image that is as long as there are channels."""
    net = Net((1, 8, 8, 8))
    x = net.conv(net.x, 8)
    vectors = net.emit(op.reshape(dense_gates(net, x, 6), shape))
    y = net.emit(op.multiply(x, net.emit(op.broadcast_to(vectors, (1, 8, 8, 8)))))
    assert not joint(net.finish(net.conv(y, 8, 1)))


@pytest.mark.parametrize("first", [True, False])
def test_in_either_order(first: bool) -> None:
    net = Net((2, 16, 9, 9))
    x = net.conv(net.x, 16)
    own = gates(net, x, 8)
    y = op.multiply(own, x) if first else op.multiply(x, own)
    assert len(joint(net.finish(net.conv(net.emit(y), 8, 1)))) == 1


@pytest.mark.parametrize("squeeze", ["none", "relu", "silu", "gelu", "tanh"])
@pytest.mark.parametrize("gate", ["sigmoid", "clip", "hardsigmoid"])
def test_activations(squeeze: str, gate: str) -> None:
    net = Net((1, 16, 6, 6))
    y = block(net, net.conv(net.x, 16), 8, squeeze, gate)
    (found,) = joint(net.finish(net.conv(y, 8, 1)))
    own = found.workload.squeeze_excite
    assert own.squeeze_epilogue == Epilogue(bias=True, activation=squeeze)
    clip = Epilogue(bias=True, activation="clip", clip_max=1.0)
    assert own.gate_epilogue == (SIGMOID if gate == "sigmoid" else clip)


@pytest.mark.parametrize("activation", ["none", "relu", "tanh"])
def test_other_gates_are_none(activation: str) -> None:
    net = Net((1, 16, 6, 6))
    y = block(net, net.conv(net.x, 16), 8, "relu", activation)
    assert not joint(net.finish(net.conv(y, 8, 1)))


def test_without_biases() -> None:
    net = Net((1, 16, 6, 6))
    y = block(net, net.conv(net.x, 16), 8, bias=False)
    (found,) = joint(net.finish(net.conv(y, 8, 1)))
    relu, sigmoid = (Epilogue(activation=name) for name in ("relu", "sigmoid"))
    assert found.workload.squeeze_excite == SqueezeExcite(8, relu, sigmoid)


@pytest.mark.parametrize("activation", ["none", "relu", "clip", "silu"])
@pytest.mark.parametrize("residual", [True, False])
def test_residual_and_activation_behind_it(residual: bool, activation: str) -> None:
    net = Net((2, 16, 6, 6))
    x = net.conv(net.x, 16)
    y = block(net, x, 8)
    y = activated(net, net.add(y, net.x) if residual else y, activation)
    found = joint(net.finish(net.conv(y, 8, 3)))
    kept = activation if activation in ("relu", "clip") else "none"
    high = 1.0 if kept == "clip" else 0.0
    longest = Epilogue(residual, activation=kept, clip_max=high)
    wanted = [longest, Epilogue()] if longest != Epilogue() else [Epilogue()]
    assert [s.workload.epilogue for s in found] == wanted, "the longest first"
    assert len({s.root for s in found}) == len(found)


def test_a_residual_behind_the_activation_is_left_out() -> None:
    net = Net((2, 16, 6, 6))
    y = net.add(net.relu(block(net, net.conv(net.x, 16), 8)), net.x)
    found = joint(net.finish(net.conv(y, 8, 3)))
    assert [s.workload.epilogue.name for s in found] == ["relu", ""]


def test_the_residual_may_be_the_image() -> None:
    net = Net((2, 16, 6, 6))
    x = net.conv(net.x, 16)
    y = net.relu(net.add(x, block(net, x, 8)))
    longest, _ = joint(net.finish(net.conv(y, 8, 3)))
    assert longest.workload.epilogue == Epilogue(True, activation="relu")


def test_the_image_may_be_read_by_others_and_returned() -> None:
    net = Net((1, 8, 6, 6))
    x = net.conv(net.x, 16)
    (found,) = joint(net.finish(net.conv(block(net, x, 8), 8, 1), x, net.conv(x, 8)))
    assert found.workload.squeeze_excite == OWN


def none(case: str) -> tvm.IRModule:
    """What no kernel computes together."""
    net = Net((2, 16, 6, 6))
    x = net.conv(net.x, 16)
    mean = net.emit(op.mean(x, [3] if case == "rows" else [2, 3], keepdims=True))
    if case == "the largest":
        mean = net.emit(op.max(x, [2, 3], keepdims=True))
    groups = 2 if case == "groups" else 1
    inner = net.relu(net.conv(mean, 8, 1, groups=groups, bias=True))
    if case == "one product":
        inner = mean
    own = net.emit(op.sigmoid(net.conv(inner, 16, 1, bias=True)))
    if case == "three products":
        own = net.emit(op.sigmoid(net.conv(own, 16, 1, bias=True)))
    also = {"mean": [mean], "first result": [inner], "gates": [own]}.get(case, [])
    if case == "gates twice":
        also = [net.emit(op.exp(own))]
    scaled = net.relu(x) if case == "another image" else x
    how = op.add if case == "a sum" else op.multiply
    return net.finish(net.conv(net.emit(how(scaled, own)), 8, 1), *also)


@pytest.mark.parametrize(
    "case",
    [
        *("rows", "the largest", "groups", "one product", "three products", "mean"),
        *("first result", "gates", "gates twice", "another image", "a sum"),
    ],
)
def test_what_is_none(case: str) -> None:
    assert not joint(none(case))


def test_what_is_left_of_the_cases_is_one() -> None:
    assert len(joint(none("nothing else"))) == 1


def test_float32_is_none() -> None:
    net = Net((1, 8, 6, 6))
    assert not joint(net.finish(inside(net, net.x)), "float32")


@pytest.mark.parametrize("which", range(2))
def test_weights_of_the_caller_are_none(which: int) -> None:
    net = Net((1, 16, 6, 6))
    shapes = (8, 16, 1, 1), (16, 8, 1, 1)
    weights = [net.const(*shape) for shape in shapes]
    given = weights[which] = net.var("given", shapes[which])
    bb = relax.BlockBuilder()
    with bb.function("main", [net.x, given]):
        with bb.dataflow():
            x = bb.emit(op.nn.conv2d(net.x, net.const(16, 16, 1, 1)))
            mean = bb.emit(op.mean(x, [2, 3], keepdims=True))
            inner = bb.emit(op.nn.relu(bb.emit(op.nn.conv2d(mean, weights[0]))))
            own = bb.emit(op.sigmoid(bb.emit(op.nn.conv2d(inner, weights[1]))))
            y = bb.emit_output(op.multiply(x, own))
        bb.emit_func_output(y)
    assert not joint(bb.get())


def two_blocks() -> tvm.IRModule:
    """A block of convolutions with a residual and ReLU behind it, and one of linear layers."""
    net = Net((2, 8, 7, 7))
    x = net.conv(net.x, 16, bias=True)
    x = net.relu(net.add(block(net, x, 8), x))
    vectors = net.emit(op.reshape(dense_gates(net, x, 6), (2, 16, 1, 1)))
    return net.finish(net.conv(net.emit(op.multiply(x, vectors)), 8, 1), x)


@pytest.mark.parametrize("longest", [True, False])
def test_computes_the_same(longest: bool) -> None:
    module = two_blocks()
    normal = normalize(module, dtype="float16")
    first, short, second = joint(module)
    assert first.workload.epilogue.name == "residual_relu" and not short.workload.epilogue.name
    chosen = [first if longest else short, second]
    inputs = random_inputs(module)
    rewritten, got = run_rewritten(normal, chosen, inputs)
    for one, wanted in zip(got, run_llvm(module, *inputs), strict=True):
        assert relative_error(one, wanted) < 5e-3
    calls = [b.value for b in bindings_of(rewritten["main"])]
    names = [op_name(call) for call in calls]
    assert not {"relax.mean", "relax.multiply", "relax.matmul"}.intersection(names)
    assert ("relax.add" in names, names.count("relax.nn.conv2d")) == (True, 2)
    symbols = [
        str(call.args[0].global_symbol)
        for call in calls
        if op_name(call) == "relax.call_dps_packed"
    ]
    workloads = dict(zip(symbols, (s.workload for s in chosen), strict=True))
    assert with_constant_weights(rewritten, workloads) == set(symbols)


def network() -> tvm.IRModule:
    net = Net((1, 16, 12, 12))
    return normalize(net.finish(inside(net, net.x)), dtype="float16")


def test_it_is_an_alternative_to_the_products() -> None:
    graph = partition(network(), [*BACKENDS, Only("joint", "squeeze_excite")])
    (found,) = (s for s in graph.subgraphs if s.is_alternative)
    names = [backend.name for backend in BACKENDS]
    assert not any(map(found.accepted_by, names)) and found.accepted_by("joint")
    assert not any(s.is_alternative for group in plausible(graph, ["joint"]) for s in group)
    for together in (True, False):
        asked = plausible_workloads(graph, [*names, "joint"], together)
        assert (found.workload in asked) == together
    roots = {s.root for s in graph.subgraphs if not s.is_alternative}
    assert len(roots.intersection(found.ops)) == 2, "each product has subgraphs of its own"


def test_where_no_backend_takes_them_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    module = network()
    device = dataclasses.replace(Device(), arch=80)
    graph = partition(module, BACKENDS, device)
    assert not any(s.is_alternative for s in graph.subgraphs)
    known = [p for p in patterns.registered() if p.name != "squeeze_excite"]
    monkeypatch.setattr(patterns, "registered", lambda: known)
    assert partition(module, BACKENDS, device) == graph
