"""The generator of DCGAN (Radford et al. 2015): transposed convolutions from a random vector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.relay.ast import Expr, Function
from convoy.relay.builder import var
from convoy.relay.module import IRModule
from convoy.relay.op import nn, tensor
from convoy.relay.testing import layers
from convoy.relay.testing.init import create_workload
from convoy.relay.visit import free_vars

_KERNEL = 4
_LAYERS = 4


def get_net(
    batch_size: int,
    random_len: int = 100,
    oshape: Sequence[int] = (3, 64, 64),
    ngf: int = 128,
    code: Any = None,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> Function:
    """Make the generator.

    Args:
        random_len: Length of the random vector.
        oshape: The shape of the image, in `layout` without the batch; (3, 64, 64) or (64, 64, 3).
        ngf: Channels before the last layer.

    Raises:
        ValueError: Another size of image.
    """
    if tuple(oshape) != ((3, 64, 64) if layout == "NCHW" else (64, 64, 3)):
        raise ValueError(f"images of {tuple(oshape)} in {layout}; 3 x 64 x 64 can be made")
    axis = layout.index("C")
    kernel_layout = "IOHW" if layout == "NCHW" else "HWIO"
    channels = ngf * 2 ** (_LAYERS - 1)
    data = var("data", shape=(batch_size, random_len), dtype=dtype)
    body: Expr = nn.dense(data, var("dense_weight"), units=channels * 4 * 4)
    body = tensor.reshape(body, (-1, channels, 4, 4) if layout == "NCHW" else (-1, 4, 4, channels))
    body = nn.relu(body)
    for layer in range(2, 2 + _LAYERS):
        last = layer == 1 + _LAYERS
        channels = 3 if last else channels // 2
        # (n - 1) * 2 + 4 - 2 * 1 = 2 * n
        body = layers.conv2d_transpose(
            body,
            name=f"g{layer}_conv",
            channels=channels,
            kernel_size=(_KERNEL, _KERNEL),
            strides=(2, 2),
            padding=(1, 1),
            data_layout=layout,
            kernel_layout=kernel_layout,
        )
        if not last:
            body = nn.relu(layers.batch_norm_infer(body, axis=axis, name=f"g{layer}_batch_norm"))
    net = tensor.tanh(body)
    return Function(free_vars(net), net)


def get_workload(
    batch_size: int,
    oshape: Sequence[int] = (3, 64, 64),
    ngf: int = 128,
    random_len: int = 100,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> tuple[IRModule, dict[str, Any]]:
    """Make a module and random parameters; see `get_net`."""
    net = get_net(batch_size, random_len, oshape, ngf, layout=layout, dtype=dtype)
    return create_workload(net)
