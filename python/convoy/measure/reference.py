"""Reference results of a workload in float64: all of them (small sizes) or samples.

Operands are given as a block of values that is repeated over their elements, so that a reference of
two thousand outputs needs no copy of the operands, however large they are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ..ir.workload import Workload
from . import attention_reference as attention
from . import bottleneck_reference as bottlenecks
from . import matmul_reference as batched
from . import squeeze_excite_reference as squeeze_excite
from .convolution_reference import (
    Array,
    Expanded,
    Pixels,
    depthwise_wgrad,
    dgrad,
    fprop,
    pixel_number,
    pooled,
    wgrad,
)
from .convolution_reference import Operand as Operand

#: Outputs that a sampled reference covers.
SAMPLES = 2048
# Filter gradients that sum over more pixels than this have fewer samples.
_LONG_SUM = 1 << 17


@dataclass(frozen=True)
class Sample:
    """Exact values of runs of neighbouring outputs: ``values[i, j]`` belongs to flat element
    ``starts[i] + j`` of output ``name``."""

    name: str
    starts: Array
    values: Array

    @property
    def run(self) -> int:
        return int(self.values.shape[1])


def sample(
    workload: Workload, operands: Mapping[str, Operand], rng: np.random.Generator
) -> list[Sample]:
    """Compute about :data:`SAMPLES` elements of each output at random places, including corners of
    the first and the last image.

    ``rng`` is a numpy Generator.
    """
    if workload.op == "attention":
        return [Sample("o", *attention.sample(workload, operands, rng))]
    if workload.is_batched:
        return [Sample("y", *batched.sample(workload, operands, rng, SAMPLES))]
    if workload.op == "dgrad":
        return _sample_each(workload, operands, {"dx": dgrad}, rng)
    if workload.op == "wgrad":
        return [_sample_wgrad(workload, operands, rng)]
    if workload.bottleneck is not None:
        return _sample_each(workload, operands, bottlenecks.RESULTS, rng)
    if workload.squeeze_excite is not None:
        operands = squeeze_excite.with_gates(workload, operands)
    return _sample_fprop(workload, operands, rng)


def full(workload: Workload, operands: Mapping[str, Array]) -> list[Array]:
    """Compute all outputs from whole operands. For small workloads: time and memory are
    proportional to the number of multiplications."""
    functions = {name: Operand(array) for name, array in operands.items()}
    shapes = {name: shape for name, shape, _ in workload.operand_shapes()}
    if workload.op == "attention":
        return [attention.full(workload, functions)]
    if workload.is_batched:
        return [batched.full(workload, functions)]
    if workload.op == "dgrad":
        (dx,) = _whole_pixels(
            _volume(shapes["dx"]), lambda at, c: dgrad(workload, functions, at, c)
        )
        return [dx.reshape(shapes["dx"])]
    if workload.op == "wgrad":
        return [_whole_filter(workload, functions)]
    if workload.bottleneck is not None:
        return bottlenecks.full(workload, functions)
    if workload.squeeze_excite is not None:
        functions = squeeze_excite.with_gates(workload, functions)
    _, out, _ = workload.operand_shapes()[-1]  # y and y2 have one shape
    outputs = _whole_pixels(_volume(out), lambda at, k: _forward(workload, functions, at, k))
    return [output.reshape(out) for output in outputs]


def _forward(
    workload: Workload, operands: Mapping[str, Operand], at: Pixels, k: Array
) -> list[Array]:
    """Outputs of a forward convolution, of the max-pool behind it, of a depthwise convolution
    behind an expansion, or of an image times gates, which are among the operands."""
    if workload.squeeze_excite is not None:
        return [squeeze_excite.scaled(workload, operands, at, k)]
    if workload.expansion is not None:
        operands = {**operands, "x": Expanded(workload, operands)}
    if workload.stem is not None and workload.stem.pools:
        return [pooled(workload, operands, at, k)]
    return fprop(workload, operands, at, k)


def _volume(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a matrix, of images or of volumes as one of volumes."""
    return (shape[0], *(1,) * (5 - len(shape)), *shape[1:])


def _whole_pixels(
    shape: tuple[int, ...], compute: Callable[..., Array | list[Array]]
) -> list[Array]:
    """Compute all elements of an NDHWC output, one channel at a time because groups differ."""
    *outer, channels = shape
    pixels = np.indices(outer).reshape(len(outer), -1)
    columns = [compute(tuple(pixels), np.array([c])) for c in range(channels)]
    columns = [column if isinstance(column, list) else [column] for column in columns]
    outputs = [np.concatenate(parts, axis=1) for parts in zip(*columns, strict=True)]
    return [output.reshape(shape) for output in outputs]


def _whole_filter(workload: Workload, operands: Mapping[str, Operand]) -> Array:
    per_group = workload.c // workload.groups
    shape = (workload.k, workload.r, workload.s, per_group)
    result = np.empty(shape)
    for k in range(workload.k):
        for r in range(workload.r):
            for s in range(workload.s):
                channels = np.arange(per_group)
                result[k, r, s] = wgrad(workload, operands, np.array([k]), r, s, channels)[0]
    return result


