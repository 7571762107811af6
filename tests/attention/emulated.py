"""The attention kernel run on the host, thread by thread (``mma.cuh`` beside this file)."""

from __future__ import annotations

import ctypes
import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from convoy import paths
from convoy.backends.kernels.attention.kernel import AttentionKernel
from convoy.ir.dtypes import numpy_dtype
from convoy.ir.workload import Workload

HERE = Path(__file__).parent


@functools.cache
def library(kernel: AttentionKernel) -> ctypes.CDLL:
    """The kernel compiled for the host with g++."""
    match = re.search(r"Config<(.*)>;", kernel.source)
    assert match is not None
    with tempfile.TemporaryDirectory(prefix="convoy-attention-") as folder:
        sources = (paths.codegen_dir() / "attention/attention.cuh", HERE / "mma.cuh")
        for file in (*sources, HERE / "emulated.cc"):
            shutil.copy(file, folder)
        out = Path(folder, "kernel.so")
        # Variables of the emulator are those of this library alone.
        command = [
            "g++",
            "-std=c++17",
            "-O1",
            "-shared",
            "-fPIC",
            "-fno-gnu-unique",
            f"-DCONFIG={match[1]}",
            f"-I{HERE.parent / 'helpers'}",
            f"-I{paths.codegen_dir() / 'include'}",
        ]
        subprocess.run([*command, "-o", out, Path(folder, "emulated.cc")], check=True)
        return ctypes.CDLL(str(out))


def run(kernel: AttentionKernel, workload: Workload, operands: Mapping[str, Any]) -> Any:
    """The result of a kernel, of the shape of o, as float64; NaN where it wrote nothing."""
    attention, groups = workload.attention, workload.groups
    assert attention is not None
    arrays = {
        name: np.ascontiguousarray(operands[name].astype(numpy_dtype(dtype)))
        for name, _, dtype in workload.operand_shapes()[:-1]
    }
    result = np.full(attention.o.shape, np.nan).astype(numpy_dtype(workload.dtype))
    sizes = [
        attention.outer, workload.n // attention.outer, groups, workload.h, workload.w,
        workload.c // groups, workload.k // groups,
        attention.causal, attention.zeros, attention.bias_dtype == "float32",
    ]  # fmt: skip
    views = (attention.q, attention.k, attention.v, attention.o, attention.bias)
    strides = [stride for view in views for stride in view.strides]

    def address(name: str, offset: int) -> ctypes.c_void_p:
        if name not in arrays:
            return ctypes.c_void_p(None)
        return ctypes.c_void_p(arrays[name].ctypes.data + offset * arrays[name].itemsize)

    library(kernel).run(
        (ctypes.c_int * len(sizes))(*map(int, sizes)),
        (ctypes.c_int64 * len(strides))(*strides),
        ctypes.c_float(attention.scale),
        address("q", attention.q.offset),
        address("k", attention.k.offset),
        address("v", attention.v.offset),
        address("bias", attention.bias.offset),
        ctypes.c_void_p(result.ctypes.data + attention.o.offset * result.itemsize),
    )
    return result.astype(np.float64)
