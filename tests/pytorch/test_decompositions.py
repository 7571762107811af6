"""Operators that are expressed with others, against PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import convoy
from convoy.errors import UnsupportedOp

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
F = torch.nn.functional

INF, NAN = float("inf"), float("nan")
ODD = torch.tensor([[1.0, NAN, 3.0, 3.0, -INF, 2.0], [-INF, -INF, 0.0, INF, INF, 1.0]])
MASK = torch.tensor([[True, False, True, False, False], [False, True, True, False, True]])
LABELS = [[3, 0, -1, 1, -1], [4, -1, 0, 0, 0], [-1, 2, 2, 1, 0], [0, 2, 1, 4, 3]]
CODES = torch.tensor([1, 4, 4, 0, 2, 3, 3])


def written(x: Any) -> tuple[Any, ...]:
    """Assignments through masks."""
    y, z, w = x.clone(), x.clone(), x.clone()
    y[y > 0.5] = 0.25
    z[:, z[0, :, 0] > 0] = -1.0
    z[0, x[0] < -1] = 3
    w[MASK[:, :4]] = x[0, 0]
    w[:, MASK[0, :4]] = x[:, :1]
    w.diagonal(dim1=1, dim2=2).zero_()
    return y, z, w


def odd(x: Any) -> Any:
    """`ODD` as a value that depends on an input: constants are computed by PyTorch."""
    return ODD + 0 * x[0, 0, 0]


def placed(x: Any) -> tuple[Any, ...]:
    """Assignments at places where a mask is set."""
    y, z, w = x.clone(), x.clone(), x.clone()
    y[torch.where(x > 0)] = 0.25
    rows = (x[:, 0, 0] > -9).nonzero().squeeze(1)
    z[rows] = x[rows] + 1
    first, second = (x[:, :, 0] > 0).nonzero(as_tuple=True)
    w[first, second] = w[first, second].exp()
    return y, z, w


def emptied(x: Any) -> Any:
    """Assignments to slices of which some are empty, as of windows that are not shifted."""
    y = x.clone()
    for number, rows in enumerate((slice(0, -3), slice(-3, -1), slice(-1, 0), slice(3, 2))):
        y[:, rows] = number
    return y


CASES: dict[str, Callable[[Any], Any]] = {
    "scans": lambda x: (
        *x.cummax(1), *x.cummin(-1), *(x * 2).round().cummax(0), *ODD.cummax(1), *ODD.cummin(1),
        x.logcumsumexp(2), ODD[1].logcumsumexp(0), x.sum().cumsum(0), x.sum().int().cumprod(0),
        *(x * 3).int().cummax(1),
    ),
    "scans of integers": lambda x: (
        (x > 0).cumsum(1), (x > 0).cumsum(1, dtype=torch.int32), (x > 0).cumprod(0),
        (x.abs() * 90).to(torch.uint8).cumsum(2), (x.abs() * 9e8).int().cumsum(0),
        (x > 0).cumsum(0, dtype=torch.float32), (x * 3).cumsum(0, dtype=torch.int32),
        (x * 3).int().cumprod(-1),
    ),
    "bounds": lambda x: (
        x[..., :1].clamp(x[:, :1], x[:, :1] + 1), torch.clamp(x[..., :1], max=x[0]),
        torch.addbmm(x[0, :, :4], x, x.mT, beta=0.5, alpha=2),
        torch.copysign(x, x.flip(0)), x.copysign(-1), (x * 9).int().copysign(-2.0),
    ),
    "masked sums": lambda x: (
        x[x > 0].sum(), x[x > 0].mean(), x[x > 9].mean(), x[x[..., 0] > 0].amax(0, keepdim=True),
        (x[x[..., 0] > 0] * 2 - x[0, 0]).mean((0, 1)), x.masked_select(x < 0).min(),
        (x * 9).int()[x > 0].max(), ((x[x > 0] - x.exp()[x > 0]) ** 2).sum(dtype=torch.float32),
        x[:, 0][torch.nonzero(x[:, 0] > 0, as_tuple=True)].sum(),
    ),
    "places of masks": placed,
    "numbered places": lambda x: (
        torch.nonzero_static(x > 0.5, size=7), torch.nonzero_static(x[0, 0] > 0, size=9),
        x.put(CODES, x.flatten()[:7]), x.put(CODES[:2] - 9, x[0, 0, :2], accumulate=True),
        x.take(CODES), x.take(CODES[0] - 9), *(x * 2).round().mode(), *(x * 2).int().mode(1, True),
    ),
    "orders of NaN": lambda x: (
        *odd(x).sort(stable=True), *odd(x).sort(dim=1, descending=True, stable=True),
        odd(x).argsort(0), odd(x).topk(3)[0], odd(x).half().topk(2, largest=False)[0],
        odd(x).T.topk(1, 0)[0], *odd(x).max(1), *odd(x).min(0), odd(x).argmax(),
        odd(x).bfloat16().argmin(0), odd(x).kthvalue(5)[0],
    ),
    "medians": lambda x: (
        *odd(x).median(1), *odd(x).nanmedian(0), odd(x).median(), odd(x).nanmedian(),
        *x.median(2, True), odd(x)[:, 1:2].nanmedian(0)[0], (x * 9).long().median(),
    ),
    "scattered NaN": lambda x: (
        odd(x).scatter_reduce(1, CODES[None, :6].expand(2, 6), odd(x).flip(0), "amax"),
        x[0, 0].scatter_reduce(0, CODES[:6], odd(x)[0], "amin", include_self=False),
    ),
    "compared with NaN": lambda x: (
        odd(x).flip(0) != odd(x), odd(x) != 3, ~(odd(x) > 0), torch.logical_not(odd(x) == odd(x)),
        F.softshrink(odd(x), 1.5), torch.bucketize(odd(x), torch.tensor([-1.0, 0.0, 1.0])),
        torch.where(~(odd(x) < 1), x[0, 0, 0], 7.0), (odd(x).bfloat16() >= 0).bitwise_not(),
    ),
    "shifted": lambda x: tuple(
        shift
        for bits in ((x * 90).to(torch.int8), (x.abs() * 90).to(torch.uint8), (x * 9e8).int())
        for shift in (bits >> CODES[:5], bits << CODES[0], 1 << (bits & 3), 100 >> (bits & 7))
    ),
    "wrapped": lambda x: tuple(
        F.pad(x, widths, "circular") for widths in ((3, -1), (-1, 2), (-2, -1), (1, 5), (2, 0))
    ),
    "floors": lambda x: (
        x // 0.1, x // -0.3, x // x[0], torch.div(x.round(), 0.1, rounding_mode="floor"),
        odd(x) // 0.7, 1 // odd(x), (odd(x) + torch.tensor([0, 0, 4, 1, 0, 0])) // 0.1,
        x.half() // 0.1, (x * 9).int() // 2.5, x // 2,
    ),
    "times zero": lambda x: (odd(x) * 0, 0.0 * odd(x), odd(x).half() * 0, F.softshrink(odd(x), 9)),
    "over zero": lambda x: (x / 0.0, x / -0.0, (x * 2).int() / 0, x // 0.0, (x * 0) / 0.0),
    "sorted bytes": lambda x: (
        *(x.abs() * 90).to(torch.uint8).sort(1), (x * 9).to(torch.int8).argsort(dim=0, stable=True),
        (x.abs() * 90).to(torch.uint8).median(1)[0], (x > 0).sort(2)[0],
    ),
    "special": lambda x: (
        torch.lgamma(x * 3), torch.lgamma(x.abs() * 30 + 0.01), torch.digamma(x * 4 + 0.003),
        torch.erfinv(torch.tanh(x)),
        torch.erfinv(torch.tensor([-1.0, 0.0, 1.0, 2.0]) + 0 * x[0, 0, 0]),
        torch.digamma(x.abs() * 9 + 0.1), torch.lgamma((x * 9).int().abs() + 1),
        torch.lgamma(x * 1e-20), torch.digamma(x * 1e-20), x.half().angle(), (x * 9).int().angle(),
        torch.hypot(x * 1e-30, x[0] * 1e-30) * 1e30, torch.hypot(x * 1e30, x[0]) / 1e30,
        torch.hypot(ODD, ODD.flip(1)), torch.special.log_ndtr(x * 4),
    ),
    "tails": lambda x: (
        torch.erfc(x.abs() * 3 + 1) * torch.exp(x.abs() ** 2 * 9), torch.erfc(-x), torch.erfc(ODD),
        torch.special.erfcx(x * 2), torch.special.erfcx(x.abs() * 30),
    ),
    "bessel": lambda x: (
        torch.i0(x * 9), torch.special.i0e(x * 40), torch.special.i1(x * 9),
        torch.special.i1e(x * 40), torch.special.modified_bessel_i0(x), torch.i0(x * 0 + 80) / 1e33,
    ),
    "shifts": lambda x: (
        (x * 9).int() << 2, (x * 9).int().bitwise_left_shift(3), (x * 9).int() >> 1,
        torch.bitwise_right_shift((x * 9).long(), 2),
    ),
    "searches": lambda x: (
        torch.searchsorted(x.sort(-1)[0], x), torch.searchsorted(x[0, 0].sort()[0], x, right=True),
        torch.searchsorted(torch.tensor([0.0, 0.5]), x, side="right", out_int32=True),
        torch.searchsorted(ODD[0, 2:4], x[0, 0] * 0 + NAN),
        torch.searchsorted(x[0, 0].sort()[0], 0.3),
        x.masked_scatter(x > 0.2, x * 2), x[:, 0].masked_scatter(MASK, x[0]),
        x.repeat_interleave(torch.tensor([2, 0, 1, 1]), 1, output_size=4),
    ),
    "without checks": lambda x: (
        torch.cov(x[0]), x[0].cov(correction=0), torch.cov(x[0, 0]), torch.corrcoef(x[0]),
        torch.cov(x[0], fweights=CODES[:5]), torch.corrcoef(x[0, 0]),
        torch.cov(x[0], fweights=CODES[:5], aweights=x[1, 0].abs()),
        F.gaussian_nll_loss(x, x.flip(0), x.abs()), F.gaussian_nll_loss(x, x * 2, 0.5, full=True),
        F.gaussian_nll_loss(x, x * 2, x[..., 0] * 0, reduction="none"),
        torch.cat([x.exp().data, torch.zeros_like(x).data], -1),
    ),
    "nothing": lambda x: (
        emptied(x), x[:, 3:2].sum(1), x[:, :, 2:1].mean(-1), torch.cat([x[5:], x, x[:0]]),
        F.pad(x[..., :0], (1, 2), value=2.0),
    ),
    "infinite": lambda x: (
        torch.where(x > 0, x, torch.full_like(x, -INF)), torch.full_like(x[0], NAN) + x,
        torch.div(3, x, rounding_mode="floor"), 7 // ((x * 3).int().abs() + 1),
    ),
    "counted": lambda x: (
        torch.histc(x, 5, -1, 2), torch.histc((x * 2).round(), 4, 0, 3),
        torch.histc(CODES.float() + 0 * x[0, 0, 0], 5, 0, 4),
    ),
    "grouped products": lambda x: torch._grouped_mm(
        (x * 2).round().reshape(5, 8).bfloat16(),
        ((x.reshape(5, 8)[:3, :, None] + x.reshape(5, 8)[:3, None]) * 2).round().bfloat16(),
        offs=torch.tensor([2, 2, 5], dtype=torch.int32),
    ).split(2),
    "bags": lambda x: (
        F.embedding_bag(CODES[:6].reshape(2, 3), x[0].mT),
        F.embedding_bag(CODES, x[0].mT, torch.tensor([0, 3, 3]), mode="sum"),
        F.embedding_bag(CODES, x[0].mT, torch.tensor([0, 3, 3, 7]), mode="max",
        include_last_offset=True),
        F.embedding_bag(CODES, x[0].mT, torch.tensor([0, 2]), mode="sum",
        per_sample_weights=x[0, 0, [0, 1, 2, 3, 4, 0, 1]]),
        F.embedding_bag(CODES, x[0].mT, torch.tensor([0, 2]), padding_idx=3),
    ),
    "margins of labels": lambda x: tuple(
        F.multilabel_margin_loss(rows, labels, reduction=reduction)
        for rows, labels in ((x[0], torch.tensor(LABELS)), (x[1, 0], torch.tensor(LABELS[0])))
        for reduction in ("none", "mean", "sum")
    ),
    "written parts": written,
    "scattered": lambda x: (
        *(
            x.scatter_reduce(1, x.argsort(1)[:, :3] // 2, x[:, :3], how, include_self=own)
            for how in ("sum", "prod", "mean", "amax", "amin")
            for own in (True, False)
        ),
        x.scatter(1, x.argsort(1)[:, :3] // 2, x[:, :4], reduce="multiply"),
        x.scatter(-1, x.argsort(-1)[:, :3] // 2, 2, reduce="add"),
        x.scatter(2, x.argsort(2)[:, :3], x[:, 1:]), x.scatter(2, x.argsort(2)[:, 2:], 7.0),
        x.scatter_add(0, x.argsort(0)[:, :2, 2:], x[:, 2:, 1:4]),
        x.scatter_reduce(0, x.argsort(0)[:1, 2:, 1:4], x[:1, :2, :3], "mean"),
        x.index_reduce(1, torch.tensor([0, 0, 3]), x[:, :3] * 2, "amin"),
        x.index_reduce(-1, torch.tensor([1, 1]), x[..., :2], "mean", include_self=False),
        (x * 9).int().scatter_reduce(1, x.argsort(1)[:, :3], (x * 7).int()[:, :3], "mean"),
        torch.diagonal_scatter(x, x[:, :3, 0], -1, 1, 2),
        torch.diagonal_scatter(x, x[..., 1], 1, 1, 2),
    ),
    "strided": lambda x: (
        x.as_strided((2, 4, 3, 3), (20, 5, 1, 1)), x.as_strided((3, 4), (1, 2), 5),
        x.transpose(1, 2).contiguous().as_strided((2, 5), (5, 1)),
        x.flip(1).as_strided((7,), (5,), 2),
    ),
    "joined": lambda x: (
        torch.cat([torch.empty(0), x], 1), torch.cat([x, (x * 9).int()], 2),
        torch.cat([x[:, :0], x, x], 1),
        torch.cat([x > 0, (x * 9).long()], 1), torch.block_diag(x[0, 0], x[0, :0], x[1]),
        torch.stack([x, x > 0]),
    ),
    "distances": lambda x: (
        *(torch.cdist(x[0], x[1], p) for p in (0.0, 1.0, 2.0, 3.5, INF)), F.pdist(x[0]),
        F.pdist(x[0], 3.0),
        torch.linalg.vector_norm((x * 2).int().float(), 0, (1, 2)),
    ),
    "losses": lambda x: (
        F.cross_entropy(x, x.softmax(1)), F.cross_entropy(x, x.softmax(1), reduction="none"),
        F.cross_entropy(x[0, :, 0], torch.tensor(1)), x.sum().softmax(0), x.sum().log_softmax(0),
        F.cross_entropy(x[..., 0], torch.tensor([0, 3]), label_smoothing=0.1),
        F.cross_entropy(x, MASK.long(), x[0, :, 0].abs(), ignore_index=1, label_smoothing=0.2),
    ),
    "quantized": lambda x: (
        torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -8, 7),
        torch.fake_quantize_per_channel_affine(x, x[0, :, 0].abs() + 0.1, torch.arange(4).int(), 1,
        0, 15),
    ),
    "rounded": lambda x: (x.relu().long().float(), (x * 3).clamp(min=0).int() / 2, x.angle()),
    "integers": lambda x: ((x * 9).int() >> 1, (x * 99).long() >> 3,
    *x.topk(2, 1, sorted=False)[:1]),
    "pooled to a size": lambda x: tuple(
        part
        for y in (x, x.round())
        for found in (
            F.adaptive_max_pool2d(y, (3, 2), True), F.adaptive_max_pool2d(y, (2, None), True),
            F.adaptive_max_pool1d(y, 3, True), F.adaptive_max_pool3d(y[None], (2, 3, 5), True),
        )
        for part in found
    ),
    "histograms": lambda x: (
        x.histc(7), x.histc(5, -1, 1), (0 * x).histc(4), x.round().histc(3, 2, 2),
    ),
    "pooled": lambda x: (
        *F.max_pool2d(x, 2, return_indices=True), *F.max_pool2d(x, 3, 2, 1, return_indices=True),
        *F.max_pool2d(x, 2, ceil_mode=True, return_indices=True),
        *F.max_pool2d(x, 2, 1, 1, dilation=2, return_indices=True),
        *F.max_pool1d(x, 2, return_indices=True),
        *F.max_pool3d(x[None], 2, 1, return_indices=True),
        F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2, output_size=(4, 5)),
        F.avg_pool2d(x, 2, ceil_mode=True, divisor_override=3),
        F.avg_pool2d(x, 3, 2, 1, True, False, 2), F.avg_pool3d(x[None], 2, 1, 1, True, False, 2),
        F.avg_pool3d(x[None], (2, 3, 3), 2, 1, True, False),
    ),
}  # fmt: skip


def sample() -> Any:
    return torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(4))


@pytest.mark.parametrize("name", CASES)
def test_as_pytorch(name: str) -> None:
    x, function = sample(), CASES[name]
    for got, want in zip(convoy.compile(function, x, cache=False)(x), function(x), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_values_for_a_mask_of_unknown_count_are_refused() -> None:
    def function(x: Any) -> Any:
        y = x.clone()
        y[MASK.unsqueeze(1).expand(2, 4, 5)] = x.reshape(-1)[:20]
        return y

    with pytest.raises(UnsupportedOp, match="mask as an index"):
        convoy.compile(function, sample(), cache=False)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_filters_standardized_by_a_batch_norm(dtype: Any) -> None:
    """As NFNets have them: the norm has a scale, and neither statistics nor an offset."""
    torch.manual_seed(0)

    class Standardized(torch.nn.Conv2d):
        def forward(self, x: Any) -> Any:
            flat, scale = self.weight.reshape(1, 8, -1), torch.full((8,), 0.2, dtype=x.dtype)
            filters = F.batch_norm(flat, None, None, weight=scale, training=True, momentum=0.0)
            return F.conv2d(x, filters.reshape_as(self.weight), self.bias)

    net, x = Standardized(4, 8, 3).eval(), torch.randn(1, 4, 6, 6)
    with torch.no_grad():
        want = net(x)
        got = convoy.compile(net.to(dtype), x.to(dtype))(x.to(dtype)).float()
    assert (got - want).norm() <= (2e-3 if dtype == torch.float16 else 2e-2) * want.norm()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_functions_that_a_rounded_step_would_lose(dtype: Any) -> None:
    """Logarithms and exponentials near zero, remainders of large numbers, lengths that overflow."""
    x = torch.tensor([3e-6, -3e-6, 0, 1e-3, 0.39, -0.41, 5, -0.999, math.inf, NAN]).to(dtype)
    y = torch.tensor([9e4, -9e4, 7.3, -7.3, 300, 2.9999998, 0.3, 5, -5, math.inf]).to(dtype)
    by = torch.tensor([0.3, 0.3, -0.3, -0.3, 0.3, 0.3, 0.7, math.inf, math.inf, 1]).to(dtype)

    def function(x: Any, y: Any, by: Any) -> tuple[Any, ...]:
        small = (
            torch.log1p(x),
            torch.expm1(x),
            torch.atanh(x),
            F.softplus(-y.abs()),
            F.logsigmoid(y),
        )
        small = *small, F.softplus(y, beta=2, threshold=1), F.softplus(x)
        return *small, y % by, torch.fmod(y, by), y % 0.3, y % -0.3, torch.hypot(y * 0.1, by)

    got = convoy.compile(function, (x, y, by), cache=False)(x, y, by)
    rounding = 3 * torch.finfo(dtype).eps
    for one, want in zip(got, function(x, y, by), strict=True):
        torch.testing.assert_close(one, want, rtol=rounding, atol=1e-9, equal_nan=True)


def test_dividing_integers_leaves_integers() -> None:
    x = torch.tensor([7, -7, 300])
    got = convoy.compile(lambda x: (x % 5, x % -5, torch.fmod(x, 5), x % 2.5), x, cache=False)(x)
    for one, want in zip(got, (x % 5, x % -5, torch.fmod(x, 5), x % 2.5), strict=True):
        torch.testing.assert_close(one, want)


def test_tensors_without_elements() -> None:
    a, b, c = torch.randn(5, 0), torch.randn(0, 4), torch.randn(5, 1)

    def function(a: Any, b: Any, c: Any) -> tuple[Any, ...]:
        return torch.addmm(c, a, b), a.sum(1), a.flip(0), torch.cat([a, c], 1)

    got = convoy.compile(function, (a, b, c), cache=False)(a, b, c)
    for one, want in zip(got, function(a, b, c), strict=True):
        torch.testing.assert_close(one, want)
