"""Calls of a compiled module with tensors that are not plain, and in traces."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402

import convoy  # noqa: E402
from convoy.errors import InvalidOption  # noqa: E402

X = torch.randn(2, 3)


@pytest.fixture(scope="module")
def compiled() -> Any:
    return convoy.compile(torch.nn.Linear(3, 3), X)


def _nested(compiled: Any) -> None:
    compiled(torch.nested.nested_tensor([torch.randn(3), torch.randn(3)]))


def _fake(compiled: Any) -> None:
    with FakeTensorMode():
        compiled(torch.randn(2, 3))


def _around(compiled: Any) -> Any:
    class Around(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return compiled(x) + 1

    return Around()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (_nested, "nested tensor"),
        (lambda compiled: compiled(X.to_sparse()), "to_dense"),
        (_fake, "the module that it was made from"),
        (lambda compiled: torch.func.vmap(compiled)(torch.stack([X, X])), "transformed function"),
        (lambda compiled: torch.func.jvp(compiled, (X,), (X,)), "transformed function"),
        (lambda compiled: convoy.compile(_around(compiled), X), "that it was made from"),
        (lambda compiled: torch.jit.trace(_around(compiled), X), "torch.jit.trace"),
    ],
    ids=["nested", "sparse", "fake", "vmap", "jvp", "compiled twice", "traced"],
)
def test_what_a_compiled_module_does_not_take(compiled: Any, call: Any, message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        call(compiled)


def test_tangents_are_not_lost(compiled: Any) -> None:
    with forward_ad.dual_level():
        with pytest.raises(InvalidOption, match="tangent"):
            compiled(forward_ad.make_dual(X, X))
        torch.testing.assert_close(compiled(X), compiled.module(X))
