"""PyTorch modules on the GPU: dtypes, streams, threads, batches, captured calls, training."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import convoy
from convoy import errors

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch", reason="PyTorch is not installed")
if not torch.cuda.is_available():
    pytest.skip("PyTorch has no CUDA", allow_module_level=True)
nn = torch.nn
#: PyTorch rounds what convolutions of float32 read to tf32.
LIMITS = {torch.float32: 3e-3, torch.float16: 6e-3, torch.bfloat16: 5e-2}


def network() -> Any:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(64, 40),
    )  # fmt: skip
    net[1].running_var.uniform_(0.5, 2)
    return net.eval().cuda()


def images(rows: int, dtype: Any = torch.float16) -> Any:
    return torch.randn(rows, 3, 32, 32, device="cuda", dtype=dtype)


def error(got: Any, want: Any) -> float:
    return float((got.double() - want.double()).abs().max() / want.double().abs().max())


@pytest.fixture(scope="module")
def batches() -> tuple[Any, Any]:
    net = network().half()
    return net, convoy.compile(net, images(1), batch=[1, 4, 8])


@pytest.mark.parametrize("dtype", list(LIMITS), ids=str)
@pytest.mark.parametrize("cuda_graph", [True, False])
@torch.no_grad()
def test_dtypes(dtype: Any, cuda_graph: bool) -> None:
    net = network().to(dtype)
    compiled = convoy.compile(net, images(4, dtype), cuda_graph=cuda_graph)
    for _ in range(4):  # a call, a capture, replays
        x = images(4, dtype)
        got = compiled(x)
        assert got.dtype == dtype and error(got, net.double()(x.double())) < LIMITS[dtype]
        net.to(dtype)


@torch.no_grad()
def test_float32_is_exact_where_that_is_asked_for() -> None:
    net, x = network(), images(4, torch.float32)
    want = network().double()(x.double())
    assert error(convoy.compile(net, x, precision="float32")(x), want) < 1e-5
    torch.backends.cudnn.allow_tf32 = False
    try:
        assert error(convoy.compile(net, x)(x), want) < 1e-5
    finally:
        torch.backends.cudnn.allow_tf32 = True


@torch.no_grad()
def test_batches_share_weights_and_are_padded(batches: Any) -> None:
    net, compiled = batches
    for rows in [8, 1, 3, 4, 7, 3, 1, 8] * 2:
        x = images(rows)
        got = compiled(x)
        assert got.shape == (rows, 40) and error(got, net(x)) < LIMITS[torch.float16]
    with pytest.raises(errors.InvalidOption, match="batch of 9"):
        compiled(images(9))


@torch.no_grad()
def test_results_stay_as_they_are(batches: Any) -> None:
    net, compiled = batches
    inputs = [images(4) for _ in range(6)]
    results = [compiled(x) for x in inputs]
    for x, got in zip(inputs, results, strict=True):
        assert error(got, net(x)) < LIMITS[torch.float16]


@torch.no_grad()
def test_streams_and_threads(batches: Any) -> None:
    """Calls on several streams use the same buffers, one behind the other."""
    net, compiled = batches
    inputs = [images(4) for _ in range(4)]
    want = [net(x) for x in inputs]
    torch.cuda.synchronize()
    worst = [1.0] * len(inputs)

    def work(i: int) -> None:
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
            got = [compiled(inputs[i]) for _ in range(50)]
            worst[i] = max(error(y, want[i]) for y in got)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(worst) < LIMITS[torch.float16]


@torch.no_grad()
def test_within_a_graph_of_torch(batches: Any) -> None:
    net, compiled = batches
    x = images(4)
    compiled(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = compiled(x)
    x.copy_(images(4))
    graph.replay()
    assert error(y, net(x)) < LIMITS[torch.float16]


@torch.no_grad()
def test_parameters_are_updated() -> None:
    net = network().half()
    compiled = convoy.compile(net, images(2))
    compiled(images(2))
    for parameter in net.parameters():
        parameter.mul_(1.5)
    compiled.update_parameters()
    x = images(2)
    assert error(compiled(x), net(x)) < LIMITS[torch.float16]


def test_backend_of_torch_compile() -> None:
    from convoy.pytorch import dynamo

    net = network().half()
    fast = torch.compile(net, backend="convoy")
    with torch.no_grad():
        for rows in (2, 3):
            x = images(rows)
            assert error(fast(x), net(x)) < LIMITS[torch.float16]
    assert dynamo.subgraphs()[-1].reason == ""


def test_training_step() -> None:
    import copy

    from convoy.pytorch.training import compile_training_step

    net = network().train()
    reference = copy.deepcopy(net)
    optimizers = [torch.optim.SGD(n.parameters(), 0.1, momentum=0.9) for n in (net, reference)]
    loss = nn.functional.cross_entropy
    labels = torch.randint(0, 40, (8,), device="cuda")
    x = images(8, torch.float32)
    step = compile_training_step(net, loss, optimizers[0], x, labels)
    for _ in range(5):
        want = loss(reference(x), labels)
        optimizers[1].zero_grad()
        want.backward()
        optimizers[1].step()
        assert abs(float(step(x, labels)) - float(want.detach())) < 1e-3
    step.update_module()
    assert error(net[0].weight, reference[0].weight) < 1e-2
