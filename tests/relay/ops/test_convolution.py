"""Convolutions against numpy, over layouts, strides, padding, dilation and groups."""

from __future__ import annotations

import numpy as np
import pytest

from convoy import relay
from convoy.errors import UnsupportedLayout, UnsupportedOp

from .. import reference
from .convolving import pairs, permuted, run, uniform


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


@pytest.mark.parametrize(("groups", "out"), [(2, 6), (4, 4), (4, 8), (2, 2)])
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


def test_deformable_without_offsets_is_a_convolution() -> None:
    x, w = uniform(1, 2, 5, 5), uniform(3, 2, 3, 3)
    offset = np.zeros((1, 18, 5, 5), "float32")
    got = run(lambda a, o, b: relay.nn.deformable_conv2d(a, o, b, padding=1), x, offset, w)
    np.testing.assert_allclose(got, reference.conv(x, w, (1, 1), pairs(1, 2), (1, 1)), 1e-5, 1e-5)


def test_deformable_with_channels_last() -> None:
    x, w = uniform(1, 2, 5, 6), uniform(3, 2, 3, 3)
    offset = uniform(1, 36, 5, 6)
    attrs = {"padding": 1, "deformable_groups": 2}
    want = run(lambda a, o, b: relay.nn.deformable_conv2d(a, o, b, **attrs), x, offset, w)
    last = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    got = run(
        lambda a, o, b: relay.nn.deformable_conv2d(a, o, b, **attrs, **last),
        x.transpose(0, 2, 3, 1), offset.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0),
    )  # fmt: skip
    np.testing.assert_allclose(got.transpose(0, 3, 1, 2), want, 1e-5, 1e-5)


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
