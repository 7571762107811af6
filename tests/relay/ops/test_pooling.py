"""Pooling and its gradients against numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from convoy import relay

from .. import reference
from .convolving import pairs, permuted, run, uniform


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_pools(kind: str, ceil_mode: bool, rank: int) -> None:
    x = uniform(1, 2, *(7, 6, 5)[:rank])
    size, strides, dilation = (3, 2, 2)[:rank], (2, 1, 2)[:rank], (1, 2, 1)[:rank]
    padding = (1, 0, 1, 0, 1, 0)[: 2 * rank]
    want = reference.pool(x, kind, size, strides, pairs(padding, rank), dilation, ceil_mode)
    pool = getattr(relay.nn, f"{kind}_pool{rank}d")
    got = run(lambda a: pool(a, size, strides, dilation, padding, ceil_mode=ceil_mode), x)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, 1e-5, 1e-5)


def test_avg_pool_counts_padding_where_asked() -> None:
    x = uniform(1, 2, 6, 6)
    want = reference.pool(x, "avg", (3, 3), (2, 2), pairs(1, 2), (1, 1), False, True)
    got = run(
        lambda a: relay.nn.avg_pool2d(a, 3, 2, padding=1, count_include_pad=True),
        x,
    )
    np.testing.assert_allclose(got, want, 1e-5, 1e-5)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_global_and_adaptive_pools(layout: str) -> None:
    x = uniform(2, 3, 8, 6)
    data = permuted(x, "NCHW", layout)
    for kind, reduce in (("avg", np.mean), ("max", np.max)):
        pool = getattr(relay.nn, f"global_{kind}_pool2d")
        got = run(lambda a, pool=pool: pool(a, layout), data)
        want = reduce(x, (2, 3), keepdims=True)
        np.testing.assert_allclose(permuted(got, layout, "NCHW"), want, 1e-5, 1e-5)
        adaptive = getattr(relay.nn, f"adaptive_{kind}_pool2d")
        got = run(lambda a, pool=adaptive: pool(a, (4, 2), layout), data)
        want = reduce(x.reshape(2, 3, 4, 2, 2, 3), (3, 5))
        np.testing.assert_allclose(permuted(got, layout, "NCHW"), want, 1e-5, 1e-5)


def test_pool_gradients() -> None:
    x = np.arange(36, dtype="float32").reshape(1, 1, 6, 6)
    grad = uniform(1, 1, 3, 3)
    got = run(lambda g, a: relay.nn.max_pool2d_grad(g, a, 2, 2), grad, x)
    want = np.zeros_like(x)
    want[:, :, 1::2, 1::2] = grad  # the largest of each window stands at its end
    np.testing.assert_allclose(got, want)
    got = run(lambda g, a: relay.nn.avg_pool2d_grad(g, a, 2, 2), grad, x)
    np.testing.assert_allclose(got, grad.repeat(2, 2).repeat(2, 3) / 4, 1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda x, **k: relay.nn.max_pool2d(x, (3, 2), (2, 1), padding=(1, 0, 0, 1), **k),
        lambda x, **k: relay.nn.avg_pool2d(x, 2, 2, padding=1, ceil_mode=True, **k),
        lambda x, **k: relay.nn.adaptive_avg_pool2d(x, (2, 3), **k),
        lambda x, **k: relay.nn.adaptive_max_pool2d(x, 2, **k),
        lambda x, **k: relay.nn.global_avg_pool2d(x, **k),
        lambda x, **k: relay.nn.global_max_pool2d(x, **k),
        lambda x, **k: relay.nn.upsampling(x, 2, 3, method="bilinear", **k),
        lambda x, **k: relay.image.resize2d(x, (4, 9), **k),
    ],
)
def test_channels_in_blocks(make: Callable[..., relay.Expr]) -> None:
    """Layouts that AlterOpLayout leaves behind a convolution."""
    x = uniform(1, 8, 7, 6)

    def blocked(data: relay.Expr) -> relay.Expr:
        split = relay.layout_transform(data, "NCHW", "NCHW4c")
        return relay.layout_transform(make(split, layout="NCHW4c"), "NCHW4c", "NCHW")

    np.testing.assert_allclose(run(blocked, x), run(make, x), 1e-6, 1e-6)


@pytest.mark.parametrize("kind", ["max", "avg"])
def test_a_partial_window_begins_in_the_data(kind: str) -> None:
    """Of 7 rows in windows of 2 by 2, padded by 1, the fifth would begin behind the data."""
    x = uniform(1, 2, 7, 6)
    want = reference.pool(x, kind, (2, 2), (2, 2), pairs(1, 2), (1, 1), True)[:, :, :4]
    pool = getattr(relay.nn, f"{kind}_pool2d")
    a = relay.var("a", shape=x.shape)
    pooled = pool(a, 2, 2, padding=1, ceil_mode=True)
    assert relay.testing.run_infer_type(pooled).checked_type.concrete_shape == (1, 2, 4, 4)
    got = run(lambda a: relay.exp(pool(a, 2, 2, padding=1, ceil_mode=True)), x)
    np.testing.assert_allclose(got, np.exp(want), 1e-5, 1e-5)
