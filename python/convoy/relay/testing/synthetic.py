"""A small network with the parts of large ones: dense, convolution, batch norm, softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.relay.ast import Expr, Function
from convoy.relay.builder import var
from convoy.relay.module import IRModule
from convoy.relay.op import nn, tensor
from convoy.relay.testing.init import Constant, create_workload
from convoy.relay.testing.layers import batch_norm_infer
from convoy.relay.visit import free_vars


def _block(data: Expr, like: Expr, prefix: tuple[str, str], sizes: Any, wtype: str) -> Expr:
    """Return dense and convolution of the data, added."""
    channels, width = sizes
    weight = var(prefix[0], shape=(width, width), dtype=wtype)
    dense = nn.relu(nn.dense(tensor.reshape(data, (-1, width)), weight))
    kernel = var(prefix[1], shape=(channels, channels, 3, 3), dtype=wtype)
    convolved = nn.softmax(nn.conv2d(data, kernel, padding=1, kernel_size=3))
    return tensor.add(tensor.reshape_like(dense, like), convolved)


def get_net(
    input_shape: Sequence[int] = (1, 3, 24, 12), dtype: str = "float32", wtype: str | None = None
) -> Function:
    """Build the network.

    Args:
        input_shape: NCHW.
        dtype: Of the input.
        wtype: Of the weights; None is `dtype`.
    """
    kind = wtype or dtype
    sizes = (input_shape[1], input_shape[3])
    data = var("data", shape=input_shape, dtype=dtype)
    first = _block(data, data, ("dense_weight", "conv_weight"), sizes, kind)
    biased = nn.bias_add(first, var("bias", shape=(input_shape[1],), dtype=kind))
    normalized = batch_norm_infer(biased, name="batch_norm")
    out = _block(normalized, data, ("dense2_weight", "conv2_weight"), sizes, kind)
    return Function(free_vars(out), out)


def get_workload(
    input_shape: Sequence[int] = (1, 3, 24, 12), dtype: str = "float32", wtype: str | None = None
) -> tuple[IRModule, dict[str, Any]]:
    """Build the module and its parameters; arguments are those of `get_net`."""
    return create_workload(get_net(input_shape, dtype, wtype), initializer=Constant(1))
