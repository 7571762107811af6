"""Two independent branches of 3x3 convolutions, 14x14 with 256 channels in float16."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
SIZE, CHANNELS = 14, 256


def weights(depth: int) -> list[list[Array]]:
    """Filters (OHWI) of both branches, scaled so that activations keep their size."""
    rng = np.random.default_rng(5)
    scale = (9 * CHANNELS) ** -0.5
    shape = (CHANNELS, 3, 3, CHANNELS)
    return [[rng.normal(0, scale, shape).astype("float16") for _ in range(depth)] for _ in "ab"]


def module(batch: int, depth: int = 1) -> Any:
    """A Relax module of two branches, each a chain of ``depth`` convolutions of an input of its
    own, NHWC in float16; returns both ends. 20 convolutions have more weights than L2 holds."""
    from tvm import relax

    shape = (batch, SIZE, SIZE, CHANNELS)
    inputs = [relax.Var(name, relax.TensorType(shape, "float16")) for name in "ab"]
    builder = relax.BlockBuilder()
    chains = weights(depth)
    with builder.function("main", inputs):
        with builder.dataflow():
            ends = list(inputs)
            for level in range(depth):  # pair by pair, as a network has its branches
                for i, chain in enumerate(chains):
                    w = relax.const(chain[level])
                    call = relax.op.nn.conv2d(
                        ends[i], w, padding=1, data_layout="NHWC", kernel_layout="OHWI"
                    )
                    ends[i] = builder.emit(call)
            result = builder.emit_output(relax.Tuple(ends))
        builder.emit_func_output(result)
    return builder.get()


def exact(batch: int, inputs: list[Array], depth: int = 1) -> list[Array]:
    """The ends of both branches in float64, each (n, 14, 14, 256)."""
    found = []
    for x, chain in zip(inputs, weights(depth), strict=True):
        y = x.astype("float64")
        for w in chain:
            padded = np.pad(y, ((0, 0), (1, 1), (1, 1), (0, 0)))
            taps = [
                padded[:, r : r + SIZE, s : s + SIZE] @ w[:, r, s].astype("float64").T
                for r in range(3)
                for s in range(3)
            ]
            y = np.sum(taps, axis=0)
        found.append(y)
    return found
