"""The kernel against float64, on the host: index arithmetic, tails, masks, layouts."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from convoy.backends.kernels.attention.family import attention_backend
from convoy.backends.kernels.attention.kernel import AttentionKernel
from convoy.ir.device import Device
from convoy.ir.workload import Workload
from convoy.measure import protocol, reference

from . import cases, emulated

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")


def kernel_for(workload: Workload, rows: int) -> AttentionKernel:
    backend = attention_backend()
    launches = backend.family.launches(workload, Device())
    assert not backend.accepts(workload, Device())
    return next(launch.kernel for launch in launches if launch.kernel.rows == rows)


def check(workload: Workload, rows: int, seed: int = 0, hidden: float = 0.0) -> None:
    values = cases.operands(workload, np.random.default_rng(seed), hidden)
    (wanted,) = reference.full(workload, values)
    got = emulated.run(kernel_for(workload, rows), workload, values)
    assert np.array_equal(np.isnan(got), np.isnan(wanted))
    there = ~np.isnan(wanted)
    error = np.linalg.norm(got[there] - wanted[there]) / np.linalg.norm(wanted[there])
    assert error < protocol.tolerance(workload), error


@pytest.mark.parametrize("rows", [16, 32, 64, 128])
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
def test_agrees_with_float64(workload, rows):
    check(workload, rows)


@pytest.mark.parametrize("rows", [16, 64])
@pytest.mark.parametrize("zeros", [False, True])
def test_rows_without_a_key(rows, zeros):
    """Zeros or NaN, as the graph has it, and nothing spreads to other rows."""
    mask = cases.workload(1, 1, 20, 3, bias=(1, 1, 1, 20), bias_dtype="float32", zeros=zeros)
    check(mask, rows, hidden=0.6)
