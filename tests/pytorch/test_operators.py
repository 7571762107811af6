"""Operators against PyTorch: those that TVM's importer has wrong or lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import convoy  # noqa: E402
from convoy.pytorch.importer import to_relax, trace  # noqa: E402
from convoy.pytorch.structure import Arguments  # noqa: E402

from ..helpers.stock import machine  # noqa: E402

SHAPE = (2, 6, 5, 7)
CASES: dict[str, Callable[[Any], Any]] = {
    "select": lambda x: (x[:, -1], x[..., -2], x[-1], x.select(-1, 2), x[:, :, None, 0]),
    "index": lambda x: (
        x[:, [0, -1, 2]], x[[1, 0], :, [2, -1]], x[:, [[0, 1], [5, -2]], [2, -1]],
        x[torch.tensor([0, -1])], x[..., torch.tensor([[0], [-1]]), torch.tensor([1, 2, -3])],
    ),
    "index_put": lambda x: (
        torch.index_put(x, (torch.tensor([0, 1]), torch.tensor([2, -1])), torch.tensor(5.0)),
        torch.index_put(x, (torch.tensor([1, 1]),), x[:, :1], accumulate=True),
        x.index_add(1, torch.tensor([0, 3]), x[:, :2]), x.index_fill(1, torch.tensor([0, -1]), 2.0),
        x.index_copy(2, torch.tensor([4, 1]), x[:, :, :2]),
        x.scatter_add(1, x.argsort(1)[:, :3], x * 2), x.scatter(1, x.argsort(1)[:, :3], x * 2),
    ),
    "windows": lambda x: (
        x.unfold(2, 3, 2), x.unfold(-1, 2, 1), F.unfold(x, 3, padding=1),
        F.unfold(x, 2, stride=2, dilation=(2, 1)), F.unfold(x[0], (2, 3)),
        F.fold(F.unfold(x, 3, padding=1), (5, 7), 3, padding=1),
        F.fold(F.unfold(x, (2, 3), stride=2), (5, 7), (2, 3), stride=2),
    ),
    "nearest": lambda x: (
        F.interpolate(x, scale_factor=2), F.interpolate(x, size=(7, 9)),
        F.interpolate(x, size=(3, 4)), F.interpolate(x, scale_factor=1.7),
        F.interpolate(x, size=(7, 10), mode="nearest-exact"), F.interpolate(x[0], size=11),
        F.interpolate(x[None], scale_factor=(2, 1, 3)),
    ),
    "linear": lambda x: (
        F.interpolate(x, size=(9, 4), mode="bilinear", align_corners=True),
        F.interpolate(x, scale_factor=1.7, mode="bilinear"),
        F.interpolate(x, scale_factor=1.7, mode="bilinear", recompute_scale_factor=True),
        F.interpolate(x, size=(3, 4), mode="bilinear", antialias=True),
        F.interpolate(x, size=(1, 3), mode="bilinear", align_corners=True),
        F.interpolate(x[0], size=11, mode="linear"),
        F.interpolate(x[None], size=(4, 9, 8), mode="trilinear"),
    ),
    "cubic": lambda x: (
        F.interpolate(x, size=(9, 11), mode="bicubic"),
        F.interpolate(x, size=(3, 4), mode="bicubic", align_corners=True),
        F.interpolate(x, scale_factor=(1.3, 0.7), mode="bicubic"),
    ),
    "grid": lambda x: (
        F.grid_sample(x, torch.tanh(x[:, :5, :4, :2]), align_corners=False),
        F.grid_sample(x, torch.tanh(x[:, :5, :4, :2]) * 1.3, padding_mode="border"),
        F.grid_sample(x, torch.tanh(x[:, :5, :4, :2]), mode="nearest", align_corners=True),
        F.grid_sample(x[:, None], x[:, None, :4, :5, :3], align_corners=False),
        F.grid_sample(x[:, None], x[:, None, :4, :5, :3], "nearest", "border", align_corners=True),
        F.grid_sample(x[:, None], x[:, None, :, :, :3], padding_mode="reflection"),
    ),
    "pools": lambda x: (
        F.avg_pool2d(x, 2, divisor_override=3), F.adaptive_max_pool2d(x, (2, 3)),
        F.adaptive_max_pool1d(x[0], 2), F.adaptive_max_pool3d(x, (2, 2, 3)),
        F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False), F.max_pool2d(x, 2),
        F.max_pool2d(x[0], 3, 1, 1),
    ),
    "arithmetic": lambda x: (
        torch.add(x, x, alpha=2), torch.sub(x, x * 3, alpha=0.5), torch.fmax(x, -x),
        torch.hypot(x, x + 1), torch.copysign(x, -x), torch.erfc(x), torch.exp2(x), x.signbit(),
        F.selu(x), F.celu(x, 0.7), F.elu(x, 0.7), (x * 10).int() << 1, torch.trapz(x, dim=1),
    ),
    "small integers": lambda x: (
        -(x.abs() * 9).to(torch.uint8), (x.abs() * 9).to(torch.uint8).sign(),
        (x * 9).to(torch.int16).prod(1), (x.abs() * 9).to(torch.uint8).prod(2),
    ),
    "promotion": lambda x: (
        (x * 10).int() + 0.5, (x * 10).long() / 3, 3 / (x.int() + 4), (x > 0) + 1, (x > 0) * x,
        torch.arange(7) / 7 + x, torch.arange(7, 0, -1) + x, torch.arange(4).sin().sum() + x,
        (x * 10).int() // 3, torch.div((x * 10).int(), 3, rounding_mode="trunc"), x // 0.3,
        torch.div(x, 0.3, rounding_mode="trunc"), (x * 10).int() > 2.5, torch.where(x > 0, 1, x),
        (x > 0).sum(1), (x * 10).int().clamp(max=2.5), torch.logaddexp(x, x * 2),
        torch.maximum((x * 3).int(), x), torch.heaviside(x, x * 0 + 0.5), torch.isclose(x, x),
    ),
    "reductions": lambda x: (
        x.max(1)[0], x.max(1)[1],
        x.prod(1), x.min(2)[0], x.min(2, keepdim=True)[1], torch.var_mean(x, 1)[1],
        torch.std_mean(x, (2, 3))[0], x.kthvalue(2, 1)[0], torch.cdist(x[:, :, 0], x[:, :, 1]),
        F.bilinear(x[0, 0], x[0, 1], x[0, :4].mT @ x[0, :4]), F.group_norm(x, 3),
        F.group_norm(x, 2, x[0, :, 0, 0], x[0, :, 0, 1]),
    ),
    "masks": lambda x: (
        masked(x, lambda y: y.__setitem__(y > 0, y[y > 0] * 2 + 1)),
        masked(x, lambda y: y.__setitem__(~(y > 0), torch.maximum(y[~(y > 0)], x[~(y > 0)] - 1))),
        masked(x, lambda y: y.__setitem__(y[..., 0] > 0, y[y[..., 0] > 0].exp() + x[0, 0, 0])),
        x[0, 0].clone().fill_diagonal_(2),
    ),
    "systems": lambda x: systems(x[:, :2, :3]),
    "empty": lambda x: (
        x[:0].sum(0), x[:0].mean(0), x[:0].var(0), x[:0].any(0), x[:0].all(), x[:0].prod(1),
        torch.cat((x[:0], x)).mean(0), x[:0].flatten(1).mT @ x[:0].flatten(1),
    ),
    "others": lambda x: (
        F.rrelu(x), torch.sort(x, stable=True, dim=1)[0],
        x @ torch.linalg.qr(torch.arange(49.0).reshape(7, 7) ** 0.5 + torch.eye(7))[0],
    ),
}  # fmt: skip


def systems(x: Any) -> tuple[Any, ...]:
    """Systems of three unknowns, of matrices of shape (2, 2, 3, 7)."""
    a, gram = x[..., :3], x @ x.mT + torch.eye(3)
    return (
        torch.inverse(a), torch.linalg.solve(a, x[..., 5]), torch.linalg.det(a),
        torch.linalg.solve(a, x.mT[..., :3, :], left=False),
        torch.linalg.solve(x[0, 0, :, 2:5], x[..., 1:4]),
        torch.linalg.cholesky(gram), torch.linalg.cholesky(gram, upper=True),
        *torch.linalg.slogdet(a), torch.logdet(gram), *torch.linalg.inv_ex(a),
        *torch.linalg.solve_ex(a, x), *torch.linalg.cholesky_ex(gram),
        torch.cholesky_solve(x, torch.linalg.cholesky(gram)),
        *(
            torch.linalg.solve_triangular(a + 3 * torch.eye(3), x, upper=upper)
            for upper in (True, False)
        ),
        torch.linalg.solve_triangular(a, x.mT, upper=True, left=False, unitriangular=True),
    )  # fmt: skip


def masked(x: Any, assign: Callable[[Any], None]) -> Any:
    y = x * 1.5
    assign(y)
    return y


def both(function: Callable[[Any], Any]) -> tuple[list[Any], list[Any]]:
    """Results of Convoy's import by TVM alone, and PyTorch's."""
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(1))
    tensors, structure = Arguments(function).flatten((x,), {})
    module = to_relax(trace(function, structure, tensors).program)
    want = function(x)
    want = want if isinstance(want, tuple) else (want,)
    return [value.numpy() for value in machine(module)["main"](tvm.runtime.tensor(x.numpy()))], [
        value.numpy() for value in want
    ]


@pytest.mark.parametrize("name", CASES)
def test_as_pytorch(name: str) -> None:
    for got, want in zip(*both(CASES[name]), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@st.composite
def indices(draw: st.DrawFn) -> tuple[Any, ...]:
    """An index for each of some leading axes."""
    parts: list[Any] = []
    count = draw(st.integers(1, 3))
    for size in SHAPE[: draw(st.integers(1, 4))]:
        position = st.integers(-size, size - 1)
        tensor = st.lists(position, min_size=count, max_size=count).map(torch.tensor)
        anything = st.builds(slice, st.none() | position, st.none() | position, st.none())
        parts.append(draw(st.one_of(position, tensor, anything, st.just(slice(None)))))
    return tuple(parts)


@settings(max_examples=12, deadline=None)
@given(st.lists(indices(), min_size=1, max_size=8))
def test_any_index(chosen: list[tuple[Any, ...]]) -> None:
    x = torch.zeros(SHAPE)
    chosen = [index for index in chosen if x[index].numel()]
    if chosen:
        for got, want in zip(*both(lambda x: tuple(x[i] for i in chosen)), strict=True):
            np.testing.assert_array_equal(got, want)


def test_lengths_of_zeros_in_float16() -> None:
    x = torch.zeros(3, 8, dtype=torch.float16)
    x[1] = torch.arange(8)

    def normalized(x: Any) -> Any:
        return F.normalize(x, dim=-1), F.cosine_similarity(x[1:2] + 1, x[1:2], dim=-1)

    tensors, structure = Arguments(normalized).flatten((x,), {})
    module = to_relax(trace(normalized, structure, tensors).program)
    for got, want in zip(
        machine(module)["main"](tvm.runtime.tensor(x.numpy())), normalized(x.float()), strict=True
    ):
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=4e-3)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_grids_in_16_bits(dtype: str) -> None:
    """Coordinates are computed in float32, and the result has the declared type."""

    def sampled(x: Any) -> Any:
        grid = F.affine_grid(x[:, 0, :2, :3] * 0.3, (2, 6, 4, 5), align_corners=False)
        return F.grid_sample(x, grid, align_corners=False)

    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(2)).to(getattr(torch, dtype))
    got = convoy.compile(sampled, (x,), cache=False)(x)
    assert got.dtype == x.dtype
    torch.testing.assert_close(got.float(), sampled(x.float()), rtol=0.05, atol=0.05)


def test_group_norms_in_bfloat16() -> None:
    def normed(x: Any) -> Any:
        return F.group_norm(x, 3), F.group_norm(x, 2, x[0, :, 0, 0], x[0, :, 0, 1])

    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(3)).bfloat16()
    for got, want in zip(convoy.compile(normed, (x,), cache=False)(x), normed(x), strict=True):
        torch.testing.assert_close(got, want, rtol=0.03, atol=0.03)
