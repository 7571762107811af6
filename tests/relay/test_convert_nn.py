"""Convolutions and pools against numpy, over layouts, strides, padding, dilation and groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from convoy import relay
from convoy.errors import UnsupportedLayout, UnsupportedOp

from . import reference
from .running import run_stock

RNG = np.random.default_rng(1)
AXES = {1: "W", 2: "HW", 3: "DHW"}


def uniform(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype("float32")


def permuted(x: np.ndarray, source: str, target: str) -> np.ndarray:
    return np.ascontiguousarray(x.transpose([source.index(a) for a in target]))


def run(build: Any, *arrays: np.ndarray) -> np.ndarray:
    params = [relay.var(f"p{i}", shape=a.shape, dtype=str(a.dtype)) for i, a in enumerate(arrays)]
    return run_stock(relay.Function(params, build(*params)), *arrays)[0]


def pairs(padding: Any, rank: int) -> list[tuple[int, int]]:
    values = [padding] * 2 * rank if isinstance(padding, int) else list(padding)
    values = values * 2 if len(values) == rank else values
    return list(zip(values[:rank], values[rank:], strict=True))


@pytest.mark.parametrize(
    ("layout", "kernel_layout"),
    [("NCHW", "OIHW"), ("NHWC", "HWIO"), ("NHWC", "OHWI"), ("HWCN", "HWIO"), ("NHWC", "OIHW")],
)
def test_conv2d_layouts(layout: str, kernel_layout: str) -> None:
    x, w = uniform(2, 4, 7, 6), uniform(5, 4, 3, 2)
    want = reference.conv(x, w, (2, 1), [(1, 0), (0, 2)], (1, 2))
    got = run(
        lambda a, b: relay.nn.conv2d(
            a,
            b,
            strides=(2, 1),
            padding=(1, 0, 0, 2),
            dilation=(1, 2),
            data_layout=layout,
            kernel_layout=kernel_layout,
        ),
        permuted(x, "NCHW", layout),
        permuted(w, "OIHW", kernel_layout),
    )
    np.testing.assert_allclose(permuted(got, layout, "NCHW"), want, 1e-5, 1e-5)


@pytest.mark.parametrize(("groups", "out"), [(2, 6), (4, 4), (4, 8)])
def test_conv2d_groups(groups: int, out: int) -> None:
    x, w = uniform(1, 4, 6, 6), uniform(out, 4 // groups, 3, 3)
    want = reference.conv(x, w, (1, 1), pairs(1, 2), (1, 1), groups)
    got = run(lambda a, b: relay.nn.conv2d(a, b, padding=1, groups=groups), x, w)
    np.testing.assert_allclose(got, want, 1e-5, 1e-5)


def test_conv2d_out_layout() -> None:
    x, w = uniform(1, 4, 5, 5), uniform(3, 4, 1, 1)
    got = run(lambda a, b: relay.nn.conv2d(a, b, out_layout="NHWC"), x, w)
    want = reference.conv(x, w, (1, 1), pairs(0, 2), (1, 1)).transpose(0, 2, 3, 1)
    np.testing.assert_allclose(got, want, 1e-5, 1e-5)


def test_conv2d_nchwc() -> None:
    """Data and kernel in blocks, as AlterOpLayout leaves them."""
    x, w = uniform(1, 8, 5, 5), uniform(6, 8, 3, 3)
    want = reference.conv(x, w, (1, 1), pairs(1, 2), (1, 1))
    got = run(
        lambda a, b: relay.nn.contrib_conv2d_nchwc(
            a,
            b,
            padding=1,
            channels=6,
            kernel_size=3,
            data_layout="NCHW4c",
            kernel_layout="OIHW4i3o",
            out_layout="NCHW3c",
        ),
        x.reshape(1, 2, 4, 5, 5).transpose(0, 1, 3, 4, 2).copy(),
        w.reshape(2, 3, 2, 4, 3, 3).transpose(0, 2, 4, 5, 3, 1).copy(),
    )
    assert got.shape == (1, 2, 5, 5, 3)
    np.testing.assert_allclose(got.transpose(0, 1, 4, 2, 3).reshape(1, 6, 5, 5), want, 1e-5, 1e-5)


def test_conv1d_and_conv3d() -> None:
    x, w = uniform(2, 3, 9), uniform(4, 3, 3)
    got = run(lambda a, b: relay.nn.conv1d(a, b, strides=2, padding=(1, 2)), x, w)
    np.testing.assert_allclose(got, reference.conv(x, w, (2,), [(1, 2)], (1,)), 1e-5, 1e-5)
    x, w = uniform(1, 2, 4, 5, 4), uniform(3, 2, 2, 3, 2)
    got = run(lambda a, b: relay.nn.conv3d(a, b, padding=(0, 1, 1)), x, w)
    want = reference.conv(x, w, (1, 1, 1), [(0, 0), (1, 1), (1, 1)], (1, 1, 1))
    np.testing.assert_allclose(got, want, 1e-5, 1e-5)


@pytest.mark.parametrize(
    ("strides", "padding", "extra", "dilation", "groups"),
    [
        ((1, 1), 1, (0, 0), (1, 1), 1),
        ((2, 2), 1, (1, 1), (1, 1), 1),
        ((2, 3), (0, 1, 1, 0), (0, 2), (1, 1), 1),
        ((2, 2), 1, (1, 0), (2, 2), 1),
        ((2, 2), 0, (0, 1), (1, 1), 2),
    ],
)
def test_conv2d_transpose(
    strides: Any, padding: Any, extra: Any, dilation: Any, groups: int
) -> None:
    x, w = uniform(2, 4, 4, 5), uniform(4, 3, 3, 3)
    want = reference.conv_transpose(x, w, strides, pairs(padding, 2), extra, dilation, groups)
    attrs = {"strides": strides, "padding": padding, "output_padding": extra}
    got = run(
        lambda a, b: relay.nn.conv2d_transpose(a, b, dilation=dilation, groups=groups, **attrs),
        x,
        w,
    )
    np.testing.assert_allclose(got, want, 1e-5, 1e-5)


@pytest.mark.parametrize(
    ("layout", "kernel_layout"),
    [("NCHW", "OIHW"), ("NHWC", "IHWO"), ("NHWC", "HWOI"), ("NHWC", "HWIO")],
)
def test_conv2d_transpose_layouts(layout: str, kernel_layout: str) -> None:
    x, w = uniform(1, 4, 4, 5), uniform(4, 3, 3, 3)
    want = reference.conv_transpose(x, w, (2, 2), pairs(1, 2), (1, 1), (1, 1))
    attrs = {"strides": 2, "padding": 1, "output_padding": 1}
    got = run(
        lambda a, b: relay.nn.conv2d_transpose(
            a, b, data_layout=layout, kernel_layout=kernel_layout, **attrs
        ),
        permuted(x, "NCHW", layout),
        permuted(w, "IOHW", kernel_layout),
    )
    np.testing.assert_allclose(permuted(got, layout, "NCHW"), want, 1e-5, 1e-5)


def test_conv1d_and_conv3d_transpose() -> None:
    x, w = uniform(1, 3, 5), uniform(3, 2, 4)
    got = run(lambda a, b: relay.nn.conv1d_transpose(a, b, strides=(2,), padding=(1,)), x, w)
    want = reference.conv_transpose(x, w, (2,), [(1, 1)], (0,), (1,))
    np.testing.assert_allclose(got, want, 1e-5, 1e-5)
    x, w = uniform(1, 2, 3, 3, 3), uniform(2, 2, 2, 2, 2)
    got = run(lambda a, b: relay.nn.conv3d_transpose(a, b, strides=(2, 2, 2)), x, w)
    want = reference.conv_transpose(x, w, (2, 2, 2), [(0, 0)] * 3, (0, 0, 0), (1, 1, 1))
    np.testing.assert_allclose(got, want, 1e-5, 1e-5)


@pytest.mark.parametrize("layouts", [("NCHW", "NCHW", "OIHW"), ("NHWC", "NHWC", "OHWI")])
@pytest.mark.parametrize(
    ("strides", "padding", "dilation", "groups", "size"),
    [
        ((1, 1), 1, (1, 1), 1, 7),
        ((2, 2), 1, (1, 1), 1, 8),  # the last row of the data is in no window
        ((2, 1), (1, 0, 0, 1), (1, 2), 1, 7),
        ((1, 1), 1, (1, 1), 2, 7),
        ((2, 2), 1, (1, 1), 4, 8),
    ],
)
def test_conv2d_backward_weight(
    layouts: tuple[str, str, str], strides: Any, padding: Any, dilation: Any, groups: int, size: int
) -> None:
    """The derivative of sum(conv(x, w) * grad) by w, which is linear in w."""
    x, w = uniform(2, 4, size, size), uniform(8, 4 // groups, 3, 3)
    out = reference.conv(x, w, strides, pairs(padding, 2), dilation, groups)
    grad = uniform(*out.shape)
    want = np.zeros_like(w)
    for index in np.ndindex(*w.shape):
        one = np.zeros_like(w)
        one[index] = 1
        want[index] = (
            reference.conv(x, one, strides, pairs(padding, 2), dilation, groups) * grad
        ).sum()
    g_layout, d_layout, k_layout = layouts
    got = run(
        lambda a, b: relay.nn.conv2d_backward_weight(
            a,
            b,
            strides=strides,
            padding=padding,
            dilation=dilation,
            groups=groups,
            channels=8,
            kernel_size=(3, 3),
            grad_layout=g_layout,
            data_layout=d_layout,
            kernel_layout=k_layout,
        ),
        permuted(grad, "NCHW", g_layout),
        permuted(x, "NCHW", d_layout),
    )
    np.testing.assert_allclose(permuted(got, k_layout, "OIHW"), want, 1e-4, 1e-4)


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


def test_deformable_without_offsets_is_a_convolution() -> None:
    x, w = uniform(1, 2, 5, 5), uniform(3, 2, 3, 3)
    offset = np.zeros((1, 18, 5, 5), "float32")
    got = run(lambda a, o, b: relay.nn.deformable_conv2d(a, o, b, padding=1), x, offset, w)
    np.testing.assert_allclose(got, reference.conv(x, w, (1, 1), pairs(1, 2), (1, 1)), 1e-5, 1e-5)


class TestRefusals:
    def test_layout(self) -> None:
        x, w = relay.var("x", shape=(1, 4, 5, 5)), relay.var("w", shape=(3, 4, 1, 1))
        with pytest.raises(UnsupportedLayout, match="NCXW"):
            relay.to_relax(relay.Function([x, w], relay.nn.conv2d(x, w, data_layout="NCXW")))

    def test_transposed_in_blocks(self) -> None:
        x, w = relay.var("x", shape=(1, 2, 5, 5, 2)), relay.var("w", shape=(4, 3, 1, 1))
        call = relay.nn.conv2d_transpose(x, w, data_layout="NCHW2c")
        with pytest.raises((UnsupportedOp, UnsupportedLayout)):
            relay.to_relax(relay.Function([x, w], call))


def test_gradients_are_workloads_of_their_own() -> None:
    """What backends see of a module with both gradients, NHWC or not."""
    from convoy.normalize.normal_form import normalize
    from convoy.partition.subgraphs import find_regions

    dy, x = relay.var("dy", shape=(2, 8, 4, 4)), relay.var("x", shape=(2, 16, 8, 8))
    w = relay.var("w", shape=(8, 16, 3, 3))
    common = {"strides": (2, 2), "padding": (1, 1), "kernel_size": (3, 3)}
    dx = relay.nn.conv2d_transpose(dy, w, channels=16, output_padding=(1, 1), **common)
    dw = relay.nn.conv2d_backward_weight(dy, x, channels=8, **common)
    mod = relay.IRModule.from_expr(relay.Function([dy, x, w], relay.Tuple([dx, dw])))
    normal = normalize(relay.to_relax(mod), dtype="float32")
    found = [region.workload for region in find_regions(normal)]
    assert [(f.op, f.h, f.c, f.k, f.r, f.stride) for f in found] == [
        ("dgrad", 8, 16, 8, 3, (2, 2)),
        ("wgrad", 8, 16, 8, 3, (2, 2)),
    ]
