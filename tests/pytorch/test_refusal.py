"""Refused operators: the error has their name and the submodule that calls them."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import tvm

import convoy
from convoy.errors import InvalidOption, UnsupportedOp

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from convoy.pytorch.refusal import raised  # noqa: E402

nn = torch.nn
F = nn.functional


class Called(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


CASES: dict[str, tuple[Any, str]] = {
    "no converter": (
        lambda x: torch.linalg.qr(x)[0],
        r"aten\.linalg_qr\.default in blocks\.1\.head \(Called\)",
    ),
    "refused by its converter": (
        lambda x: x[:, 1:].as_strided((2, 2), (1, 1)),
        r"a part of a tensor \(the operator aten\.as_strided\S+ in blocks\.1\.head \(Called\)\)",
    ),
    "a value": (
        lambda x: x if x.sum() > 0 else -x,
        r"trace at blocks\.1\.head \(Called\), line \d+ of \S+test_refusal\.py \(GuardOnData",
    ),
    "a number": (
        lambda x: x * x.amax().item(),
        r"_local_scalar_dense\.default in blocks\.1\.head \(Called\)\).*Leave out item",
    ),
    "a packed sequence": (
        lambda x: nn.utils.rnn.pack_padded_sequence(x[0], torch.tensor([4, 2, 1])).data,
        r"blocks\.1\.head \(Called\)",
    ),
    "a size": (
        lambda x: x[x > 0].sort()[0],
        r"aten\.index\.Tensor in blocks\.1\.head \(Called\), of whose result.*torch\.where",
    ),
    "a size in a decomposition": (
        lambda x: x.repeat_interleave((x.flatten() > 0).int()).mean(),
        r"aten\.repeat_interleave\S+ in blocks\.1\.head \(Called\), of whose result the size",
    ),
    "random": (torch.rand_like,
    r"aten\.rand_like\.default in blocks\.1\.head \(Called\), which draws"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_operator_and_place(name: str) -> None:
    function, message = CASES[name]
    net = nn.ModuleDict({"head": Called(function)})
    whole = nn.ModuleList([nn.Conv2d(3, 3, 1), net])

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = whole

        def forward(self, x: Any) -> Any:
            return self.blocks[1]["head"](self.blocks[0](x))

    with pytest.raises(UnsupportedOp, match=message):
        convoy.compile(Net(), torch.randn(1, 3, 4, 4), cache=False)


def test_operators_of_tvm_have_names_in_errors() -> None:
    err = ValueError(f"In {tvm.ir.Op.get('relax.sum')}, the input axis 0 is out of range.")
    assert raised(err) == "ValueError: In relax.sum, the input axis 0 is out of range."


def test_a_function_has_no_place() -> None:
    with pytest.raises(UnsupportedOp, match=r"got the operator aten\.linalg_qr\.default; expected"):
        convoy.compile(lambda x: torch.linalg.qr(x)[0], torch.eye(3), cache=False)


@pytest.mark.parametrize(
    ("example", "message"),
    [
        (torch.randn(1, 4, 4, 4), r"raises at 0 \(Conv2d\) RuntimeError.*3 channels.* that runs$"),
        (torch.randn(1, 3, 4, 4).half(), r"raises at 0 \(Conv2d\) RuntimeError: Input type"),
        (
            {"input": torch.randn(1, 3, 4, 4)},
            r"TypeError.*\(module, \(\), \{\.\.\.\}\) takes keyword",
        ),
        ((1, 3, 4, 4), r"too many positional arguments.*a tensor, or a tuple"),
    ],
)
def test_inputs_that_the_module_does_not_take(example: Any, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        convoy.compile(nn.Sequential(nn.Conv2d(3, 3, 1)), example, cache=False)


def test_a_module_in_training_is_not_called() -> None:
    net = nn.Sequential(nn.BatchNorm2d(3), Called(lambda x: x if x.sum() > 0 else -x)).train()
    with pytest.raises(UnsupportedOp, match=r"cannot trace at 1.*values of buffers are known"):
        convoy.compile(net, torch.randn(2, 3, 4, 4), cache=False)
    assert net[0].num_batches_tracked == 0


def test_options_and_modules_that_there_are_not() -> None:
    with pytest.raises(InvalidOption, match=r"the option 'precison'; expected one of .*precision"):
        convoy.compile(nn.ReLU(), torch.ones(2), precison="float16")
    with pytest.raises(InvalidOption, match="example_kwargs of type list"):
        convoy.compile(nn.ReLU(), torch.ones(2), [torch.ones(2)])
    with pytest.raises(InvalidOption, match=r"progress=3; expected a function"):
        convoy.compile(nn.ReLU(), torch.ones(2), progress=3)
    compiled = convoy.compile(nn.ReLU(), torch.ones(2))
    with pytest.raises(InvalidOption, match="a module that is compiled"):
        convoy.compile(compiled, torch.ones(2))


def test_an_error_of_a_trace_is_one_line() -> None:
    def slopes(x: Any) -> Any:
        return torch.func.grad(lambda y: (y @ y).sum())(x)

    with pytest.raises(UnsupportedOp) as caught:
        convoy.compile(Called(slopes), torch.eye(3), cache=False)
    assert "\n" not in str(caught.value)


def test_long_reasons_are_shortened() -> None:
    def joined(x: Any) -> Any:
        kept = torch.cat([x[x > i] for i in range(100)])
        return kept if kept.numel() > 9 else x

    with pytest.raises(UnsupportedOp, match=r"GuardOnData.* \.\.\.\); expected") as caught:
        convoy.compile(joined, torch.ones(3), cache=False)
    assert len(str(caught.value)) < 1200


def test_inputs_and_buffers_that_are_written_to() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x: Any) -> Any:
            self.calls += 1
            return x * 2

    with pytest.raises(UnsupportedOp, match=r"changes 'calls'.*an argument and a result"):
        convoy.compile(Counts(), torch.eye(3), cache=False)
    with pytest.raises(UnsupportedOp, match=r"writes to input 1; .*x\.clone\(\)"):
        convoy.compile(lambda x, y: y.add_(x), (torch.eye(3), torch.eye(3)), cache=False)


def test_quantized_modules() -> None:
    quantized = nn.Sequential(torch.ao.nn.quantized.ReLU6())
    with pytest.raises(UnsupportedOp, match=r"the quantized module 0 \(ReLU6\)"):
        convoy.compile(quantized, torch.eye(4), cache=False)


def test_sparse_inputs_and_copies() -> None:
    with pytest.raises(InvalidOption, match=r"sparse_coo.*to_dense"):
        convoy.compile(lambda x: x * 2, torch.eye(3).to_sparse(), cache=False)
    fast = convoy.compile(lambda x: x * 2, torch.eye(3), cache=False)
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(InvalidOption, match=r"export\(\) writes it"):
            copied(fast)
