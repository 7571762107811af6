"""TorchScript modules, alone and inside of others, against PyTorch."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pytest

import convoy
from convoy.errors import InvalidOption, UnsupportedOp

if TYPE_CHECKING:
    import torch
    from torch import nn
else:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    nn = torch.nn


class Repeated(nn.Module):
    """With control flow that a script keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.norm.running_var.fill_(0.5)

    def forward(self, x: torch.Tensor, times: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.norm(self.conv(x))
        for i in range(2):
            y = torch.relu(y) - i
        return y if times < 3 else y * times, y.mean()


class Around(nn.Module):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.blocks, self.unused = nn.ModuleList([inner]), torch.jit.script(nn.ReLU())

    def forward(self, x: Any) -> Any:
        return self.blocks[0](x * 2)[0] + 1


def saved(module: Any) -> Any:
    file = io.BytesIO()
    torch.jit.save(module, file)
    file.seek(0)
    return torch.jit.load(file)


X = torch.randn(1, 3, 6, 6, generator=torch.Generator().manual_seed(1))
SCRIPTED = {
    "scripted": lambda: torch.jit.script(Repeated().eval()),
    "traced and loaded": lambda: saved(torch.jit.trace(Repeated().eval(), X)),
    "frozen": lambda: torch.jit.freeze(torch.jit.script(Repeated().eval())),
    "inside": lambda: Around(torch.jit.script(Repeated())).eval(),
}


@pytest.mark.parametrize("name", SCRIPTED)
def test_as_pytorch(name: str) -> None:
    net = SCRIPTED[name]()
    before = dict(net.named_modules()) if name == "inside" else {}
    fast = convoy.compile(net, X, cache=False)
    with torch.no_grad():
        torch.testing.assert_close(fast(X), net(X), rtol=1e-4, atol=1e-5)
    assert all(net.get_submodule(path) is module for path, module in before.items())


def test_arguments_by_keyword() -> None:
    net = torch.jit.script(Repeated().eval())
    fast = convoy.compile(net, X, {"times": 3}, cache=False)
    with torch.no_grad():
        torch.testing.assert_close(fast(X, times=3), net(X, times=3), rtol=1e-4, atol=1e-5)


def test_loops_over_sizes_and_results_by_name() -> None:
    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(6, 2, batch_first=True)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            found: dict[str, torch.Tensor] = {"y": self.attention(x, x, x)[0]}
            for i in range(x.size(1)):
                found["y"] = found["y"] * 0.5 + x[:, i : i + 1]
            return found

    net = torch.jit.script(Rows().eval())
    x = X[0].reshape(2, 9, 6)
    fast = convoy.compile(net, x, cache=False)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), net(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sign", [1, -1])
def test_branches_on_values(sign: int) -> None:
    class Signed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if bool(x.sum() > 0):
                y = torch.relu(x)
            else:
                y = x - 1
            return y

    net, x = torch.jit.script(Signed()), sign * torch.rand(2, 3)
    assert convoy.compile(net, x.abs(), cache=False)(x).equal(net(x))


def test_what_cannot_be_converted_is_named() -> None:
    class Grown(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            while bool(x.sum() < 9):
                x = x.abs() * 2 + 1
            return x

    net = nn.Sequential(nn.ReLU(), torch.jit.script(Grown()))
    with pytest.raises(UnsupportedOp, match="the scripted module 1 "):
        convoy.compile(net, X, cache=False)


def test_weights_in_the_format_of_another_library_are_refused() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
    made = torch.jit.optimize_for_inference(torch.jit.trace(net, X))
    if "mkldnn" not in str(made.graph):
        pytest.skip("this PyTorch has no oneDNN")
    with pytest.raises(UnsupportedOp, match="oneDNN's format"):
        convoy.compile(made, X, cache=False)


def test_inputs_that_a_module_with_scripted_ones_does_not_take() -> None:
    net = nn.Sequential(torch.jit.script(nn.ReLU()), nn.Conv2d(3, 4, 1))
    with pytest.raises(InvalidOption, match=r"the module raises.*3 channels"):
        convoy.compile(net, torch.randn(1, 2, 4, 4))
