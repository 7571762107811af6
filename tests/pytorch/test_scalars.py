"""Operators along an axis, of tensors without axes."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import convoy  # noqa: E402


def along_an_axis(x: Any, i: Any) -> Any:
    return (
        x.max(0), x.min(-1), x.aminmax(dim=0), x.amax(0, keepdim=True), x.argmin(), x.argmax(0),
        x.prod(0, keepdim=True), x.sum(0), x.mean(0), x.std(0, correction=0), x.any(0), x.all(0),
        x.median(0), x.kthvalue(1), x.sort(), x.topk(1), x.cumsum(0), x.cumprod(0, dtype=int),
        x.cummax(0), x.logcumsumexp(0), x.norm(3, 0), x.softmax(0), x.log_softmax(0), x.flip(0),
        x.gather(0, i), x.index_select(0, i), x.take(i), x.scatter(0, i, 2.5),
        x.scatter_add(0, i, x), x.scatter_reduce(0, i, x, "mean"),
        x.scatter(0, i, 2.5, reduce="multiply"), x.index_reduce(0, i.reshape(1), x, "amax"),
    )  # fmt: skip


def test_as_of_one_element() -> None:
    x, i = torch.tensor(1.5), torch.tensor(0)
    compiled = convoy.compile(along_an_axis, (x, i), cache=False)
    torch.testing.assert_close(compiled(x, i), along_an_axis(x, i))
