"""Where the results of a traced program are in memory."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def both(function: Any, *inputs: Any) -> tuple[list[Any], list[Any]]:
    """Results of a function, and of what gives the same values as compact tensors, put in place."""
    from convoy.pytorch.results import in_place, results_of

    class Net(torch.nn.Module):
        def forward(self, *tensors: Any) -> Any:
            return function(*tensors)

    program = torch.export.export(Net(), inputs)

    def compact(tensors: Any) -> list[Any]:
        return [one.clone(memory_format=torch.contiguous_format) for one in function(*tensors)]

    return list(function(*inputs)), list(in_place(compact, results_of(program))(inputs))


CASES: dict[str, Any] = {
    "views of an input": lambda x: (x.t(), x[1:], x[:, ::2], x[None].expand(2, -1, -1)),
    "views of a result": lambda x: _views(x + 1),
    "views before what they are of": lambda x: _views(x + 1)[::-1],
    "strides": lambda x: ((x + 1).t(), x.exp()[None].permute(2, 0, 1), x.sum()[None]),
    "another type": lambda x: ((x + 1).contiguous().view(torch.int32), x.to(torch.int64)),
}


def _views(y: Any) -> tuple[Any, ...]:
    return y, y.t(), y[2], y[:, None]


@pytest.mark.parametrize("name", CASES)
def test_strides_and_values(name: str) -> None:
    for x in (torch.randn(4, 6), torch.randn(6, 4).t(), torch.randn(5, 6)[1:]):
        for want, got in zip(*both(CASES[name], x), strict=True):
            assert got.stride() == want.stride()
            torch.testing.assert_close(got, want)


def test_parts_without_the_whole_are_compact() -> None:
    want, got = both(lambda x: (x + 1).split(2, 1), torch.randn(4, 6))
    torch.testing.assert_close(got, want)
    assert all(one.is_contiguous() for one in got)


def test_memory_is_shared() -> None:
    x = torch.randn(4, 6)
    want, got = both(CASES["views of a result"], x)
    assert [one.data_ptr() - got[0].data_ptr() for one in got] == [
        one.data_ptr() - want[0].data_ptr() for one in want
    ]
    want, got = both(CASES["views of an input"], x)
    assert [one.data_ptr() for one in got] == [one.data_ptr() for one in want]
