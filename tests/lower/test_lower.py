"""Lowering for the GPU, as far as it can be checked without one: kernels, capture, storage."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tests.helpers.kernel_calls import kernel_calls
from tvm import relax
from tvm.relax import op

from convoy.lower.accumulate import AccumulateInFloat32
from convoy.lower.cuda_graph import StageForCapture
from convoy.lower.executable import lower, lower_modules
from convoy.lower.passes import fuse_passes
from convoy.normalize.normal_form import normalize
from convoy.partition.rewrite import rewrite
from convoy.partition.subgraphs import find_subgraphs

from ..graph.nets import Net, preact_resnet, resnet_v1
from ..helpers.longest import longest

TARGET = tvm.target.Target("nvidia/nvidia-h100", host="llvm")


def staged(mod):
    with TARGET:
        mod = AccumulateInFloat32()(mod)
        return StageForCapture()(tvm.transform.Sequential(fuse_passes())(mod))


def offloaded(mod, dtype="float16", supported=lambda w: True):
    normal = normalize(mod, dtype=dtype)
    chosen = longest(find_subgraphs(normal), supported)
    return rewrite(normal, {r.id: f"convoy_{i}" for i, r in enumerate(chosen)})


def called(func):
    """Names of the kernels and external functions that a lowered function calls, in order, and
    ``<graph>`` for the replay."""
    names = []
    for block in func.body.blocks:
        for binding in block.bindings:
            value = binding.value
            if not isinstance(value, relax.Call):
                continue
            if isinstance(value.op, tvm.ir.GlobalVar):
                names.append(value.op.name_hint)
            elif isinstance(value.op, relax.ExternFunc):
                names.append(str(value.op.global_symbol))
            elif value.args and "cuda_graph.run_or_capture" in str(value.args[0]):
                names.append("<graph>")
    return [n for n in names if not n.startswith("vm.builtin")]


def functions(mod):
    return {g.name_hint: f for g, f in mod.functions.items() if isinstance(f, relax.Function)}


@pytest.mark.parametrize("whole_stem", [False, True])
def test_resnet50_kernels(whole_stem):
    """54 external calls and three kernels: entry, pool, and the classifier's softmax. What the last
    mean is of is one pixel. A whole stem leaves the entry, where a batch norm is, and of the pool
    the batch norm behind it."""
    mod = preact_resnet(image=32, width=8)
    mod = offloaded(mod, supported=lambda w: whole_stem or w.op != "stem")
    names = kernel_calls(staged(mod))
    kernels = [n for n in names if not n.startswith("convoy_")]
    assert len(names) - len(kernels) == 54
    assert len(kernels) == 3, kernels
    assert kernels[0].startswith("fused_")
    assert all(name in kernels[0] for name in ("multiply", "transpose", "pad"))
    assert ("max_pool2d" in kernels[1]) != whole_stem
    assert "relu" in kernels[1]  # with the batch norm behind it


def test_resnet50_is_captured_as_one_graph():
    mod = lower_modules({"main": offloaded(preact_resnet(image=32, width=8))}, TARGET)
    funcs = functions(mod)
    captured = called(funcs["main_cuda_graph_capture"])
    assert len([n for n in captured if n.startswith("convoy_")]) == 54
    outside = called(funcs["main"])
    assert outside.count("<graph>") == 1
    assert len(outside) == 3  # entry kernel, graph, last kernel


def test_no_capture_when_not_asked():
    mod = lower_modules(
        {"main": offloaded(resnet_v1(image=32, width=8, blocks=(1,)))}, TARGET, False
    )
    assert list(functions(mod)) == ["main"]


def test_input_that_an_external_function_reads_is_copied():
    net = Net((1, 8, 6, 6), "NHWC", dtype="float16")
    names = kernel_calls(staged(offloaded(net.finish(net.conv(net.x, 8, 3)))))
    assert [n.startswith("convoy_copy") for n in names] == [True, False, True]


def test_second_input_read_late_does_not_cut_the_graph():
    bb = relax.BlockBuilder()
    net = Net((1, 1, 1, 1))
    x, z = (relax.Var(n, relax.TensorType((1, 8, 8, 8), "float32")) for n in "xz")
    w = net.const(8, 8, 3, 3)
    net.finish(net.x)
    with bb.function("main", [x, z]):
        with bb.dataflow():
            y = bb.emit(op.nn.conv2d(x, w, padding=1))
            y = bb.emit(op.tanh(y))
            y = bb.emit(op.nn.conv2d(y, w, padding=1))
            y = bb.emit(op.multiply(y, bb.emit(op.exp(z))))
            y = bb.emit_output(bb.emit(op.nn.conv2d(y, w, padding=1)))
        bb.emit_func_output(y)
    mod = lower_modules({"main": offloaded(bb.get())}, TARGET)
    funcs = functions(mod)
    assert len([f for f in funcs if "capture" in f]) == 1
    assert len([n for n in called(funcs["main_cuda_graph_capture"]) if "convoy_" in n]) == 3


def test_result_that_is_read_again_is_copied_at_the_end():
    net = Net((1, 8, 6, 6), "NHWC")
    y = net.emit(op.tanh(net.conv(net.x, 8, 3)))
    mod = offloaded(net.finish(y, net.emit(op.tanh(net.conv(y, 8, 3)))), "float32")
    assert any("convoy_copy" in n for n in kernel_calls(staged(mod))[-2:])
    assert len([f for f in functions(lower_modules({"main": mod}, TARGET)) if "capture" in f]) == 1


def test_input_given_back_is_copied():
    net = Net((1, 4, 6, 6))
    names = kernel_calls(staged(normalize(net.finish(net.x, net.relu(net.x)))))
    assert len([n for n in names if "convoy_copy" in n]) == 1


def test_reshaped_input_is_not_captured():
    """A reshape becomes a view, so that a kernel behind it would read the caller's memory."""
    net = Net((1, 4, 6, 6))
    y = net.emit(op.reshape(net.x, (1, 144)))
    y = net.emit(op.matmul(y, net.const(144, 16)))
    funcs = functions(lower_modules({"main": offloaded(net.finish(net.emit(op.tanh(y))))}, TARGET))
    for block in funcs["main"].body.blocks:
        for binding in block.bindings:
            if "run_or_capture" in str(binding.value):
                reads = str(binding.value)
                assert "(x," not in reads and " x," not in reads


