"""Resizing over axes one by one, where TVM has no operator that samples as PyTorch does."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

import convoy
from convoy.graph.expr import op_name
from convoy.graph.function import bindings_of
from convoy.pytorch.importer import to_relax

X = torch.randn(2, 3, 9, generator=torch.Generator().manual_seed(0))
CASES = {
    "longer": lambda x: F.interpolate(x, size=23, mode="linear"),
    "shorter": lambda x: F.interpolate(x, size=4, mode="linear"),
    "one": lambda x: F.interpolate(x, size=1, mode="linear"),
    "corners": lambda x: F.interpolate(x, size=17, mode="linear", align_corners=True),
    "factor": lambda x: F.interpolate(x, scale_factor=2.7, mode="linear"),
    "columns": lambda x: F.interpolate(x[None], scale_factor=(1.3, 1.9), mode="bilinear"),
    "cubic": lambda x: F.interpolate(x[None], scale_factor=(1, 1.9), mode="bicubic"),
}


@pytest.mark.parametrize("name", CASES)
def test_few_taps_are_no_matmul(name):
    function = CASES[name]
    fast = convoy.compile(function, X)
    torch.testing.assert_close(fast(X), function(X), atol=2e-6, rtol=1e-5)
    assert "relax.matmul" not in operators(function)


def test_what_is_no_number_stays_local():
    x = X.clone()
    x[0, 0, 3], x[1, 2, 4], x[1, 1, 8] = math.nan, math.inf, -math.inf
    function = CASES["longer"]
    torch.testing.assert_close(convoy.compile(function, x)(x), function(x), equal_nan=True)


def test_wide_windows_are_a_matmul():
    def function(x):
        return F.interpolate(x[None], size=(3, 2), mode="bilinear", antialias=True)

    torch.testing.assert_close(convoy.compile(function, X)(X), function(X), atol=2e-6, rtol=1e-5)
    assert "relax.matmul" in operators(function)


def operators(function):
    class Net(torch.nn.Module):
        def forward(self, x):
            return function(x)

    module = to_relax(torch.export.export(Net(), (X,)))
    return {op_name(binding.value) for binding in bindings_of(module["main"])}


def test_bytes_are_rounded():
    def function(x):
        return [
            F.interpolate(x, size=(3, 5), mode=mode, antialias=antialias)
            for mode in ("bilinear", "bicubic")
            for antialias in (False, True)
        ]

    x = torch.arange(0, 255, dtype=torch.uint8).reshape(1, 1, 15, 17)
    for got, want in zip(convoy.compile(function, x)(x), function(x), strict=True):
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, atol=1, rtol=0)
        assert (got.float() - want.float()).mean().abs() < 0.2  # rounded down, it were 0.5
