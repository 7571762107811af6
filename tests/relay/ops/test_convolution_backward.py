"""The gradient of the weight against numpy, and both gradients as workloads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from convoy import relay

from .. import reference
from .convolving import pairs, permuted, run, uniform


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


def test_gradients_are_workloads_of_their_own() -> None:
    """What backends see of a module with both gradients, NHWC or not."""
    from convoy.normalize.normal_form import normalize
    from convoy.partition.subgraphs import find_subgraphs

    dy, x = relay.var("dy", shape=(2, 8, 4, 4)), relay.var("x", shape=(2, 16, 8, 8))
    w = relay.var("w", shape=(8, 16, 3, 3))
    common = {"strides": (2, 2), "padding": (1, 1), "kernel_size": (3, 3)}
    dx = relay.nn.conv2d_transpose(dy, w, channels=16, output_padding=(1, 1), **common)
    dw = relay.nn.conv2d_backward_weight(dy, x, channels=8, **common)
    mod = relay.IRModule.from_expr(relay.Function([dy, x, w], relay.Tuple([dx, dw])))
    normal = normalize(relay.to_relax(mod), dtype="float32")
    found = [subgraph.workload for subgraph in find_subgraphs(normal)]
    assert [(f.op, f.h, f.c, f.k, f.r, f.stride) for f in found] == [
        ("dgrad", 8, 16, 8, 3, (2, 2)),
        ("wgrad", 8, 16, 8, 3, (2, 2)),
    ]