def test_unbound_weights_are_copied_before_the_graph():
    """Swapping a weight between calls must be seen although the graph replays old pointers."""
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 8, 8, 8), "float32"))
    w = relax.Var("w", relax.TensorType((8, 8, 3, 3), "float32"))
    with bb.function("main", [x, w]):
        with bb.dataflow():
            y = bb.emit(op.nn.conv2d(bb.emit(op.tanh(x)), w, padding=1))
            y = bb.emit_output(bb.emit(op.nn.conv2d(y, w, padding=1)))
        bb.emit_func_output(y)
    funcs = functions(lower_modules({"main": offloaded(bb.get())}, TARGET))
    capture = funcs["main_cuda_graph_capture"]
    assert not {p.name for p in capture.params} & {"x", "w"}
    outside = called(funcs["main"])
    assert len(outside[: outside.index("<graph>")]) == 2


def test_accumulation_in_float32():
    """600 products of 1: float16 would stop growing at 2048 with steps of 4."""
    net = Net((1, 4096, 1, 1), dtype="float16")
    w = relax.const(np.ones((1, 4096, 1, 1), "float16"))
    mod = net.finish(net.emit(op.nn.conv2d(net.x, w)), net.emit(op.mean(net.x, [1, 2, 3])))
    normal = normalize(mod, dtype="float16")
    vm = relax.VirtualMachine(lower(normal, "llvm"), tvm.cpu())
    x = np.ones((1, 4096, 1, 1), "float16")
    conv, mean = vm["main"](tvm.runtime.tensor(x))
    assert conv.numpy().item() == 4096 and mean.numpy().item() == 1


