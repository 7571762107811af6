"""Emitted sources against golden files; rewrite them with CONVOY_UPDATE_GOLDEN=1."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from convoy.backends.kernels.cutlass.config import KernelConfig
from convoy.backends.kernels.cutlass.emit import emit

GOLDEN = Path(__file__).parent / "golden"
CONFIGS = [
    KernelConfig("sm90_conv", (128, 256, 64), cluster=(2, 1), schedule="cooperative"),
    KernelConfig(
        "sm90_conv",
        (64, 64, 128),
        schedule="pingpong",
        scheduler="splitk",
        activation="relu",
        residual=True,
        affine_relu=True,
    ),
    KernelConfig(
        "sm90_gemm",
        (128, 64, 32),
        schedule="cooperative",
        scheduler="streamk",
        align=4,
        align_out=4,
        dtype="float32",
        out_dtype="float32",
        activation="silu",
    ),
    KernelConfig(
        "sm90_gemm",
        (128, 128, 64),
        schedule="cooperative",
        residual=True,
        affine_relu=True,
        epilogue_stages=(5, 3),
        epilogue_columns=64,
    ),
    KernelConfig(
        "sm80_conv",
        (128, 64, 32),
        warp=(64, 32),
        stages=3,
        iterator="fixed_channels",
        align=4,
        dtype="bfloat16",
        out_dtype="bfloat16",
        activation="clip",
        arch=80,
    ),
    KernelConfig("sm90_gemm", (128, 64, 64), schedule="pingpong", activation="gelu"),
    KernelConfig(
        "sm80_conv",
        (64, 64, 64),
        warp=(32, 32),
        stages=4,
        activation="silu",
        residual=True,
        residual_last=True,
        arch=80,
    ),
    KernelConfig(
        "sm80_int8_conv",
        (128, 64, 64),
        warp=(64, 32),
        stages=4,
        align=16,
        align_out=4,
        dtype="int8",
        out_dtype="int32",
    ),
    KernelConfig(
        "sm80_int8_conv",
        (64, 64, 128),
        warp=(32, 32),
        stages=4,
        align=16,
        dtype="int8",
        out_dtype="int8",
        activation="clip",
        arch=80,
    ),
    KernelConfig("sm90_dgrad", (128, 128, 64), cluster=(2, 1), schedule="pingpong"),
    KernelConfig(
        "sm90_wgrad", (64, 128, 64), schedule="pingpong", scheduler="splitk", out_dtype="float32"
    ),
    KernelConfig("sm80_strided_dgrad", (128, 64, 64), warp=(64, 32), stages=4, align=4),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_source_is_golden(config):
    path = GOLDEN / f"{config.name}.cu"
    if os.environ.get("CONVOY_UPDATE_GOLDEN"):
        path.write_text(emit(config))
    assert emit(config) == path.read_text()


def test_no_golden_file_is_left_over():
    assert {p.stem for p in GOLDEN.glob("*.cu")} == {config.name for config in CONFIGS}
