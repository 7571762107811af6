"""Random Relax networks of the layers that importers produce, float32 and NCHW."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax

from .growing import Growing, shape
from .image_layers import IMAGE_LAYERS
from .row_layers import ROW_LAYERS


def random_module(seeds: Sequence[int]) -> tuple[tvm.IRModule, list[int]]:
    """A module with a network for each seed, side by side, and each result's network."""
    builder, results, owners = relax.BlockBuilder(), [], []
    growing = [Growing(builder, seed) for seed in seeds]
    params = [g.input(f"x{i}") for i, g in enumerate(growing)]
    with builder.function("main", params):
        with builder.dataflow():
            for i, (network, x) in enumerate(zip(growing, params, strict=True)):
                found = grow(network, x, network.rng.randint(3, 12))
                results += found
                owners += [i] * len(found)
            output = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(output)
    return builder.get(), owners


def grow(net: Growing, x: relax.Var, layers: int) -> list[relax.Var]:
    """Layers behind ``x``; the last value, and now and then some of those before it."""
    images, rows, results = [x], [], []
    for _ in range(layers):
        layer = net.rng.choice(ROW_LAYERS if rows and net.rng.random() < 0.4 else IMAGE_LAYERS)
        recent = images[-net.rng.choice((1, 1, 2, 4)) :]
        value = layer(net, net.rng.choice(rows if layer in ROW_LAYERS else recent), images)
        (rows if len(shape(value)) == 2 else images).append(value)
        if net.rng.random() < 0.1:
            results.append(value)
    results += [images[-1], *rows[-1:]]
    unique = {value for value in results if not value.same_as(x)}
    return sorted(unique, key=lambda value: value.name) or [net.activate(x)]
