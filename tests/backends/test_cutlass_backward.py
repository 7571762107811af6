"""Candidates of dgrad and wgrad: families by stride, channels and dtype; splits that fit."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy.backends.kernels.cutlass import dgrad as cutlass_dgrad
from convoy.backends.kernels.cutlass import wgrad as cutlass_wgrad
from convoy.backends.kernels.cutlass.config import KernelConfig
from convoy.backends.kernels.cutlass.family import cutlass_backend
from convoy.errors import InvalidOption
from convoy.ir.device import Device
from convoy.ir.workload import Workload

H200 = Device()


def conv(op: str, **changes) -> Workload:
    fields = {"n": 8, "h": 28, "w": 28, "c": 128, "k": 256, "r": 3, "s": 3}
    return Workload(op, **fields | {"padding": (1, 1, 1, 1)} | changes)


def launches(workload: Workload):
    backend = cutlass_backend()
    return [backend.launch_of(candidate) for candidate in backend.propose(workload, H200)]


POINTWISE = {"r": 1, "s": 1, "padding": (0,) * 4}
TF32 = {"dtype": "float32", "out_dtype": "float32", "math": "tf32"}


@pytest.mark.parametrize(
    ("workload", "families"),
    [
        (conv("dgrad", n=256), {"sm90_dgrad"}),
        (conv("dgrad", n=256, **POINTWISE), {"sm90_dgrad_gemm"}),
        (conv("dgrad", n=256, padding=(2, 1, 0, 1)), {"sm90_dgrad"}),
        (conv("dgrad", stride=(2, 2)), {"sm80_strided_dgrad"}),
        (conv("dgrad", padding=(3, 3, 3, 3)), {"sm80_strided_dgrad"}),
        (conv("dgrad", c=36), {"sm80_dgrad"}),
        (conv("dgrad", **TF32), {"sm80_dgrad"}),
        (conv("wgrad"), {"sm90_wgrad"}),
        (conv("wgrad", stride=(2, 2), dilation=(2, 1)), {"sm90_wgrad"}),
        (conv("wgrad", k=36), {"sm80_wgrad"}),
        (conv("wgrad", **TF32), {"sm80_wgrad"}),
    ],
)
def test_families(workload, families):
    assert {launch.kernel.family for launch in launches(workload)} == families


def test_strided_dgrad_never_reaches_the_sm90_main_loop():
    """It would compute it wrongly without a word."""
    unit = launches(conv("dgrad", n=256))[0]
    strided = conv("dgrad", n=256, stride=(2, 1))
    assert "stride above 1" in cutlass_dgrad.why_not(unit, strided, H200)


@given(
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(1, 9),
    st.integers(0, 4),
    st.integers(0, 4),
)
def test_turned_problem_is_the_gradient(filter_size, dilation, extra, before, after):
    """In one dimension: correlation of dy with the rotated filter under the transposed padding."""
    reach = dilation * (filter_size - 1)
    size = reach + extra
    w = Workload(
        "dgrad", 1, size, 1, 1, 1, filter_size, 1,
        padding=(before, 0, after, 0), dilation=(dilation, 1),
    )  # fmt: skip
    forward = cutlass_dgrad.transposed(w)
    if max(before, after) > reach:
        assert forward is None
        return
    assert (forward.h, forward.p) == (w.p, w.h)
    dy, taps = np.arange(1.0, w.p + 1), np.arange(1.0, filter_size + 1) ** 2
    expected = np.zeros(size + before + after)
    for r in range(filter_size):
        expected[r * dilation : r * dilation + w.p] += dy * taps[r]
    padded = np.pad(dy, (forward.padding[0], forward.padding[2]))
    got = [
        sum(padded[h + r * dilation] * taps[filter_size - 1 - r] for r in range(filter_size))
        for h in range(size)
    ]
    assert np.array_equal(got, expected[before : before + size])


def test_slices_fill_the_device_and_stay_long_enough():
    early = conv("wgrad", n=256, h=56, w=56, c=64, k=64)
    for launch in launches(early):
        steps = cutlass_wgrad.reduction_tiles(launch.kernel, early)
        tiles = cutlass_wgrad.output_tiles(launch.kernel, early)
        assert launch.kernel.scheduler == "splitk"
        assert steps / launch.split_k >= cutlass_wgrad.LEAST_STEPS_OF_A_SLICE
        assert tiles * launch.split_k >= 0.8 * H200.sm_count
    small = conv("wgrad", n=1, h=3, w=3)
    assert all(launch.split_k <= 2 for launch in launches(small))


def test_tiles_of_one_tap_each():
    config = KernelConfig("sm90_wgrad", (128, 128, 64), schedule="pingpong")
    assert cutlass_wgrad.output_tiles(config, conv("wgrad", c=192, k=130)) == 2 * 2 * 9
    wide = dataclasses.replace(config, cluster=(2, 1))
    assert cutlass_wgrad.output_tiles(wide, conv("wgrad", k=300)) == 4 * 9


@pytest.mark.parametrize(
    "changes",
    [
        {"family": "sm90_dgrad", "activation": "relu"},
        {"family": "sm90_wgrad", "dtype": "float32", "tile": (128, 128, 32)},
        {"family": "sm90_wgrad", "epilogue_stages": (4, 2), "epilogue_columns": 64},
        {"family": "sm80_wgrad", "schedule": "", "warp": (64, 64), "stages": 4},
        {
            "family": "sm80_strided_dgrad",
            "schedule": "",
            "warp": (64, 64),
            "stages": 4,
            "scheduler": "splitk",
        },
    ],
)
def test_contradictions_are_refused(changes):
    with pytest.raises(InvalidOption):
        KernelConfig(**{"tile": (128, 128, 64), "schedule": "pingpong"} | changes)
