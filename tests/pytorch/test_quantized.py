"""Operators and networks that PyTorch's quantization writes, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import convoy
from convoy.normalize.normal_form import normalize
from convoy.partition.subgraphs import find_subgraphs
from convoy.pytorch.importer import to_relax, trace
from convoy.pytorch.structure import flatten

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("torch.ao.quantization.fx._decomposed", reason="PyTorch's quantization")
ops = torch.ops.quantized_decomposed

BYTE, CHAR = (0, 255, torch.uint8), (-128, 127, torch.int8)
SCALES = torch.tensor([0.03, 0.5, 0.002, 0.1])
ZEROS = torch.tensor([3, -4, 0, 100])
FOUR_BITS = (
    torch.arange(96, dtype=torch.int8).reshape(6, 16) % 16 - 8,
    torch.linspace(0.01, 0.9, 12).reshape(6, 2),
    torch.arange(12, dtype=torch.int8).reshape(6, 2) % 5 - 2,
)


def per_tensor(x: Any) -> tuple[Any, ...]:
    q = ops.quantize_per_tensor(x, 0.037, 12, *BYTE)
    scale, zero = torch.tensor(0.02), torch.tensor(-3)
    t = ops.quantize_per_tensor.tensor(x * 3, scale, zero, *CHAR)
    return (
        q, t, ops.dequantize_per_tensor(q, 0.037, 12, *BYTE),
        ops.dequantize_per_tensor.tensor(t, scale, zero, *CHAR),
        ops.dequantize_per_tensor(q, 0.037, 12, *BYTE, out_dtype=torch.float16),
    )  # fmt: skip


def per_channel(x: Any) -> tuple[Any, ...]:
    q = ops.quantize_per_channel(x, SCALES, ZEROS, 1, *CHAR)
    return (
        q, ops.dequantize_per_channel(q, SCALES, ZEROS, 1, *CHAR),
        ops.dequantize_per_channel(q, SCALES, None, 1, *CHAR),
    )  # fmt: skip


def chosen(x: Any) -> tuple[Any, ...]:
    """Of the values at hand, as dynamic quantization does."""
    results = []
    for choose, (low, high, dtype) in (
        (ops.choose_qparams.tensor, BYTE),
        (ops.choose_qparams.tensor, CHAR),
        (ops.choose_qparams_symmetric.tensor, CHAR),
        (ops.choose_qparams_symmetric.tensor, BYTE),
    ):
        scale, zero = choose(x, low, high, 1e-5, dtype)
        q = ops.quantize_per_tensor.tensor(x, scale, zero, low, high, dtype)
        y = ops.dequantize_per_tensor.tensor(q, scale, zero, low, high, dtype)
        results += [scale.float(), zero.int(), q, y]
    return tuple(results)


def per_row(x: Any) -> tuple[Any, ...]:
    results = []
    for choose in (ops.choose_qparams_per_token, ops.choose_qparams_per_token_asymmetric):
        scale, zero = choose(x, torch.int8)
        q = ops.quantize_per_token(x, scale, zero, *CHAR)
        results += [q, ops.dequantize_per_token(q, scale, zero, *CHAR, torch.float32)]
    return tuple(results)


def grouped(x: Any) -> Any:
    """Weights of four bits, a scale for each group of eight."""
    integers, scale, zero = FOUR_BITS
    w = ops.dequantize_per_channel_group(integers, scale, zero, -8, 7, torch.int8, 8, x.dtype)
    q = ops.quantize_per_channel_group(x[0], scale[:4], zero[:4], -8, 7, torch.int8, 8)
    return x @ w.T, q


def integer_product(x: Any) -> Any:
    q = ops.quantize_per_tensor(x.reshape(-1, 16), 0.02, 0, *CHAR)
    return (torch._int_mm(q, q.T),)


@pytest.mark.parametrize(
    "function", [per_tensor, per_channel, chosen, per_row, grouped, integer_product]
)
def test_operators(function: Callable[[Any], Any]) -> None:
    """Integers are equal; the inputs pass the ends of their range."""
    x = 4 * torch.randn(2, 4, 16, generator=torch.Generator().manual_seed(4))
    for got, want in zip(convoy.compile(function, x, cache=False)(x), function(x), strict=True):
        assert got.dtype == want.dtype
        error = 1e-3 if want.dtype == torch.float16 else 1e-6
        torch.testing.assert_close(got, want, rtol=error, atol=error)


class Quantized(torch.nn.Module):
    """Two convolutions with data of uint8 and filters of int8, as ``convert_pt2e`` leaves them."""

    def __init__(self) -> None:
        super().__init__()
        rng = torch.Generator().manual_seed(2)
        for name, (k, c) in {"first": (8, 3), "second": (12, 8)}.items():
            w = torch.randint(-127, 128, (k, c, 3, 3), dtype=torch.int8, generator=rng)
            self.register_buffer(name, w)
            self.register_buffer(f"{name}_scale", 0.01 * torch.rand(k, generator=rng) + 1e-4)
            self.register_buffer(f"{name}_bias", torch.randn(k, generator=rng))

    def filters(self, name: str) -> Any:
        scale = getattr(self, f"{name}_scale")
        zero = torch.zeros(len(scale), dtype=torch.int64)
        return ops.dequantize_per_channel(getattr(self, name), scale, zero, 0, *CHAR)

    def forward(self, x: Any) -> Any:
        x = ops.quantize_per_tensor(x, 0.03, 113, *BYTE)
        x = ops.dequantize_per_tensor(x, 0.03, 113, *BYTE)
        x = torch.conv2d(x, self.filters("first"), self.first_bias, padding=1).relu()
        x = ops.quantize_per_tensor(x, 0.02, 5, *BYTE)
        x = ops.dequantize_per_tensor(x, 0.02, 5, *BYTE)
        return torch.conv2d(x, self.filters("second"), self.second_bias)


def test_networks_have_convolutions_of_int8() -> None:
    net, x = (
        Quantized().eval(),
        torch.randn(2, 3, 9, 11, generator=torch.Generator().manual_seed(3)),
    )
    want, got = net(x), convoy.compile(net, x, cache=False)(x)
    assert np.linalg.norm(got - want) <= 1e-6 * np.linalg.norm(want)
    _, arguments = flatten(((x,), {}))
    mod = normalize(to_relax(trace(net, arguments, (x,)).program), dtype="float16")
    workloads = [one.require_workload() for one in find_subgraphs(mod) if len(one.ops) > 1]
    assert {(w.dtype, w.out_dtype) for w in workloads} >= {("int8", "int8"), ("int8", "int32")}


class Scaled(torch.Tensor):
    """Weights of int8 that are scaled where they are used, as torchao's are a type of tensor."""

    @staticmethod
    def __new__(cls, q: Any, scale: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, q.shape, dtype=scale.dtype)

    def __init__(self, q: Any, scale: Any) -> None:
        self.q, self.scale = q, scale

    def __tensor_flatten__(self) -> Any:
        return ["q", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, parts: Any, context: Any, size: Any, stride: Any) -> Any:
        return cls(parts["q"], parts["scale"])

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any, kwargs: Any = None) -> Any:
        if function in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            return cls(args[0].q, args[0].scale)
        plain = [a.q.to(a.scale.dtype) * a.scale if isinstance(a, cls) else a for a in args]
        return function(*plain, **(kwargs or {}))


def test_weights_of_another_type_of_tensor() -> None:
    net, x = torch.nn.Linear(16, 6), torch.randn(3, 16, generator=torch.Generator().manual_seed(5))
    q, scale = FOUR_BITS[0], torch.linspace(0.1, 1, 6)[:, None]
    net.weight = torch.nn.Parameter(Scaled(q, scale), requires_grad=False)
    got = convoy.compile(net, x, cache=False)(x)
    torch.testing.assert_close(got, x @ (q * scale).T + net.bias, rtol=1e-5, atol=1e-5)