#: Of ones: sums of 4096 products, and averages over as many elements.
LONG = {
    "conv1d": ([(1, 4096, 1), (1, 4096, 1)], op.nn.conv1d, 4096),
    "conv3d": ([(1, 512, 2, 2, 2), (1, 512, 2, 2, 2)], op.nn.conv3d, 4096),
    "conv1d_transpose": ([(1, 4096, 1), (4096, 1, 1)], op.nn.conv1d_transpose, 4096),
    "conv3d_transpose": ([(1, 4096, 1, 1, 1), (4096, 1, 1, 1, 1)], op.nn.conv3d_transpose, 4096),
    "einsum": (
        [(1, 4096), (4096, 1)], lambda a, b: op.einsum((a, b), "ij,jk->ik"), 4096,
    ),
    "avg_pool1d": ([(1, 1, 4096)], lambda x: op.nn.avg_pool1d(x, 4096), 1),
    "avg_pool3d": ([(1, 1, 16, 16, 16)], lambda x: op.nn.avg_pool3d(x, (16, 16, 16)), 1),
    "adaptive_avg_pool1d": ([(1, 1, 4096)], lambda x: op.nn.adaptive_avg_pool1d(x, 1), 1),
    "adaptive_avg_pool3d": (
        [(1, 1, 16, 16, 16)], lambda x: op.nn.adaptive_avg_pool3d(x, (1, 1, 1)), 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LONG)
def test_other_long_sums_in_float32(name):
    """A sum of ones in float16 stops growing at 2048."""
    shapes, build, want = LONG[name]
    bb = relax.BlockBuilder()
    params = [relax.Var(f"p{i}", relax.TensorType(s, "float16")) for i, s in enumerate(shapes)]
    with bb.function("main", params):
        with bb.dataflow():
            y = bb.emit_output(build(*params))
        bb.emit_func_output(y)
    vm = relax.VirtualMachine(lower(bb.get(), "llvm"), tvm.cpu())
    y = vm["main"](*[tvm.runtime.tensor(np.ones(s, "float16")) for s in shapes]).numpy()
    assert y.dtype == np.float16 and y.ravel().tolist() == [want]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_whole_network_compiles_without_any_backend(layout):
    """Every convolution falls to TVM: no stock rule may see one (they crash), no kernel is left
    without threads (that would fail code generation)."""
    net = Net((2, 3, 16, 16), layout)
    x = net.relu(net.bn(net.conv(net.x, 16, 7, 2, 3)))
    x = net.max_pool(x)
    x = net.conv(x, 16, 3, groups=16)
    x = net.conv(x, 32, 3, 2, groups=4, bias=True)
    x = net.concat(net.conv(x, 24, 1), net.conv(x, 8, 3, dilation=2, padding=2))
    x = net.relu(net.add(x, net.bn(net.conv(x, 32, (3), s=1, padding=(1, 0)))))
    normal = normalize(net.finish(net.head(x)), dtype="float16")
    executable = lower(normal, TARGET)
    assert executable is not None


def test_product_that_llvm_breaks_at_its_highest_level():
    """(4, 8) by (8, 10) with a bias: on some CPUs its vectoriser's code does not verify."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype("float32") for s in ((4, 8), (8, 10), (10,))]
    x, w, b = (
        relax.Var(n, relax.TensorType(a.shape, "float32"))
        for n, a in zip("xwb", arrays, strict=True)
    )
    bb = relax.BlockBuilder()
    with bb.function("main", [x, w, b]):
        with bb.dataflow():
            y = bb.emit_output(op.add(bb.emit(op.matmul(x, w)), b))
        bb.emit_func_output(y)
    vm = relax.VirtualMachine(lower(normalize(bb.get(), dtype="float32"), "llvm"), tvm.cpu())
    got = vm["main"](*[tvm.runtime.tensor(a) for a in arrays]).numpy()
    np.testing.assert_allclose(got, arrays[0] @ arrays[1] + arrays[2], 1e-5, 1e-5)


def test_pooling_that_llvm_breaks_at_two_levels():
    """2 by 2 windows over two channels: on some CPUs the code of level 2 does not verify either."""
    bb, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((1, 5, 6, 2), "float32"))
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit(op.nn.avg_pool2d(x, (2, 2), layout="NHWC")))
    vm = relax.VirtualMachine(lower(normalize(bb.get(), dtype="float32"), "llvm"), tvm.cpu())
    ones = np.ones((1, 5, 6, 2), "float32")
    np.testing.assert_allclose(vm["main"](tvm.runtime.tensor(ones)).numpy(), ones[:, 1:, 1:])


@pytest.mark.parametrize(
    ("target", "broken", "levels"),
    [
        ("llvm", 0, [2]),
        ("llvm", 1, [2, 1]),
        ({"kind": "llvm", "mcpu": "x86-64-v3"}, 0, [2]),
        ({"kind": "llvm", "opt-level": 0}, 0, [0]),
        ({"kind": "llvm", "opt-level": 1}, 0, [1]),
        ({"kind": "llvm", "opt-level": 3}, 2, [3, 2, 1]),
    ],
)
def test_level_of_llvm(target, broken, levels, monkeypatch):
    """That of the user, else 2; a lower one where LLVM's code does not verify."""
    asked, compile_ = [], tvm.compile

    def recorded(mod, target, **options):
        asked.append(target)
        if len(asked) <= broken:
            raise tvm.error.InternalError("LLVM module verification failed with errors")
        return compile_(mod, target, **options)

    monkeypatch.setattr(tvm, "compile", recorded)
    bb, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((5,), "float32"))
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit(op.add(x, x)))
    target = tvm.target.Target(target)
    vm = relax.VirtualMachine(lower(bb.get(), target), tvm.cpu())
    assert vm["main"](tvm.runtime.tensor(np.ones(5, "float32"))).numpy().tolist() == [2] * 5
    assert [int(one.attrs["opt-level"]) for one in asked] == levels
    assert {one.attrs.get("mcpu") for one in asked} == {target.attrs.get("mcpu")}
