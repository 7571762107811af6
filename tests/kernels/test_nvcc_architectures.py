"""PTX of each family's kernels for the GPUs that convoy has no machine code for.

The driver compiles the PTX that kernels for sm_80 carry when a module is loaded on one of these
GPUs; ptxas does the same here. Kernels of Hopper (TMA, wgmma) are machine code for sm_90a alone,
which no other architecture runs.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from convoy import paths
from convoy.backends.kernels import sources
from convoy.backends.kernels.attention.kernel import AttentionKernel
from convoy.backends.kernels.cutlass.config import KernelConfig
from convoy.backends.kernels.depthwise.kernels import ConvKernel, GroupedKernel, WgradKernel
from convoy.backends.kernels.kernel import Kernel
from convoy.backends.kernels.toolkit import Toolkit

ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
SMALL = {"tile": (64, 64, 64), "warp": (32, 32), "stages": 4, "arch": 80}
KERNELS = [
    KernelConfig("sm80_conv", **SMALL, activation="silu"),
    KernelConfig("sm80_conv", **SMALL, dtype="bfloat16", out_dtype="bfloat16", scheduler="splitk"),
    KernelConfig("sm80_dgrad", **SMALL),
    KernelConfig("sm80_strided_dgrad", **SMALL),
    KernelConfig("sm80_wgrad", **SMALL, scheduler="splitk"),
    ConvKernel(3),
    WgradKernel(3),
    GroupedKernel(),
    AttentionKernel(64, 64, 64, arch=80),
]


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_the_ptx_compiles_for_every_gpu(kernel: Kernel, toolkit: Toolkit, tmp_path: Path):
    source, ptx = tmp_path / "kernel.cu", tmp_path / "kernel.ptx"
    source.write_text(kernel.source)
    folders = [sources.header(kernel).parent, paths.include_dir()]
    folders += [toolkit.cutlass / "include", toolkit.cutlass / "tools/util/include"]
    includes = [f"-I{folder}" for folder in (*folders, *toolkit.includes)]
    flags = ["--expt-relaxed-constexpr", *sources.FLAGS, *includes]
    _run(toolkit.nvcc, "-ptx", "-arch=compute_80", *flags, "-o", ptx, source)
    ptxas = toolkit.nvcc.resolve().parent / "ptxas"
    for architecture in ARCHITECTURES:
        cubin = tmp_path / f"{architecture}.cubin"
        _run(ptxas, "-O1", f"-arch={architecture}", "-o", cubin, ptx)
        assert cubin.stat().st_size > 1000


def _run(*command: object) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
