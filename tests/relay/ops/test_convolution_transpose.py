"""Transposed convolutions against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from convoy import relay

from .. import reference
from .convolving import pairs, permuted, run, uniform


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
