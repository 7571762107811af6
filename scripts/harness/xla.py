"""XLA through JAX: a ResNet-50 (v1.5) in half precision and NHWC, batch norm folded."""

from __future__ import annotations

import os
from typing import Any

from .timing import Run, Timing, measure

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def resnet50(batch: int) -> Timing:
    """Time one jitted inference; weights are arguments, as a served model has them."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    rng = np.random.default_rng(0)
    weights: list[tuple[object, object]] = []

    def make(r: int, c: int, k: int) -> int:
        scale = (2.0 / (r * r * c)) ** 0.5
        filt = rng.normal(0, scale, (r, r, c, k))
        bias = rng.normal(0, 0.1, k)
        weights.append((jnp.asarray(filt, jnp.float16), jnp.asarray(bias, jnp.float16)))
        return len(weights) - 1

    def conv(params: Any, i: int, x: Any, stride: int = 1) -> Any:
        filt, bias = params[i]
        pad = filt.shape[0] // 2
        y = jax.lax.conv_general_dilated(
            x, filt, (stride, stride), [(pad, pad)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return y + bias

    stem = make(7, 3, 64)
    layers, channels = [], 64
    for stage, (width, depth) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for unit in range(depth):
            stride = 2 if stage and not unit else 1
            ids = [make(1, channels, width), make(3, width, width), make(1, width, 4 * width)]
            skip = make(1, channels, 4 * width) if unit == 0 else None
            layers.append((ids, skip, stride))
            channels = 4 * width
    head = make(1, channels, 1000)

    def forward(params: Any, x: Any) -> Any:
        x = jax.nn.relu(conv(params, stem, x, 2))
        x = jax.lax.reduce_window(
            x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0))
        )
        for ids, skip, stride in layers:
            y = jax.nn.relu(conv(params, ids[0], x))
            y = jax.nn.relu(conv(params, ids[1], y, stride))
            y = conv(params, ids[2], y)
            x = jax.nn.relu(y + (x if skip is None else conv(params, skip, x, stride)))
        x = x.mean((1, 2), keepdims=True)
        return conv(params, head, x)

    run = jax.jit(forward)
    x = jnp.asarray(rng.normal(size=(batch, 224, 224, 3)), jnp.float16)
    last = run(weights, x)
    last.block_until_ready()
    state = {"last": last}

    def call() -> None:
        state["last"] = run(weights, x)

    return measure(Run(call, lambda: state["last"].block_until_ready()))