def _runs(channels: int, rng: np.random.Generator) -> list[Array]:
    """Runs of neighbouring channels, 128 channels in all where there are as many; the first and the
    last are always among them."""
    length = min(16, channels)
    count = min(128 // length, channels - length + 1)
    starts = {0, channels - length}
    while len(starts) < count:
        starts.add(int(rng.integers(channels - length + 1)))
    return [np.arange(start, start + length) for start in sorted(starts)]


def _pixels(count: int, n: int, d: int, h: int, w: int, rng: np.random.Generator) -> Pixels:
    """Random pixels; the first image's first and the last image's last are always among them."""
    rows, columns = rng.integers(0, h, count), rng.integers(0, w, count)
    images, planes = rng.integers(0, n, count), rng.integers(0, d, count)
    corners = [
        (0, 0, 0, 0), (n - 1, d - 1, h - 1, w - 1), (0, d - 1, h - 1, 0), (n - 1, 0, 0, w - 1),
    ]  # fmt: skip
    for i, corner in enumerate(corners[:count]):
        images[i], planes[i], rows[i], columns[i] = corner
    return images, planes, rows, columns


def _sample_fprop(
    workload: Workload, operands: Mapping[str, Operand], rng: np.random.Generator
) -> list[Sample]:
    outputs = workload.operand_shapes()[-workload.num_outputs :]
    shape = _volume(outputs[0][1])  # y and y2 have one shape
    starts, values = _sample_pixels(shape, lambda at, k: _forward(workload, operands, at, k), rng)
    return [
        Sample(name, starts, parts) for (name, _, _), parts in zip(outputs, values, strict=True)
    ]


def _sample_each(
    workload: Workload,
    operands: Mapping[str, Operand],
    results: Mapping[str, Callable[..., Array]],
    rng: np.random.Generator,
) -> list[Sample]:
    """Sample outputs of different shapes, each by the function of its name in ``results``."""
    found = []
    for name, shape, _ in workload.operand_shapes()[-workload.num_outputs :]:
        compute = functools.partial(_listed, results[name], workload, operands)
        starts, (values,) = _sample_pixels(_volume(shape), compute, rng)
        found.append(Sample(name, starts, values))
    return found


def _listed(compute: Callable[..., Array], *arguments: object) -> list[Array]:
    return [compute(*arguments)]


def _sample_pixels(
    shape: tuple[int, ...],
    compute: Callable[[Pixels, Array], list[Array]],
    rng: np.random.Generator,
) -> tuple[Array, list[Array]]:
    """Runs of channels at random pixels of NDHWC tensors of one shape: where they start, and the
    values of each tensor."""
    *outer, channels = shape
    starts: list[Array] = []
    values: list[list[Array]] = []
    runs = _runs(channels, rng)
    per_run = math.ceil(SAMPLES / (len(runs) * len(runs[0])))
    for k in runs:
        n, o, p, q = outer
        at = _pixels(per_run, n, o, p, q, rng)
        starts.append(pixel_number(at, (o, p, q)) * channels + k[0])
        values.append(compute(at, k))
    columns = zip(*values, strict=True)
    return np.concatenate(starts), [np.concatenate(parts) for parts in columns]


def _sample_wgrad(
    workload: Workload, operands: Mapping[str, Operand], rng: np.random.Generator
) -> Sample:
    """Blocks of filters x channels at a few taps, since each output sums over all pixels."""
    wl, cg, kg = workload, workload.c // workload.groups, workload.k // workload.groups
    if cg == kg == 1:
        return _sample_depthwise_wgrad(workload, operands, rng)
    pixels = wl.n * wl.p * wl.q
    short = pixels < _LONG_SUM
    length, filters = min(32 if short else 16, cg), min(64 if short else 32, kg)
    blocks = math.ceil(SAMPLES / (length * filters))
    # No fewer samples than one block, no more than a few tenths of a second of gathering.
    affordable = max(1, (1 << 24) // (pixels * (length + filters)))
    blocks = min(blocks, affordable, wl.groups * wl.r * wl.s * (cg - length + 1))
    starts, values = [], []
    for block in range(blocks):
        group, c0 = int(rng.integers(wl.groups)), int(rng.integers(cg - length + 1))
        r, s = int(rng.integers(wl.r)), int(rng.integers(wl.s))
        k0 = int(rng.integers(kg - filters + 1))
        if block == 0:  # the last filter's last tap
            group, k0, c0, r, s = wl.groups - 1, kg - filters, cg - length, wl.r - 1, wl.s - 1
        k = group * kg + k0 + np.arange(filters)
        starts.append(((k * wl.r + r) * wl.s + s) * cg + c0)
        values.append(wgrad(wl, operands, k, r, s, c0 + np.arange(length)))
    return Sample("dw", np.concatenate(starts), np.concatenate(values))


def _sample_depthwise_wgrad(
    workload: Workload, operands: Mapping[str, Operand], rng: np.random.Generator
) -> Sample:
    """Runs of channels at a few taps: gathered together they take as long as one channel."""
    wl = workload
    runs = _runs(wl.k, rng)
    affordable = max(1, (1 << 24) // (wl.n * wl.p * wl.q * 2 * len(runs[0])))
    starts, values = [], []
    for i, channels in enumerate(runs[-affordable:][::-1]):
        r, s = (wl.r - 1, wl.s - 1) if i == 0 else (rng.integers(wl.r), rng.integers(wl.s))
        starts.append((channels * wl.r + r) * wl.s + s)
        values.append(depthwise_wgrad(wl, operands, int(r), int(s), channels)[:, None])
    return Sample("dw", np.concatenate(starts), np.concatenate(values))
