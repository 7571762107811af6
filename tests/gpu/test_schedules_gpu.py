"""TVM's own kernels on a GPU are right at odd sizes."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from convoy.lower.executable import lower
from convoy.normalize.normal_form import normalize

from ..graph.kernels import Case, excitation, small_cases
from ..graph.nets import Net, preact_resnet, random_inputs, relative_error, run_llvm, to_numpy

pytestmark = pytest.mark.gpu

SMALL = {case.name: case for case in small_cases()}


@pytest.fixture(scope="module")
def target() -> tvm.target.Target:
    return tvm.target.Target("nvidia/nvidia-h100", host="llvm")


def machine(executable: relax.VMExecutable) -> relax.VirtualMachine:
    return relax.VirtualMachine(executable, tvm.cuda(0))


def on_gpu(array: np.ndarray) -> tvm.runtime.Tensor:
    return tvm.runtime.tensor(array, tvm.cuda(0))


@pytest.mark.parametrize("name", SMALL)
def test_kernel_is_right(name, target):
    case = SMALL[name]
    vm = machine(case.executable(target))
    for seed in range(3):
        inputs = case.inputs(seed)
        got = vm["main"](*[on_gpu(i) for i in inputs]).numpy()
        want = case.reference(inputs)
        assert relative_error(got.astype("float32"), want) < (
            2e-3 if got.dtype == np.float16 else 1e-5
        )


@pytest.mark.parametrize(
    "shape",
    [
        (1, 112, 112, 32), (1, 56, 56, 96), (2, 28, 28, 144), (1, 14, 14, 480), (8, 7, 7, 1152),
        (3, 5, 7, 12), (1, 33, 31, 40),
    ],
    ids=str,
)  # fmt: skip
def test_global_means(shape: tuple[int, ...], target) -> None:
    """Blocks of few channels, with results of other blocks beside theirs."""
    case = Case("mean", [shape], ["float16"], lambda e, x: e(op.mean(x, [1, 2])), "")
    (x,) = case.inputs()
    found = machine(case.executable(target))["main"](on_gpu(x)).numpy()
    assert relative_error(found, x.astype("float64").mean((1, 2))) < 1e-3


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(
    ("images", "size", "channels", "length"),
    [
        (1, 112, 32, 8), (1, 28, 240, 16), (4, 14, 672, 32), (1, 7, 1152, 48), (1, 7, 960, 240),
        (2, 7, 440, 112), (32, 56, 144, 8), (3, 5, 20, 36),
    ],
)  # fmt: skip
def test_gates_of_channels(
    images: int, size: int, channels: int, length: int, dtype: str, target
) -> None:
    """The end of squeeze-and-excitation blocks, in one kernel."""
    shapes = [(images, size, size, channels), (images, 1, 1, length), (channels, 1, 1, length)]
    build = excitation(op.sigmoid)
    case = Case("gate", [*shapes, (channels,)], [dtype] * 4, build, "ChannelGate")
    inputs = case.inputs()
    found = machine(case.executable(target))["main"](*map(on_gpu, inputs)).numpy()
    x, s, w, b = (a.astype("float64") for a in inputs)
    gates = 1 / (1 + np.exp(-(s[:, 0, 0] @ w[:, 0, 0].T + b)))
    error = relative_error(found.astype("float64"), x * gates[:, None, None])
    assert error < (2e-3 if dtype == "float16" else 1e-5)


@pytest.mark.parametrize("kind", ["layer_norm", "rms_norm", "softmax", "log_softmax"])
@pytest.mark.parametrize(
    "shape", [(1, 197, 768), (8, 56, 56, 96), (3, 1000), (2, 5, 4097)], ids=str
)
def test_row_norms(kind: str, shape: tuple[int, ...], target) -> None:
    """Against llvm, with what follows the norm."""
    c = shape[-1]
    vectors = {"layer_norm": 2, "rms_norm": 1}.get(kind, 0)
    where = ([-1], 1e-5) if vectors else (-1,)

    def network(e, x, *v):
        y = getattr(op.nn, kind)(e(op.astype(x, "float32")), *v, *where)
        return e(op.astype(e(y), "float16"))

    case = Case(kind, [shape, *[(c,)] * vectors], ["float16", *["float32"] * vectors], network, "")
    inputs = case.inputs()
    found = machine(case.executable(target))["main"](*map(on_gpu, inputs)).numpy()
    assert relative_error(found, run_llvm(case.module(), *inputs)[0]) < 2e-3


@pytest.mark.parametrize("cuda_graph", [False, True])
def test_network_without_backends(cuda_graph, target):
    """A whole network on TVM's kernels alone: replays see new inputs, outputs are not shared."""
    mod = preact_resnet(batch=2, image=64, width=16, blocks=(1, 1))
    normal = normalize(mod, dtype="float16")
    vm = machine(lower(normal, target, cuda_graph))
    kept = []
    for seed in range(4):
        inputs = random_inputs(mod, seed)
        got = vm["main"](*[on_gpu(i) for i in inputs])
        kept.append((got, run_llvm(mod, *inputs)[0]))
    for got, want in kept:  # read only now: a later call must not have overwritten it
        assert relative_error(got.numpy(), want) < 2e-2


def test_swapped_weights_are_seen_under_a_cuda_graph(target):
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 16, 8, 8), "float32"))
    w = relax.Var("w", relax.TensorType((16, 16, 3, 3), "float32"))
    with bb.function("main", [x, w]):
        with bb.dataflow():
            y = bb.emit(op.nn.conv2d(x, w, padding=1))
            y = bb.emit_output(bb.emit(op.nn.conv2d(bb.emit(op.nn.relu(y)), w, padding=1)))
        bb.emit_func_output(y)
    mod = bb.get()
    vm = machine(lower(normalize(mod, dtype="float32"), target))
    for seed in range(4):
        inputs = random_inputs(mod, seed)
        (got,) = to_numpy(vm["main"](*[on_gpu(i) for i in inputs]))
        assert relative_error(got, run_llvm(mod, *inputs)[0]) < 1e-4


def test_several_results_under_a_cuda_graph(target):
    net = Net((2, 8, 9, 8))
    y = net.relu(net.bn(net.conv(net.x, 16, 3)))
    mod = net.finish(net.x, y, net.conv(y, 8, 1), net.head(y))
    vm = machine(lower(normalize(mod, dtype="float16"), target))
    for seed in range(3):
        inputs = random_inputs(mod, seed)
        results = to_numpy(vm["main"](*[on_gpu(i) for i in inputs]))
        for got, want in zip(results, run_llvm(mod, *inputs), strict=True):
            assert relative_error(got, want) < 2e-2
