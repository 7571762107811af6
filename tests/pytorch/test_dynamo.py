"""The backend of torch.compile: graph breaks, shapes, weights, and what runs eagerly."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn


class Breaking(nn.Module):
    """A graph break between a convolution and a matrix product."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 5)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.norm(self.conv(x)))
        y = y * 2 if y.sum() > 1e9 else y - 1
        return {"head": self.head(y.mean((2, 3))), "y": y}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


def compiled(module: Any, **options: Any) -> tuple[Any, Any]:
    """The module through torch.compile, and the subgraphs that it makes from here on."""
    from convoy.pytorch import dynamo

    last = max((s.number for s in dynamo.subgraphs()), default=0)
    return (
        torch.compile(module, backend="convoy", **options),
        lambda: [s for s in dynamo.subgraphs() if s.number > last],
    )


def worst(got: Any, want: Any) -> float:
    return max(float((got[k] - want[k]).abs().max()) for k in want)


def test_subgraphs_shapes_and_new_weights() -> None:
    torch.manual_seed(0)
    net = Breaking().eval()
    fast, made = compiled(net)
    with torch.no_grad():
        for batch in (2, 3, 5, 2):  # the second shape makes the batch size symbolic
            x = torch.randn(batch, 3, 6, 6)
            assert worst(fast(x), net(x)) < 1e-5
        assert [s.reason for s in made()] == [""] * len(made()) and len(made()) >= 2
        assert all(s.heavy for s in made())
        net.conv.weight.mul_(2)
        net.head.bias.add_(1)
        assert worst(fast(x), net(x)) < 1e-5


def test_gradients_run_eagerly(caplog: pytest.LogCaptureFixture) -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
    fast, made = compiled(net)
    with caplog.at_level(logging.WARNING, "convoy"):
        for _ in range(2):
            fast(torch.randn(1, 3, 5, 5)).sum().backward()
    assert net[0].weight.grad is not None
    assert ["gradients" in r.message for r in caplog.records] == [True]
    assert "no_grad" in str(made()[0])


def test_a_module_that_turns_gradients_off_is_compiled() -> None:
    net = nn.Linear(4, 4)
    fast, made = compiled(torch.no_grad()(net.forward))
    x = torch.randn(2, 4)
    torch.testing.assert_close(fast(x), net(x).detach())
    assert [s.reason for s in made()] == [""]


def test_a_module_that_turns_gradients_on_runs_eagerly() -> None:
    """As forces are computed: the gradient of an energy, in evaluation too."""
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh()).requires_grad_(False)

    def forces(x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(net(x).sum(), x)[0]

    fast, made = compiled(forces)
    x = torch.randn(2, 4)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), forces(x))
    assert "gradients are recorded" in next(s.reason for s in made() if s.heavy)


def test_a_failed_trace_within_a_transform_leaves_nothing_behind() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    jacobians = torch.func.vmap(torch.func.jacrev(net))
    fast, _ = compiled(jacobians)
    x = torch.randn(2, 4)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), jacobians(x))


def test_numbers_and_sizes_may_be_symbolic() -> None:
    """Dynamo hands over a symbolic number, such as an epsilon, in a tensor of float64."""
    net = Breaking().eval()
    fast, made = compiled(net, dynamic=True)
    with torch.no_grad():
        for batch in (2, 3):
            x = torch.randn(batch, 3, 6, 6)
            assert worst(fast(x), net(x)) < 1e-5
        net.norm.eps = 0.5
        assert worst(fast(x), net(x)) < 1e-5
    assert [s.reason for s in made()] == [""] * len(made())


def test_weights_of_inference_mode_run_eagerly() -> None:
    with torch.inference_mode():
        net = nn.Linear(4, 4)
        fast, made = compiled(net)
        x = torch.randn(2, 4)
        assert fast(x).equal(net(x))
    assert "made under torch.inference_mode()" in made()[0].reason


def test_autocast_and_a_batch_norm_of_float32() -> None:
    net = Breaking().eval()
    fast, made = compiled(net)
    x = torch.randn(2, 3, 6, 6)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert worst(fast(x), net(x)) < 0.05
        assert worst(fast(x.bfloat16()), net(x.bfloat16())) < 0.05
    with torch.no_grad():
        assert worst(fast(x), net(x)) < 1e-5
    assert [s.reason for s in made()] == [""] * len(made())


