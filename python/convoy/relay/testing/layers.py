"""Layers that make their own parameters, named after the layer."""

from __future__ import annotations

from typing import Any

from convoy.relay.ast import Expr
from convoy.relay.builder import var
from convoy.relay.op import nn


def batch_norm_infer(
    data: Expr,
    gamma: Expr | None = None,
    beta: Expr | None = None,
    moving_mean: Expr | None = None,
    moving_var: Expr | None = None,
    name: str = "",
    **attrs: Any,
) -> Expr:
    """Normalize by the batch; return the result alone."""

    def part(given: Expr | None, what: str) -> Expr:
        return var(f"{name}_{what}") if given is None else given

    return nn.batch_norm(
        data,
        part(gamma, "gamma"),
        part(beta, "beta"),
        part(moving_mean, "moving_mean"),
        part(moving_var, "moving_var"),
        **attrs,
    )[0]


def conv2d(data: Expr, weight: Expr | None = None, name: str = "", **attrs: Any) -> Expr:
    """Add a convolution over two axes."""
    weight = weight if weight is not None else var(f"{name}_weight")
    return nn.conv2d(data, weight, **attrs)


def conv3d(data: Expr, weight: Expr | None = None, name: str = "", **attrs: Any) -> Expr:
    """Add a convolution over three axes."""
    weight = weight if weight is not None else var(f"{name}_weight")
    return nn.conv3d(data, weight, **attrs)


def conv2d_transpose(data: Expr, weight: Expr | None = None, name: str = "", **attrs: Any) -> Expr:
    """Add a transposed convolution."""
    weight = weight if weight is not None else var(f"{name}_weight")
    return nn.conv2d_transpose(data, weight, **attrs)


def dense_add_bias(
    data: Expr,
    weight: Expr | None = None,
    bias: Expr | None = None,
    units: int | None = None,
    name: str = "",
    **attrs: Any,
) -> Expr:
    """Add a dense layer with a bias."""
    weight = weight if weight is not None else var(f"{name}_weight")
    bias = bias if bias is not None else var(f"{name}_bias")
    return nn.bias_add(nn.dense(data, weight, units, **attrs), bias, axis=-1)


def conv_kernel_layout(data_layout: str, is_depthwise: bool = False) -> str:
    """Return the kernel layout that goes with a data layout."""
    if len(data_layout) == 5:
        return {"NCDHW": "OIDHW", "NDHWC": "DHWIO"}[data_layout]
    return {"NCHW": "OIHW", "NHWC": "HWOI" if is_depthwise else "HWIO"}[data_layout]
