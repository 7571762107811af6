"""The same PyTorch module again: traced, and neither converted nor compiled."""

from __future__ import annotations

import copy
import logging
from pathlib import Path
from typing import Any

import pytest

import convoy

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn

from convoy.pytorch import importer, training  # noqa: E402
from convoy.pytorch.content import program_content  # noqa: E402
from convoy.pytorch.importer import trace  # noqa: E402
from convoy.pytorch.structure import flatten  # noqa: E402


class Net(nn.Module):
    def __init__(self, slope: float = 0.1) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 3)
        self.slope = slope

    def forward(self, x: Any) -> Any:
        return nn.functional.leaky_relu(self.conv(x), self.slope).mean((2, 3))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVOY_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("CONVOY_MODULE_CACHE_BYTES")


@pytest.mark.parametrize("batch", [None, (1, 3)])
def test_a_module_of_an_earlier_build_is_not_converted(
    cache: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, batch: Any
) -> None:
    net, x = Net().eval(), torch.randn(2, 3, 6, 6)
    caplog.set_level(logging.INFO, "convoy")
    first = convoy.compile(net, (x,), batch=batch)
    begun = [message for message in caplog.messages if message.endswith(" ...")]
    assert "trace ..." in begun and "import ..." in begun and "lower and compile ..." in begun
    caplog.clear()
    monkeypatch.delattr(importer, "to_relax")
    second = convoy.compile(net, (x,), batch=batch)
    stages = [message.split(":")[0] for message in caplog.messages]
    assert stages == ["trace ...", "trace", "the module of an earlier build is taken"]
    torch.testing.assert_close(second(x), net(x))
    torch.testing.assert_close(second(x), first(x), rtol=0, atol=0)


def trained(net: Any, momentum: float) -> Any:
    """A compiled step, and the loss and the parameters behind two of them."""
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum)
    torch.manual_seed(1)
    batch = torch.randn(4, 3, 6, 6), torch.tensor([0, 1, 2, 3])
    step = training.compile_training_step(net, nn.functional.cross_entropy, optimizer, *batch)
    losses = [step(*batch) for _ in range(2)]
    step.update_module()
    return losses[1], net.state_dict()


def test_a_training_step_of_an_earlier_build_is_not_differentiated(
    cache: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Moving statistics and velocities find their places without the network."""
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(128, 4))
    results = [trained(copy.deepcopy(net), momentum=0.9)]
    monkeypatch.delattr(training, "to_relax")
    results.append(trained(copy.deepcopy(net), momentum=0.9))
    for name, value in results[0][1].items():
        torch.testing.assert_close(value, results[1][1][name], rtol=0, atol=0)
    assert results[0][0] == results[1][0]
    with pytest.raises(NameError, match="to_relax"):
        trained(copy.deepcopy(net), momentum=0.5)


def content(net: Any, x: Any) -> Any:
    tensors, structure = flatten(((x,), {}))
    return program_content(trace(net, structure, tensors).program)


def test_content_differs_where_the_module_does() -> None:
    x = torch.randn(2, 3, 6, 6)
    weight, bfloat16, strided = Net(), Net().to(torch.bfloat16), Net()
    with torch.no_grad():
        weight.conv.weight[0, 0, 0, 0] += 1e-6
        strided.conv.weight = nn.Parameter(
            strided.conv.weight.to(memory_format=torch.channels_last)
        )
    found = [
        content(Net(), x),
        content(Net(), x[:1]),
        content(Net(0.2), x),
        content(weight, x),
        content(strided, x),
        content(bfloat16, x.to(torch.bfloat16)),
    ]
    assert found[0] == content(Net(), torch.zeros_like(x))
    assert None not in found and len(set(map(str, found))) == len(found)


class Added(nn.Module):
    def __init__(self, constant: Any) -> None:
        super().__init__()
        self.register_buffer("constant", constant)

    def forward(self, x: Any) -> Any:
        return x + self.constant.to_dense().to(torch.complex64).imag.sum()


def test_content_of_any_constants() -> None:
    x, turns = torch.randn(2), torch.polar(torch.ones(2, 3), torch.randn(2, 3))
    dense = [
        turns, turns.conj(), turns.conj().imag, turns.t(), turns[:0], turns.real > 0, turns[0, 0],
    ]  # fmt: skip
    found = [content(Added(constant), x) for constant in dense]
    assert None not in found and len(set(map(str, found))) == len(found)
    assert content(Added(torch.eye(3).to_sparse()), x) is None


def test_operators_of_others_are_told_by_what_they_are_converted_to() -> None:
    library = torch.library.Library("convoy_test_second_build", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x + x, "CompositeExplicitAutograd")
    library.impl("twice", lambda x: torch.empty_like(x), "Meta")

    class Theirs(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.ops.convoy_test_second_build.twice(x)

    assert content(Theirs(), torch.randn(2)) is None
