"""Real compilations: an sm80 kernel always where there is an nvcc, an sm90 one when slow tests run.

The libraries are loaded and asked what needs no GPU: ABI version, checks, workspace.
"""

from __future__ import annotations

import ctypes
import subprocess

import pytest

from convoy.codegen.compile import compile_kernel
from convoy.codegen.kernel import KernelConfig
from convoy.codegen.toolkit import Toolkit, find_toolkit
from convoy.errors import LibraryMissing

FIELDS = [
    "op",
    "n",
    "h",
    "w",
    "c",
    "k",
    "r",
    "s",
    "p",
    "q",
    "stride_h",
    "stride_w",
    "pad_top",
    "pad_left",
    "pad_bottom",
    "pad_right",
    "dilation_h",
    "dilation_w",
    "groups",
    "split_k",
    "swizzle",
    "sm_count",
]


class Shape(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int32) for name in FIELDS] + [
        ("clip_min", ctypes.c_float),
        ("clip_max", ctypes.c_float),
    ]


def shape(**changes):
    """fprop 2x14x14x64 -> 64, 3x3, padding 1."""
    values = {
        "op": 0,
        "n": 2,
        "h": 14,
        "w": 14,
        "c": 64,
        "k": 64,
        "r": 3,
        "s": 3,
        "p": 14,
        "q": 14,
        "groups": 1,
        "split_k": 1,
    }
    values |= {
        "stride_h": 1,
        "stride_w": 1,
        "pad_top": 1,
        "pad_left": 1,
        "pad_bottom": 1,
        "pad_right": 1,
    }
    return Shape(**values | {"dilation_h": 1, "dilation_w": 1, "sm_count": 132} | changes)


@pytest.fixture(scope="module")
def toolkit() -> Toolkit:
    try:
        return find_toolkit()
    except LibraryMissing as missing:
        pytest.skip(f"no CUDA compiler: {missing.got}")


def load(entry, toolkit) -> ctypes.CDLL:
    ctypes.CDLL(str(toolkit.cudart), mode=ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(str(entry.path))
    library.convoy_kernel_workspace.restype = ctypes.c_int64
    library.convoy_kernel_state_bytes.restype = ctypes.c_int64
    library.convoy_kernel_error.restype = ctypes.c_char_p
    return library


def exported(path) -> set[str]:
    out = subprocess.run(
        ["nm", "-D", "--defined-only", str(path)], capture_output=True, text=True, check=True
    ).stdout
    return {line.split()[-1] for line in out.splitlines()}


ABI = {
    f"convoy_kernel_{name}"
    for name in [
        "abi",
        "check",
        "workspace",
        "state_bytes",
        "prepare",
        "launch",
        "footprint",
        "error",
    ]
}


def test_sm80_kernel(toolkit):
    config = KernelConfig(
        "sm80_conv", (64, 64, 32), warp=(32, 32), stages=3, scheduler="splitk", affine_relu=True
    )
    entry = compile_kernel(config, toolkit=toolkit)
    assert exported(entry.path) == ABI
    library = load(entry, toolkit)
    assert library.convoy_kernel_abi() == 1
    assert library.convoy_kernel_state_bytes() > 0

    def check(**changes):
        return library.convoy_kernel_error(
            library.convoy_kernel_check(ctypes.byref(shape(**changes)))
        ).decode()

    assert check(split_k=2) == "success"
    assert "number of equal slices" in check(split_k=1)
    assert "number of equal slices" in check(split_k=3)
    assert "multiples" in check(split_k=2, c=68)
    assert "output sizes" in check(split_k=2, p=15)
    assert "another direction" in check(split_k=2, op=2)
    assert "groups" in check(split_k=2, groups=2)
    workspace = library.convoy_kernel_workspace(ctypes.byref(shape(split_k=2)))
    assert workspace == 2 * (2 * 14 * 14) * 64 * 4


@pytest.mark.slow
def test_sm90_kernel(toolkit):
    config = KernelConfig("sm90_conv", (128, 64, 64), schedule="cooperative", scheduler="streamk")
    entry = compile_kernel(config, toolkit=toolkit)
    assert exported(entry.path) == ABI
    library = load(entry, toolkit)
    assert library.convoy_kernel_check(ctypes.byref(shape(split_k=4))) == 0
    assert library.convoy_kernel_check(ctypes.byref(shape(c=60))) != 0
    tiles = 4  # 392 rows in tiles of 128, one column of tiles
    least = tiles * 128 * 64 * 4
    workspace = library.convoy_kernel_workspace(ctypes.byref(shape(split_k=4)))
    assert least <= workspace <= least + tiles * 64 + 4096
