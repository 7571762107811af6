"""The kernel against float64, on the host: index arithmetic, tails, masks, layouts."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from convoy.backends.kernels.attention.family import attention_backend
from convoy.backends.kernels.attention.kernel import TILES, AttentionKernel
from convoy.ir.device import Device
from convoy.ir.workload import Workload
from convoy.measure import protocol, reference

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
    assert error < protocol.tolerance(workload), error


@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize(
    "workload",
    [
        cases.workload(1, 2, 70, layout="packed"),
        cases.workload(1, 1, 33, 130, 24, 40, layout="bshd", outer=2),
        cases.workload(2, 1, 66, causal=True, dtype="bfloat16"),
        cases.workload(1, 2, 49, bias=(2, 1, 2, 49), outer=2, layout="packed"),
    ],
    ids=["packed", "tails", "causal", "bias"],
)
def test_agrees_with_float64(workload, tile):
    check(workload, tile)


@pytest.mark.parametrize("tile", [(16, 64), (64, 64)], ids=str)
@pytest.mark.parametrize("zeros", [False, True])
def test_rows_without_a_key(tile, zeros):
    """Zeros or NaN, as the graph has it, and nothing spreads to other rows."""
    mask = cases.workload(1, 1, 20, 3, bias=(1, 1, 1, 20), bias_dtype="float32", zeros=zeros)
    check(mask, tile, hidden=0.6)


@pytest.mark.parametrize("scale", [0.0, -0.5])
@pytest.mark.parametrize("causal", [False, True])
def test_scales_that_are_not_positive(scale, causal):
    check(cases.workload(1, 1, 40, scale=scale, causal=causal), (32, 64))
