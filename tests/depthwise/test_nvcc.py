"""Every library compiles and loads, and what its kernels spill is little."""

from __future__ import annotations

import re
import subprocess

import pytest
from tests.helpers.kernel_abi.library import KernelLibrary

from convoy import paths
from convoy.backends.kernels import shipped
from convoy.backends.kernels.compile import compile_to
from convoy.backends.kernels.depthwise.kernels import (
    FILTERS,
    ConvKernel,
    GroupedKernel,
    StagedKernel,
    WgradKernel,
)
from convoy.backends.kernels.toolkit import find_toolkit
from convoy.errors import LibraryMissing

DTYPES = ("float16", "bfloat16", "float32")
KERNELS = [
    *(
        kind(size, dtype)
        for kind in (ConvKernel, WgradKernel)
        for size in FILTERS
        for dtype in DTYPES
    ),
    *(kind(dtype) for kind in (GroupedKernel, StagedKernel) for dtype in DTYPES[:2]),
]
#: Bytes of a thread. The most are 144, of the tile 4x2x7 of 3x3 with stride 2, the fastest of many
#: layers all the same: three blocks an SM without spills are slower than four with them.
MOST_SPILLED = 160


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_compiles(tmp_path, kernel):
    try:
        toolkit = find_toolkit()
    except LibraryMissing as missing:
        pytest.skip(f"no CUDA compiler: {missing.got}")
    library = tmp_path / "kernel.so"
    words = compile_to(kernel, library, toolkit, ["-Xptxas=-v"])
    spills = [int(count) for count in re.findall(r"(\d+) bytes spill stores", words)]
    assert spills and max(spills) <= MOST_SPILLED, words
    KernelLibrary(library)


@pytest.mark.parametrize("kernel", [ConvKernel(3), GroupedKernel()], ids=lambda k: k.name)
def test_nothing_but_weights_is_read_before_the_wait(tmp_path, kernel):
    """In PTX for sm_90: ordinary loads, those of the filter in front of the second wait."""
    try:
        toolkit = find_toolkit()
    except LibraryMissing as missing:
        pytest.skip(f"no CUDA compiler: {missing.got}")
    source, ptx = tmp_path / "kernel.cu", tmp_path / "kernel.ptx"
    source.write_text(kernel.source)
    folders = [paths.codegen_dir() / kernel.folder, paths.include_dir(), *toolkit.includes]
    command = [toolkit.nvcc, "-ptx", "-arch=sm_90", "-std=c++17", "-o", ptx, source]
    subprocess.run([*command, *(f"-I{folder}" for folder in folders)], check=True)
    _, *entries = ptx.read_text().split(".visible .entry")
    assert entries
    for entry in entries:
        begin, between, behind = entry.split("griddepcontrol.wait;")
        assert "griddepcontrol.launch_dependents;" in begin and "ld.global" not in begin
        assert "ld.global.b16" in between or "ld.global.v2" in between, "the filter"
        assert "st.global" not in begin + between and "st.global" in behind
        assert "ld.global.nc" not in entry


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_all_ship(kernel):
    """Where this fails, sources have changed: run tuning/ship_kernels.py --arch 80."""
    assert shipped.has(kernel)
