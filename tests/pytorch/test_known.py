"""Values that depend on no input are known in a trace; those that do are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import convoy  # noqa: E402
from convoy.errors import InvalidOption, UnsupportedOp  # noqa: E402
from convoy.pytorch.importer import to_relax, trace  # noqa: E402
from convoy.pytorch.structure import Arguments  # noqa: E402

from ..helpers.stock import machine  # noqa: E402

nn = torch.nn
F = nn.functional
X = torch.linspace(-1, 1, 12).reshape(3, 4)


class Holder(nn.Module):
    """Calls a function with itself and an input."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("ready", torch.tensor(1, dtype=torch.uint8))
        self.mask = torch.tensor([True, False, True, True])
        self.temperature = nn.Parameter(torch.tensor([0.25]))

    def forward(self, x: Any) -> Any:
        return self.function(self, x)


def imported(function: Any) -> tuple[Any, Any]:
    """Convoy's result and PyTorch's."""
    net = Holder(function).eval()
    tensors, structure = Arguments(net.forward).flatten((X,), {})
    module = to_relax(trace(net, structure, tensors).program)
    main = machine(module)["main"]
    result = main(tvm.runtime.tensor(X.numpy()))
    got = result if isinstance(result, tvm.runtime.Tensor) else result[0]
    return got.numpy(), net(X).detach().numpy()


def counted(x: Any) -> Any:
    """Times a number that is read from a tensor that was written to."""
    counts = torch.zeros(4)
    counts[1:].add_(1)
    counts[0] = 2
    return x * int(counts.sum())


def causal(x: Any) -> Any:
    """As transformers of PyTorch look for the mask that they know."""
    mask = torch.full((4, 4), -torch.inf).triu(1)
    is_causal = bool((mask == nn.Transformer.generate_square_subsequent_mask(4)).all())
    return x @ mask.exp() if is_causal else x


KNOWN = {
    "buffer": lambda net, x: x * 2 if net.ready.item() == 1 else x,
    "attribute": lambda net, x: x * net.mask.sum().item(),
    "written": lambda net, x: counted(x),
    "mask of a transformer": lambda net, x: causal(x),
    "sizes": lambda net, x: x[:, torch.combinations(torch.arange(4))[:, 1]] + net.mask.nonzero()[1],
    "selected": lambda net, x: x[:, net.mask],
    "selected by a function": lambda net, x: x[0].masked_select(mask=net.mask[:2, None]),
    "selected of each row": lambda net, x: torch.masked_select(x[:, None], net.mask).view(3, -1),
    "repeated": lambda net, x: x.repeat_interleave(net.mask + 1, -1),
    "repeated of all": lambda net, x: torch.repeat_interleave(x, torch.arange(12) % 3),
    "repeated alike": lambda net, x: torch.repeat_interleave(x, net.mask[:1] + 1, dim=0),
    "sizes one by one": lambda net, x: x.repeat(net.mask.sum(), net.ready).view(-1, net.mask.sum()),
    "a view of what is known": lambda net, x: x + torch.ones(4).view(1, net.mask.sum() + 1),
    "padding": lambda net, x: F.pad(x, (net.ready, net.ready + 1)),
    "a size by keyword": lambda net, x: F.interpolate(x[None], size=(net.mask.sum(),))[0],
    "mapped": lambda net, x: x * net.ready.item() + torch.vmap(lambda i: i * 2)(torch.arange(4)),
    "random numbers without a use": lambda net, x: (torch.rand(()) < 0.5, x * 2)[1],
    "parameter": lambda net, x: x / net.temperature.item(),
    "like an input": lambda net, x: x + 1 if x.new_ones(2, 2).triu().any() else x,
}


@pytest.mark.parametrize("name", KNOWN)
def test_known(name: str) -> None:
    got, want = imported(KNOWN[name])
    np.testing.assert_allclose(got, want, rtol=1e-6)


#: Compiled here, since pytest writes the assertions of a test anew.
ASSERTING = """
def passes(net, x):
    assert (x < 9).all() and not x.isnan().any() and net.mask.any(), "large"
    torch._assert((x > -9).all(), "small")
    return x * 2

def fails(net, x):
    assert net.mask.all(), "a mask of all"
    return x * 2
"""


def test_assertions_about_inputs_are_not_checked() -> None:
    functions: dict[str, Any] = {"torch": torch}
    exec(ASSERTING, functions)
    got, want = imported(functions["passes"])
    np.testing.assert_array_equal(got, want)
    with pytest.raises(InvalidOption, match="AssertionError: a mask of all"):
        imported(functions["fails"])


def test_masks_among_the_inputs_of_a_transformer_are_not_read() -> None:
    torch.manual_seed(1)
    net = nn.Transformer(8, 2, 1, 1, 16, batch_first=True).eval()
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    other = torch.where(torch.rand(3, 3) > 0.5, mask.T, 0)
    args = torch.randn(2, 4, 8), torch.randn(2, 3, 8)
    fast = convoy.compile(net, args, {"tgt_mask": mask}, cache=False)
    for given in (mask, other):
        with torch.no_grad():
            want = net(*args, tgt_mask=given)
        torch.testing.assert_close(fast(*args, tgt_mask=given), want, rtol=1e-4, atol=1e-5)


def overwritten(x: Any) -> Any:
    total = torch.zeros(4)
    total.view(2, 2)[0] = x[0, :2]
    return x * 2 if total.sum() > 0 else x


def attribute(net: Any, x: Any) -> Any:
    net.mask[0] = x[0, 0] > 0
    return x * 2 if net.mask.all() else x


UNKNOWN = {
    "an input": lambda net, x: x * 2 if x.sum() > 0 else x,
    "a part of an input in a view": lambda net, x: overwritten(x),
    "a part of an input in an attribute": attribute,
    "a copy of an input": lambda net, x: x * 2 if x.new_tensor(x[0, 0]) > 0 else x,
    "random": lambda net, x: x * 2 if torch.rand(()) > 2 else x,
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown(name: str) -> None:
    with pytest.raises(UnsupportedOp, match=r"cannot trace at .*line \d+ of \S+test_known\.py"):
        imported(UNKNOWN[name])


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    imported(KNOWN["buffer"])
    with pytest.raises(UnsupportedOp):
        imported(UNKNOWN["an input"])
    assert capfd.readouterr() == ("", "")


def test_a_trace_changes_no_module() -> None:
    net = Holder(lambda net, x: x * net.ready.add_(1).item() * net.mask.logical_not_().sum().item())
    tensors, structure = Arguments(net.forward).flatten((X,), {})
    trace(net, structure, tensors)
    assert net.ready == 1 and net.mask.sum() == 3