def test_weights_with_other_memory() -> None:
    """``weight.data = ...`` leaves the version of a weight as it is."""
    net = Breaking().eval()
    fast, made = compiled(net)
    x = torch.randn(2, 3, 6, 6)
    with torch.no_grad():
        fast(x)
        net.conv.weight.data = torch.randn_like(net.conv.weight)
        assert worst(fast(x), net(x)) < 1e-5
    assert [s.reason for s in made()] == [""] * len(made())


def test_statistics_that_move_between_calls() -> None:
    """A batch norm in training leaves the version of its statistics as it is."""
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    fast, _ = compiled(net)
    x = torch.randn(2, 3, 6, 6)
    with torch.no_grad():
        fast(x)
        net.train()(x * 5 + 1)
        net.eval()
        torch.testing.assert_close(fast(x), net(x), rtol=1e-4, atol=1e-5)


def test_autocast_within_a_subgraph() -> None:
    def function(x: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
        return y.float() + 1

    fast, made = compiled(function)
    with torch.no_grad():
        x = torch.randn(8, 8)
        torch.testing.assert_close(fast(x), function(x), rtol=0.02, atol=0.05)
    assert [s.reason for s in made()] == [""]


@pytest.mark.parametrize("masks", ["", "src_mask", "src_key_padding_mask", "both"])
def test_encoder_layers(masks: str) -> None:
    """Without gradients, PyTorch calls an operator for the whole layer."""
    given = {"src_mask": torch.ones(5, 5).triu(1).bool()}
    given["src_key_padding_mask"] = torch.arange(5) >= torch.tensor([[4], [3]])
    given = {name: mask for name, mask in given.items() if masks in (name, "both")}
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=bool(masks)).eval()
    fast, made = compiled(layer)
    with torch.no_grad():
        x = torch.randn(2, 5, 8)
        torch.testing.assert_close(fast(x, **given), layer(x, **given), rtol=1e-5, atol=1e-5)
    assert [s.reason for s in made()] == [""]


class Routed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows, self.first, self.gate = nn.Embedding(9, 64), nn.Linear(64, 64), nn.Linear(64, 3)

    def forward(self, ids: Any) -> Any:
        y = self.first(self.rows(ids))
        return y, self.gate(y.to(self.gate.weight.dtype))


@pytest.mark.parametrize(
    ("kind", "gate", "expected"),
    [("bfloat16", "bfloat16", "bfloat16"), ("bfloat16", "float32", "float32"),
     ("float64", "float64", "")],
)  # fmt: skip
def test_the_precision_is_that_of_the_parameters(kind: str, gate: str, expected: str) -> None:
    net = Routed().eval().to(getattr(torch, kind))
    net.gate.to(getattr(torch, gate))
    fast, made = compiled(net)
    ids = torch.randint(0, 9, (2, 5))
    with torch.no_grad():
        for got, want in zip(fast(ids), net(ids), strict=True):
            torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
    (subgraph,) = made()
    found = [one._module.precision for one in subgraph._compiled.values() if one is not None]
    assert found == ([expected] if expected else [])
    assert bool(subgraph.reason) != bool(expected)


class Views(nn.Module):
    """Gives views of its input, and of what it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 6)

    def forward(self, x: Any) -> Any:
        y = self.head(x)
        return x.view(-1), x[1:, 2:4].t(), y.t()[1], y, y.view(-1), (y + 1).t(), x[:1].expand(3, 6)


def test_views_are_views() -> None:
    net = Views().eval()
    fast, made = compiled(net)
    inputs = [torch.arange(30.0).view(5, 6)[1:] for _ in range(2)]
    with torch.no_grad():
        results = [function(x) for function, x in zip((fast, net), inputs, strict=True)]
        for got, want in zip(*results, strict=True):
            torch.testing.assert_close(got, want)
            assert got.stride() == want.stride()
        for one in results:
            for i in (1, 2, 4):
                one[i].fill_(i)
        for got, want in zip(*results, strict=True):
            torch.testing.assert_close(got, want)
    torch.testing.assert_close(*inputs)
    assert [s.reason for s in made()] == [""]


def test_strides_of_results_are_pytorchs() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(6, 6)

        def forward(self, x: Any) -> Any:
            y = self.head(x).permute(0, 2, 1)
            torch._dynamo.graph_break()
            return y.permute(0, 2, 1).view(-1)

    net, x = Net().eval(), torch.randn(2, 3, 6)
    fast, _ = compiled(net)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), net(x))


def test_no_trace_while_dynamo_compiles_in_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both read and change settings of the process."""
    import convoy
    from convoy.pytorch import export

    class Lock:
        depth = 0

        def __enter__(self) -> None:
            self.depth += 1

        def __exit__(self, *_: Any) -> None:
            self.depth -= 1

    lock, real, depths = Lock(), torch.export.export, []

    def traced(*args: Any, **kwargs: Any) -> Any:
        depths.append(lock.depth)
        return real(*args, **kwargs)

    assert export.compile_lock is torch._dynamo.convert_frame.compile_lock
    monkeypatch.setattr(export, "compile_lock", lock)
    monkeypatch.setattr(torch.export, "export", traced)
    convoy.compile(torch.relu, torch.ones(2), cache=False)
    assert depths == [1] and not lock.depth


