"""The kernel against float64, on the host: index arithmetic, tails, masks, layouts."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from convoy.backends.kernels.attention.family import attention_backend
from convoy.backends.kernels.attention.kernel import TILES, AttentionKernel
from convoy.ir.device import Device
from convoy.ir.workload import Workload
from convoy.measure import reference
from convoy.measure.problem import tolerance

from . import cases, emulated

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")


def kernel_for(workload: Workload, tile: tuple[int, int]) -> AttentionKernel:
    backend = attention_backend()
    launches = backend.family.launches(workload, Device())
    assert not backend.accepts(workload, Device())
    return next(launch.kernel for launch in launches if _tile(launch.kernel) == tile)


def _tile(kernel: AttentionKernel) -> tuple[int, int]:
    return kernel.rows, kernel.key_tile


def check(workload: Workload, tile: tuple[int, int], seed: int = 0, hidden: float = 0.0) -> None:
    values = cases.operands(workload, np.random.default_rng(seed), hidden)
    (wanted,) = reference.full(workload, values)
    got = emulated.run(kernel_for(workload, tile), workload, values)
    assert np.array_equal(np.isnan(got), np.isnan(wanted))
    there = ~np.isnan(wanted)
    error = np.linalg.norm(got[there] - wanted[there]) / np.linalg.norm(wanted[there])
    assert error < tolerance(workload), error


PACKED = cases.workload(1, 2, 70, layout="packed")
TAILS = cases.workload(1, 1, 33, 130, 24, 40, layout="bshd", outer=2)
CAUSAL = cases.workload(1, 1, 66, causal=True, dtype="bfloat16")
BIAS = cases.workload(1, 1, 49, bias=(2, 1, 1, 49), outer=2, layout="packed")


@pytest.mark.parametrize(
    "workload, tile",
    [
        *((PACKED, tile) for tile in TILES),
        *((TAILS, tile) for tile in ((16, 128), (64, 64))),
        *((CAUSAL, tile) for tile in ((16, 64), (32, 128), (64, 64))),
        *((BIAS, tile) for tile in ((32, 64), (128, 64))),
    ],
    ids=lambda value: value.label if isinstance(value, Workload) else str(value),
)
def test_agrees_with_float64(workload, tile):
    check(workload, tile)


@pytest.mark.parametrize("tile, zeros", [((16, 64), False), ((64, 64), True)])
def test_rows_without_a_key(tile, zeros):
    """Zeros or NaN, as the graph has it, and nothing spreads to other rows."""
    mask = cases.workload(1, 1, 20, 3, bias=(1, 1, 1, 20), bias_dtype="float32", zeros=zeros)
    check(mask, tile, hidden=0.6)


@pytest.mark.parametrize("scale", [0.0, -0.5])
def test_scales_that_are_not_positive(scale):
    check(cases.workload(1, 1, 40, scale=scale, causal=True), (32, 64))
