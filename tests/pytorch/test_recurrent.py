"""LSTM and GRU modules: one operator for each layer, or what they consist of."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import convoy
from convoy.graph.expr import op_name
from convoy.graph.function import bindings_of, main_function

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
decompositions = pytest.importorskip("torch._decomp.decompositions")
importer = pytest.importorskip("convoy.pytorch.importer")
recurrent = pytest.importorskip("convoy.pytorch.recurrent")

RECURRENT = "relax.convoy.recurrent"


def operators(net: Any, *inputs: Any, training: bool = False) -> Counter[str]:
    mod = importer.to_relax(torch.export.export(net, inputs), training=training)
    return Counter(op_name(binding.value) for binding in bindings_of(main_function(mod)[1]))


@pytest.mark.parametrize(
    ("net", "layers"),
    [
        (torch.nn.LSTM(3, 4, 2, bidirectional=True).eval(), 2),
        (torch.nn.GRU(3, 4, bias=False, batch_first=True).eval(), 1),
        (torch.nn.LSTM(3, 4, 2, dropout=0.5).eval(), 2),
        (torch.nn.LSTM(3, 4, proj_size=2).eval(), 0),
        (torch.nn.RNN(3, 4).eval(), 0),
    ],
)
def test_a_layer_is_one_operator(net: Any, layers: int) -> None:
    assert operators(net, torch.randn(2, 1, 3))[RECURRENT] == layers


def test_steps_of_a_layer_that_is_trained_are_apart() -> None:
    net = torch.nn.LSTM(3, 4)
    assert operators(net, torch.randn(2, 1, 3), training=True)[RECURRENT] == 0


@pytest.mark.parametrize("cell", [torch.nn.LSTM, torch.nn.GRU])
@pytest.mark.parametrize("rank", [2, 3])
def test_all_results(cell: Any, rank: int) -> None:
    net = cell(3, 5, 2, bidirectional=rank == 3, batch_first=rank == 3).eval()
    x = torch.randn(*(2, 3, 3)[-rank:])
    got, (want, last) = convoy.compile(net, x)(x), net(x)
    torch.testing.assert_close(got[0], want)
    torch.testing.assert_close(got[1], last)


def test_states_of_one_layer_have_no_axis_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    right = decompositions.one_layer_lstm

    def wrong(*args: Any, **kwargs: Any) -> Any:
        out, states = right(*args, **kwargs)
        return out, tuple(state.unsqueeze(0) for state in states)

    monkeypatch.setattr(decompositions, "one_layer_lstm", wrong)
    net = torch.nn.LSTM(3, 4).eval().double()  # which is not traced as oneDNN's
    with recurrent.with_shapes_of_states():
        program = torch.export.export(net, (torch.randn(2, 5, 3).double(),))
    (node,) = (n for n in program.graph.nodes if "lstm" in str(n.target))
    assert [tuple(value.shape) for value in node.meta["val"]] == [(2, 5, 4), (1, 5, 4), (1, 5, 4)]
    assert decompositions.one_layer_lstm is wrong