def test_a_changed_buffer_is_named() -> None:
    fast, made = compiled(Breaking().train())
    with torch.no_grad():
        fast(torch.randn(2, 3, 6, 6))
    assert "self_modules_norm_buffers" in made()[0].reason


def test_unsupported_operators_run_eagerly(caplog: pytest.LogCaptureFixture) -> None:
    class Decomposed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return torch.linalg.qr(self.head(x))[0]

    net = Decomposed().eval()
    fast, made = compiled(net)
    x = torch.randn(4, 4)
    with torch.no_grad(), caplog.at_level(logging.WARNING, "convoy"):
        for _ in range(2):
            assert torch.allclose(fast(x), net(x), atol=1e-5)
    assert "linalg_qr" in made()[0].reason
    assert len([r for r in caplog.records if "linalg_qr" in r.message]) == 1


def test_light_subgraphs_run_eagerly() -> None:
    fast, made = compiled(lambda x: x * 2 + 1)
    with torch.no_grad():
        assert fast(torch.ones(3)).eq(3).all()
    assert made()[0].reason == "no convolution or matrix product"


def test_checkpoints_are_compiled() -> None:
    from torch.utils.checkpoint import checkpoint

    net, x = nn.Linear(4, 4), torch.randn(2, 4)
    fast, made = compiled(lambda x: checkpoint(net, x, use_reentrant=False) + 1)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), net(x) + 1)
    assert [s.reason for s in made()] == [""]
    fast(x.requires_grad_()).sum().backward()
    torch.testing.assert_close(x.grad, net.weight.detach().sum(0).expand(2, 4))


def test_forward_mode_differentiation_runs_eagerly() -> None:
    from torch.autograd import forward_ad

    net, x = nn.Linear(4, 4), torch.randn(2, 4)
    fast, made = compiled(net)
    with torch.no_grad(), forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(fast(forward_ad.make_dual(x, x))).tangent
        torch.testing.assert_close(tangent, x @ net.weight.T)
    assert "forward-mode" in made()[0].reason


def test_a_subgraph_that_runs_eagerly_draws_the_same_numbers() -> None:
    net, x = nn.Linear(4, 4), torch.randn(2, 4)

    def function(x: Any) -> Any:
        return net(x) + torch.randn(4)

    def seeded(called: Any) -> Any:
        torch.manual_seed(0)
        return called(x)

    fast, _ = compiled(function)
    with torch.no_grad():
        torch.testing.assert_close(seeded(fast), seeded(function))


def test_options_are_those_of_build() -> None:
    from convoy.errors import InvalidOption

    x = torch.randn(1, 4)
    for options, message in (
        ({"nonsense": 1}, r"nonsense.*precision"),
        ({"precision": "fp16"}, r"'fp16'.*float16"),
    ):
        fast, _ = compiled(nn.Linear(4, 4), options=options)
        with torch.no_grad(), pytest.raises(InvalidOption, match=message):
            fast(x)


def test_the_entry_point_is_the_backend() -> None:
    from convoy.pytorch import dynamo

    root = Path(__file__).resolve().parents[2]
    text = (root / "pyproject.toml").read_text()
    found = re.search(r'entry-points.torch_dynamo_backends]\nconvoy = "([\w.]+):(\w+)"', text)
    assert found is not None
    module, name = found.groups()
    assert getattr(import_module(module), name) is dynamo.backend


def test_the_name_alone_is_enough() -> None:
    """A program imports nothing of Convoy: PyTorch finds the backend by its entry point."""
    found = {entry.name for entry in entry_points(group="torch_dynamo_backends")}
    if "convoy" not in found:
        pytest.skip("the package is not installed")
    code = """
import torch
with torch.no_grad():
    net = torch.compile(torch.nn.Conv2d(3, 4, 3).eval(), backend="convoy")
    print(*net(torch.randn(1, 3, 8, 8)).shape)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.split() == ["1", "4", "6", "6"], done.stderr[-2000:]
