"""Subgraphs: what is found, that choices are legal, and that rewritten graphs compute the same."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from convoy import errors
from convoy.graph.expr import op_name
from convoy.lower.executable import lower
from convoy.normalize.normal_form import normalize
from convoy.partition.rewrite import rewrite
from convoy.partition.subgraphs import find_subgraphs

from ..graph.nets import (
    Net,
    count_ops,
    preact_resnet,
    random_inputs,
    relative_error,
    run_llvm,
    to_numpy,
)
from ..graph.numpy_kernels import register
from ..helpers.longest import longest
from ..normalize.test_normalize import networks


def normal_form(net_or_mod, dtype="float32"):
    return normalize(net_or_mod, dtype=dtype, pad_channels=1)


def fused(mod):
    """Epilogue names of the greedy cover in program order."""
    return [r.workload.epilogue.name for r in longest(find_subgraphs(mod))]


def run_rewritten(mod, chosen, inputs):
    rewritten = rewrite(mod, {r.id: register(r.workload) for r in chosen})
    vm = relax.VirtualMachine(lower(rewritten, "llvm"), tvm.cpu())
    return rewritten, to_numpy(vm["main"](*[tvm.runtime.tensor(i) for i in inputs]))


def check_rewrite(mod, chosen=None, tolerance=1e-5, dtype="float32"):
    normal = normal_form(mod, dtype)
    if chosen is None:
        chosen = longest(find_subgraphs(normal))
    inputs = random_inputs(mod)
    rewritten, got = run_rewritten(normal, chosen, inputs)
    for a, b in zip(got, run_llvm(mod, *inputs), strict=True):
        assert relative_error(a, b) < tolerance
    return rewritten


# -- what is found -----------------------------------------------------------------------------


def test_bias_and_relu():
    net = Net((1, 4, 6, 6))
    mod = normal_form(net.finish(net.relu(net.conv(net.x, 8, 3, bias=True))))
    names = [r.workload.epilogue.name for r in find_subgraphs(mod)]
    assert names == ["bias_relu", "bias", ""]


@pytest.mark.parametrize("bias_first", [True, False])
def test_residual_in_either_order_of_the_bias(bias_first):
    net = Net((1, 4, 6, 6))
    y = net.conv(net.x, 4, 3)
    y = net.add(net.bias(y), net.x) if bias_first else net.bias(net.add(y, net.x))
    mod = net.finish(net.relu(y))
    assert fused(normal_form(mod)) == ["residual_bias_relu"]
    check_rewrite(mod)


def test_activations():
    makers = {
        "sigmoid": op.sigmoid,
        "silu": op.nn.silu,
        "clip[0,6]": op.nn.relu6,
        "clip[-1,2]": lambda x: op.clip(x, -1.0, 2.0),
        "relu": lambda x: op.maximum(x, relax.const(0.0)),
    }
    for name, maker in makers.items():
        net = Net((1, 4, 6, 6))
        mod = net.finish(net.emit(maker(net.conv(net.x, 4, 1))))
        assert fused(normal_form(mod)) == [name]
        check_rewrite(mod)


def test_swish_written_out_is_silu():
    net = Net((1, 4, 6, 6))
    y = net.conv(net.x, 4, 1)
    mod = net.finish(net.emit(op.multiply(y, net.emit(op.sigmoid(y)))))
    assert fused(normal_form(mod)) == ["silu"]


def test_residual_behind_the_activation():
    for emit, name in ((op.nn.silu, "silu"), (op.nn.relu, "relu"), (op.nn.gelu, "gelu")):
        net = Net((1, 4, 6, 6))
        y = net.emit(emit(net.conv(net.x, 4, 3, bias=True)))
        mod = net.finish(net.add(net.x, y))
        names = [r.workload.epilogue.name for r in find_subgraphs(normal_form(mod))]
        assert names == [f"bias_{name}_residual", f"bias_{name}", "bias", ""]
        check_rewrite(mod)


def test_one_residual_and_one_bias():
    """Nothing is taken behind the residual that is last, nor a bias behind an activation."""
    net = Net((1, 4, 6, 6))
    y = net.relu(net.conv(net.x, 4, 3, bias=True))
    mod = net.finish(net.relu(net.add(y, net.x)))
    assert fused(normal_form(mod)) == ["bias_relu_residual_onlyaffinerelu"]
    check_rewrite(mod)
    net = Net((1, 4, 6, 6))
    y = net.relu(net.add(net.conv(net.x, 4, 3), net.x))
    assert fused(normal_form(net.finish(net.add(y, net.x)))) == ["residual_relu"]
    net = Net((1, 4, 6, 6))
    mod = net.finish(net.bias(net.relu(net.conv(net.x, 4, 3))))
    assert fused(normal_form(mod)) == ["relu"]


def test_value_read_twice_ends_the_subgraph():
    net = Net((1, 4, 6, 6))
    y = net.conv(net.x, 4, 1, bias=True)
    mod = net.finish(net.emit(op.tanh(y)), net.emit(op.abs(y)))
    assert fused(normal_form(mod)) == ["bias"]


def test_returned_value_ends_the_subgraph():
    net = Net((1, 4, 6, 6))
    y = net.conv(net.x, 4, 1, bias=True)
    assert fused(normal_form(net.finish(y, net.relu(y)))) == ["bias_affinerelu"]


def test_second_addition_is_left():
    net = Net((1, 4, 6, 6))
    y = net.add(net.add(net.conv(net.x, 4, 1), net.x), net.emit(op.tanh(net.x)))
    assert fused(normal_form(net.finish(y))) == ["residual"]


def test_a_value_added_to_itself_is_no_residual():
    net = Net((1, 4, 6, 6))
    y = net.conv(net.x, 4, 1)
    assert fused(normal_form(net.finish(net.add(y, y)))) == [""]


def test_broadcast_addition_is_no_residual():
    """A gate of shape (1, 1, 1, 1) or a row is neither bias nor residual."""
    net = Net((1, 4, 6, 6))
    row = net.const(1, 1, 1, 6)
    assert fused(normal_form(net.finish(net.emit(op.add(net.conv(net.x, 4, 1), row))))) == [""]


def test_affine_relu_has_two_outputs():
    net = Net((1, 4, 6, 6))
    s = net.add(net.conv(net.x, 4, 3), net.x)
    mod = net.finish(net.add(net.conv(net.relu(net.bn(s)), 4, 3), s))
    normal = normal_form(mod)
    first = find_subgraphs(normal)[0]
    assert first.workload.epilogue.name == "residual_affinerelu"
    assert len(first.outputs) == 2 and first.workload.num_outputs == 2
    assert fused(normal) == ["residual_affinerelu", "residual"]
    rewritten = check_rewrite(mod)
    assert count_ops(rewritten)["relax.call_dps_packed"] == 2
    assert "relax.multiply" not in count_ops(rewritten)


def test_a_sum_that_only_its_affine_relu_reads_is_not_written():
    net = Net((1, 4, 6, 6))
    s = net.add(net.conv(net.x, 4, 3), net.x)
    mod = net.finish(net.conv(net.relu(net.bn(s)), 4, 3))
    normal = normal_form(mod)
    first = find_subgraphs(normal)[0]
    assert first.workload.epilogue.name == "residual_onlyaffinerelu"
    assert len(first.outputs) == 1 and first.workload.num_outputs == 1
    assert first.workload.operand_shapes()[-1][0] == "y2"
    rewritten = check_rewrite(mod)
    assert count_ops(rewritten)["relax.call_dps_packed"] == 2
    assert "relax.multiply" not in count_ops(rewritten)


def test_sum_of_two_convolutions_is_taken_once():
    net = Net((1, 4, 6, 6))
    y = net.relu(net.add(net.conv(net.x, 8, 3), net.conv(net.relu(net.x), 8, 1)))
    mod = net.finish(y)
    normal = normal_form(mod)
    subgraphs = find_subgraphs(normal)
    assert [r.workload.epilogue.name for r in subgraphs] == [
        "residual_relu", "residual", "", "residual_relu", "residual", "",
    ]  # fmt: skip
    assert sorted(fused(normal)) == ["", "residual_relu"]
    check_rewrite(mod)
    # The other way round: the second convolution takes the sum.
    chosen = [subgraphs[2], subgraphs[3]]
    check_rewrite(mod, chosen)


@pytest.mark.parametrize("dtype", ["float32", "tf32", "float16", "bfloat16"])
def test_math_and_dtypes(dtype):
    net = Net((1, 8, 6, 6))
    (subgraph,) = longest(
        find_subgraphs(normal_form(net.finish(net.conv(net.x, 8, 1)), dtype)), lambda w: True
    )
    workload = subgraph.workload
    assert workload.dtype == workload.out_dtype == ("float32" if dtype == "tf32" else dtype)
    assert workload.math == ("tf32" if dtype == "tf32" else "default")
    assert workload.acc_dtype == "float32"


def test_math_of_convolutions_alone():
    net = Net((1, 8, 6, 6))
    y = net.emit(relax.op.reshape(net.conv(net.x, 8, 1), (8, 36)))
    y = net.emit(relax.op.matmul(y, relax.const(np.ones((36, 16), "float32"))))
    found = find_subgraphs(normal_form(net.finish(y), "tf32_conv"))
    math = {s.workload.op: s.workload.math for s in found}
    assert math == {"fprop": "tf32", "matmul": "default"}


def test_groups_padding_dilation():
    net = Net((2, 8, 9, 8))
    y = net.conv(net.x, 16, 3, stride=2, padding=(1, 0, 2, 1), groups=8, dilation=2)
    (subgraph,) = find_subgraphs(normal_form(net.finish(y)))
    w = subgraph.workload
    assert w.is_depthwise and w.padding == (1, 0, 2, 1) and w.dilation == (2, 2)
    assert (w.n, w.h, w.w, w.c, w.k, w.r, w.s) == (2, 9, 8, 8, 16, 3, 3)


def dense(weight_is_constant, transposed, bias_is_constant=True):
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3, 6), "float32"))
    shape = (5, 6) if transposed else (6, 5)
    net = Net((1, 1, 1, 1))
    w = relax.Var("w", relax.TensorType(shape, "float32"))
    w = net.const(*shape) if weight_is_constant else w
    b = net.const(5) if bias_is_constant else relax.Var("b", relax.TensorType((5,), "float32"))
    net.finish(net.x)
    params = [x, *[p for p in (w, b) if isinstance(p, relax.Var)]]
    with bb.function("main", params):
        with bb.dataflow():
            right = bb.emit(op.permute_dims(w)) if transposed else w
            y = bb.emit(op.add(bb.emit(op.matmul(x, right)), b))
            y = bb.emit_output(bb.emit(op.nn.relu(y)))
        bb.emit_func_output(y)
    return bb.get()


@pytest.mark.parametrize("weight_is_constant", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
def test_dense(weight_is_constant, transposed):
    mod = dense(weight_is_constant, transposed)
    (subgraph,) = longest(find_subgraphs(normal_form(mod)))
    w = subgraph.workload
    assert (w.op, w.n, w.c, w.k, w.epilogue.name) == ("matmul", 3, 6, 5, "bias_relu")
    rewritten = check_rewrite(mod)
    left = count_ops(rewritten).get("relax.permute_dims", 0)
    assert left == (0 if weight_is_constant or transposed else 1)


def test_variable_bias():
    mod = dense(True, True, bias_is_constant=False)
    assert fused(normal_form(mod)) == ["bias_relu"]
    check_rewrite(mod)


# -- choosing ----------------------------------------------------------------------------------


def test_select_takes_the_longest_that_is_supported():
    net = Net((1, 4, 6, 6))
    mod = normal_form(net.finish(net.relu(net.conv(net.x, 8, 3, bias=True))))
    subgraphs = find_subgraphs(mod)
    for supported, want in (
        (lambda w: True, ["bias_relu"]),
        (lambda w: w.epilogue.activation == "none", ["bias"]),
        (lambda w: not w.epilogue.name, [""]),
        (lambda w: False, []),
    ):
        assert [r.workload.epilogue.name for r in longest(subgraphs, supported)] == want


def check_subgraphs(mod):
    """Properties that hold of any graph; returns the greedy cover."""
    bindings = [b for block in mod["main"].body.blocks for b in block.bindings]
    position = {b.var.name: i for i, b in enumerate(bindings)}
    assert len(position) == len(bindings)
    kinds = {b.var.name: op_name(b.value) for b in bindings}
    subgraphs = find_subgraphs(mod)
    assert len({r.id for r in subgraphs}) == len(subgraphs)
    for subgraph in subgraphs:
        assert list(subgraph.ops) == sorted(subgraph.ops, key=position.__getitem__)
        joint = subgraph.split or subgraph.workload.is_back_to_back
        assert subgraph.is_alternative == bool(joint)
        assert joint or subgraph.root == first_root(subgraph, kinds)
        assert set(subgraph.outputs) <= set(subgraph.ops)
        shapes = subgraph.workload.operand_shapes()
        results = 1 if subgraph.split else len(subgraph.outputs)
        assert len(subgraph.inputs) + results == len(shapes)
        first = position[subgraph.outputs[0]]
        for operand in subgraph.inputs:
            for var in variables(operand):
                assert var.name not in subgraph.ops
                assert position.get(var.name, -1) < first
    single = [r for r in subgraphs if not r.is_alternative]
    for root in {r.root: 0 for r in single}:
        alternatives = [r for r in subgraphs if r.root == root]
        sizes = [len(r.ops) for r in alternatives]
        assert sizes == sorted(sizes, reverse=True) and sizes[-1] == 1
    chosen = longest(subgraphs, lambda w: True)
    covered = [name for r in chosen for name in r.ops]
    assert len(covered) == len(set(covered))
    assert {r.root for r in chosen} == {r.root for r in single}
    return chosen


def first_root(subgraph, kinds):
    """The first operation, or the convolution of a stem, behind what its image goes through."""
    if subgraph.workload.stem is None:
        return subgraph.ops[0]
    (root,) = (name for name in subgraph.ops if kinds[name] == "relax.nn.conv2d")
    return root


def variables(expr):
    if isinstance(expr, relax.Var):
        return [expr]
    return [v for arg in getattr(expr, "args", []) for v in variables(arg)]


@given(networks(), st.randoms(use_true_random=False))
@settings(max_examples=10)
def test_any_disjoint_choice_computes_the_same(mod, random):
    """Not only the greedy cover: any alternatives of any roots that do not overlap."""
    normal = normal_form(mod)
    check_subgraphs(normal)
    chosen, taken = [], set()
    subgraphs = find_subgraphs(normal)
    random.shuffle(subgraphs)
    for subgraph in subgraphs:
        if taken.isdisjoint(subgraph.ops):
            taken.update(subgraph.ops)
            chosen.append(subgraph)
    inputs = random_inputs(mod)
    _, got = run_rewritten(normal, chosen, inputs)
    for a, b in zip(got, run_llvm(mod, *inputs), strict=True):
        assert relative_error(a, b) < 1e-5


def test_preactivation_resnet50():
    normal = normalize(preact_resnet(image=32, width=8), dtype="float16")
    chosen = check_subgraphs(normal)
    assert len(chosen) == 54
    names = [r.workload.epilogue.name for r in chosen]
    # Every sum with the batch norm behind it; where a stage ends that alone reads the sum.
    assert names.count("residual_affinerelu") == 12
    assert names.count("residual_onlyaffinerelu") == 4
    assert names.count("bias_relu") == 33 and names.count("") == 4 and names.count("bias") == 1
    rewritten = rewrite(normal, {r.id: f"f{i}" for i, r in enumerate(chosen)})
    ops = count_ops(rewritten)
    assert ops["relax.call_dps_packed"] == 54 and "relax.nn.conv2d" not in ops
    assert ops["relax.multiply"] == 2  # on the input and behind the pool


# -- rewriting ---------------------------------------------------------------------------------


def test_float16_subgraphs_compute_the_same():
    net = Net((1, 8, 6, 6))
    s = net.add(net.conv(net.x, 8, 3), net.x)
    mod = net.finish(net.add(net.conv(net.relu(net.bn(s)), 8, 3, bias=True), s))
    check_rewrite(mod, tolerance=2e-2, dtype="float16")


def test_unknown_and_overlapping_subgraphs_are_refused():
    net = Net((1, 4, 6, 6))
    mod = normal_form(net.finish(net.relu(net.conv(net.x, 8, 3))))
    with pytest.raises(errors.InvalidOption, match="nowhere#0"):
        rewrite(mod, {"nowhere#0": "f"})
    a, b = list(find_subgraphs(mod))
    with pytest.raises(errors.InvalidOption, match="both cover"):
        rewrite(mod, {a.id: "f", b.id: "g"})


def test_no_subgraph_leaves_the_graph():
    net = Net((1, 4, 6, 6))
    mod = normal_form(net.finish(net.relu(net.conv(net.x, 8, 3))))
    assert count_ops(rewrite(mod, {})) == count_ops(mod)
