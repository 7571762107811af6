"""Kernel descriptions: contradictions are refused, names are unique, JSON round-trips."""

from __future__ import annotations

import dataclasses
import json

import pytest

from convoy.backends.kernels.cutlass.config import KernelConfig
from convoy.errors import InvalidOption

PINGPONG = KernelConfig("sm90_conv", (64, 64, 64), schedule="pingpong")
SM80 = KernelConfig("sm80_conv", (128, 64, 32), warp=(64, 32), stages=4)
DEEP = KernelConfig(
    "sm90_gemm",
    (128, 256, 64),
    cluster=(2, 1),
    schedule="cooperative",
    residual=True,
    affine_relu=True,
    epilogue_stages=(8, 4),
    epilogue_columns=32,
)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"family": "sm75", "tile": (64, 64, 64)}, "family"),
        ({"family": "sm90_conv", "tile": (64, 64, 64)}, "schedule ''"),
        ({"family": "sm90_conv", "tile": (64, 64, 64), "schedule": "cooperative"}, "128"),
        ({"family": "sm90_conv", "tile": (64, 64, 32), "schedule": "pingpong"}, "128 bytes"),
        ({"family": "sm90_conv", "tile": (64, 60, 64), "schedule": "pingpong"}, "tile 64x60"),
        (
            {"family": "sm90_gemm", "tile": (64, 64, 64), "schedule": "pingpong", "arch": 80},
            "arch = 90",
        ),
        (
            {
                "family": "sm90_gemm",
                "tile": (64, 64, 64),
                "schedule": "pingpong",
                "scheduler": "streamk",
            },
            "stream-K",
        ),
        (
            {
                "family": "sm90_gemm",
                "tile": (64, 64, 64),
                "schedule": "pingpong",
                "iterator": "analytic",
            },
            "sm80_conv",
        ),
        ({"family": "sm80_conv", "tile": (64, 64, 32)}, "warp tile"),
        ({"family": "sm80_conv", "tile": (64, 64, 32), "warp": (32, 32), "stages": 2}, "3 stages"),
        (
            {
                "family": "sm80_conv",
                "tile": (64, 64, 32),
                "warp": (32, 32),
                "stages": 3,
                "arch": 75,
            },
            "arch 80 or 90",
        ),
        (
            {
                "family": "sm80_conv",
                "tile": (64, 64, 32),
                "warp": (32, 32),
                "stages": 3,
                "affine_relu": True,
            },
            "split-K",
        ),
        (
            {
                "family": "sm80_conv",
                "tile": (64, 64, 32),
                "warp": (32, 32),
                "stages": 3,
                "scheduler": "splitk",
                "iterator": "few_channels",
            },
            "split-K",
        ),
        (
            {"family": "sm80_conv", "tile": (64, 64, 32), "activation": "swish"},
            "activation 'swish'",
        ),
        ({**vars(SM80), "epilogue_columns": 32}, "sm90"),
        (
            {
                **vars(PINGPONG),
                "epilogue_stages": (3, 2),
                "epilogue_columns": 32,
                "scheduler": "splitk",
            },
            "scheduler tiles",
        ),
        ({**vars(PINGPONG), "epilogue_stages": (3, 2)}, "multiples of 16"),
        ({**vars(PINGPONG), "epilogue_stages": (3, 2), "epilogue_columns": 48}, "divide 64"),
        ({**vars(PINGPONG), "epilogue_stages": (3, 3), "epilogue_columns": 32}, "more than those"),
        # 2 subtiles in a tile: a fourth store would never be given back
        ({**vars(PINGPONG), "epilogue_stages": (5, 4), "epilogue_columns": 32}, "1 to 3 stages"),
        ({**vars(PINGPONG), "epilogue_columns": 32}, "1 to 3 stages"),
    ],
)
def test_contradictions_are_refused(fields, words):
    with pytest.raises(InvalidOption, match=words):
        KernelConfig(**fields)


@pytest.mark.parametrize("config", [PINGPONG, SM80, DEEP])
def test_json_round_trip(config):
    data = json.loads(json.dumps(config.to_json()))
    assert KernelConfig.from_json(data) == config


def test_json_with_unknown_field():
    with pytest.raises(InvalidOption, match="colour"):
        KernelConfig.from_json({"family": "sm90_conv", "tile": [64, 64, 64], "colour": 1})


def test_defaults_are_left_out_of_json():
    assert PINGPONG.to_json() == {
        "family": "sm90_conv",
        "tile": [64, 64, 64],
        "schedule": "pingpong",
    }


def test_threads():
    assert PINGPONG.threads == 384
    assert SM80.threads == 128


def test_own_epilogue_is_part_of_the_name():
    assert DEEP.mechanics == "sm90_gemm_128x256x64_c2x1_cooperative_e8-4x32"
    assert "_e" not in PINGPONG.mechanics


def test_own_epilogue_counts_as_shared_memory():
    stage, subtile = (128 + 256) * 64 * 2, 128 * 32 * 2
    assert DEEP.least_shared_bytes == 2 * stage + (8 + 4) * subtile + 4096
    alone = dataclasses.replace(DEEP, residual=False)  # only stores of y and y2
    assert alone.least_shared_bytes == 2 * stage + (4 + 4) * subtile + 4096
