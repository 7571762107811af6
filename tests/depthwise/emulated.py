"""The depthwise kernels compiled for the host (emulated.cc), run on NumPy arrays."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.kernel_abi.library import Operands, Shape

from convoy import paths
from convoy.backends.kernels.depthwise import grouped, staged
from convoy.backends.kernels.depthwise.kernels import GroupedKernel, StagedKernel
from convoy.backends.kernels.depthwise.space import Launch, Tile
from convoy.backends.kernels.toolkit import find_toolkit
from convoy.errors import LibraryMissing
from convoy.ir.dtypes import DTYPE_BYTES
from convoy.ir.workload import Workload

_SOURCE = Path(__file__).with_name("emulated.cc")
DTYPES = {"float16": np.float16, "float32": np.float32}


class RowStrides(ctypes.Structure):
    """``ConvoyRowStrides``: elements from one pixel to the next."""

    _fields_ = [(name, ctypes.c_int64) for name in ("a", "residual", "d")]


def _row_stride(array: np.ndarray) -> int:
    return array.strides[-2] // array.itemsize


class Kernels:
    """The libraries' checks, workspaces and launches, without a GPU."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.wgrad_workspace.restype = ctypes.c_int64

    def check(self, launch: Launch, w: Workload) -> bool:
        """Whether the library takes the problem."""
        return self._run(launch, _shape(launch, w, 132), None) == 0

    def workspace(self, launch: Launch, w: Workload, sm_count: int = 132) -> int:
        """Bytes of wgrad's workspace."""
        size, shape = DTYPE_BYTES[launch.kernel.dtype], _shape(launch, w, sm_count)
        return self._library.wgrad_workspace(size, launch.kernel.filter, ctypes.byref(shape))

    def run(
        self,
        launch: Launch,
        w: Workload,
        arrays: dict[str, np.ndarray],
        sm_count: int,
        out: np.ndarray | None = None,
    ) -> np.ndarray:
        """The result of a launch: operands by name, as ``Workload.operand_shapes`` has them. With
        an ``out`` to write to, it and what is read may be slices of the channels of wider
        arrays."""
        rows = None
        if out is None:
            _, size, _ = w.operand_shapes()[-1]
            out = np.full(size, np.nan, DTYPES[w.dtype])
        else:
            rows = RowStrides(*map(_row_stride, (arrays["x"], arrays.get("residual", out), out)))
        a, b = {"fprop": ("x", "w"), "dgrad": ("dy", "w"), "wgrad": ("dy", "x")}[w.op]
        bytes_of_workspace = self.workspace(launch, w, sm_count) if w.op == "wgrad" else 0
        workspace = np.full(bytes_of_workspace // 4 + 64, np.nan, np.float32)
        address = {key: array.ctypes.data for key, array in arrays.items()}
        operands = Operands(
            *(address[a], address[b], address.get("residual"), address.get("bias"), None, None),
            *(out.ctypes.data, None, workspace.ctypes.data),
        )
        code = self._run(launch, _shape(launch, w, sm_count), operands, rows)
        assert code == 0, f"{launch.label} declines {w.key} ({code})"
        assert np.isnan(workspace[-64:]).all(), "written beyond the workspace"
        return out

    def _run(
        self,
        launch: Launch,
        shape: Shape,
        operands: Operands | None,
        rows: RowStrides | None = None,
    ) -> int:
        given = (
            ctypes.byref(shape),
            operands and ctypes.byref(operands),
            rows and ctypes.byref(rows),
        )
        if isinstance(launch.kernel, GroupedKernel):
            return self._library.run_grouped(*given)
        if isinstance(launch.kernel, StagedKernel):
            return self._library.run_staged(*given)
        size = DTYPE_BYTES[launch.kernel.dtype]
        return self._library.run_depthwise(size, launch.kernel.filter, *given)

    def grouped_tiles(self) -> tuple[grouped.Tile, ...]:
        """The tiles of the grouped convolution."""
        return tuple(grouped.Tile(*pair) for pair in _pairs(self._library.grouped_tile_at))

    def staged_tiles(self) -> tuple[staged.Tile, ...]:
        """The tiles of the staged one."""
        return tuple(staged.Tile(*pair) for pair in _pairs(self._library.staged_tile_at))

    def tiles(self, size: int, wgrad: bool) -> tuple[Tile, ...]:
        """The tiles that the headers list for a filter size."""
        found: list[Tile] = []
        out = (ctypes.c_int * 3)()
        while self._library.tile_at(size, wgrad, len(found), out):
            found.append(Tile(*out))
        return tuple(found)


def _pairs(tile_at: Callable[[int, ctypes.Array], int]) -> Iterator[tuple[int, int]]:
    out = (ctypes.c_int * 2)()
    index = 0
    while tile_at(index, out):
        yield out[0], out[1]
        index += 1


def _shape(launch: Launch, w: Workload, sm_count: int) -> Shape:
    return Shape.of(w, sm_count, swizzle=launch.swizzle)


@functools.cache
def load() -> Kernels:
    """Compile and load the kernels; skips the test without CUDA's headers."""
    try:
        toolkit = find_toolkit()
    except LibraryMissing as missing:
        pytest.skip(f"no CUDA headers: {missing.got}")
    folder = Path(tempfile.mkdtemp(prefix="convoy-depthwise-"))
    library = folder / "emulated.so"
    # Variables of the emulator are those of this library alone.
    command = [
        str(toolkit.nvcc),
        "-x",
        "c++",
        "-std=c++17",
        "-O1",
        "-Xcompiler=-fPIC,-w,-fno-gnu-unique",
    ]
    includes = (
        _SOURCE.parent,
        _SOURCE.parents[1] / "helpers",
        paths.codegen_dir() / "depthwise",
        paths.include_dir(),
    )
    command += [f"-I{path}" for path in (*includes, *toolkit.includes)]
    command += ["-shared", "-cudart=none", str(_SOURCE), f"-Xlinker={toolkit.cudart}"]
    subprocess.run([*command, "-o", str(library)], check=True, timeout=300)
    loaded = Kernels(ctypes.CDLL(str(library)))
    shutil.rmtree(folder)
    return loaded
