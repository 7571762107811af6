"""The kernel of recurrent layers, run on the host thread by thread, against NumPy."""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

from convoy import paths
from convoy.ir.dtypes import numpy_dtype
from convoy.ops.recurrent import Recurrent
from convoy.tir.recurrent import layout_of

HERE = Path(__file__).parent
#: Units that fill no warp, two directions, tiles of sequences, backwards, weights in shared memory.
LAYERS = [
    Recurrent("lstm", 3, 5, 2, 33, "float16"),
    Recurrent("lstm", 4, 1, 1, 64, "bfloat16", reversed=True),
    Recurrent("lstm", 2, 300, 1, 17, "float16"),
    Recurrent("lstm", 3, 9, 1, 300, "float16"),
    Recurrent("gru", 4, 11, 2, 70, "float16"),
    Recurrent("gru", 1, 3, 1, 8, "bfloat16"),
    Recurrent("gru", 3, 140, 2, 40, "float16"),
]


@functools.cache
def _library(element: str, cell: str, size: str) -> ctypes.CDLL:
    """The kernel compiled for the host with g++."""
    with tempfile.TemporaryDirectory(prefix="convoy-recurrent-") as folder:
        sources = (paths.codegen_dir() / "recurrent/recurrent.cuh", HERE / "ptx.cuh")
        for file in (*sources, HERE / "emulated.cc"):
            shutil.copy(file, folder)
        out = Path(folder, "kernel.so")
        command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-fno-gnu-unique"]
        command += [f"-DELEMENT={element}", f"-DCELL={cell}", f"-DSIZE={size}"]
        command += [f"-I{HERE.parent / 'helpers'}", "-o", str(out), f"{folder}/emulated.cc"]
        subprocess.run(command, check=True)
        return ctypes.CDLL(str(out))


def _emulated(layer: Recurrent, operands: list[np.ndarray]) -> list[np.ndarray]:
    layout = layout_of(layer)
    kinds = {"lstm": "kLstm", "gru": "kGru"}
    elements = {"float16": "half", "bfloat16": "nv_bfloat16"}
    size = f"{layer.hidden}, {layout.blocks}, {layout.tiles}"
    run = _library(elements[layer.dtype], kinds[layer.cell], size).run
    run.restype = ctypes.c_bool
    results = [np.full(shape, np.nan).astype(numpy_dtype(layer.dtype)) for shape in layer.results]
    states, last = operands[3:], results[1:]
    given = [*operands[:3], *[*states, None][:2], results[0], *[*last, None][:2]]
    pointers = [None if array is None else array.ctypes.data for array in given]
    addresses = (ctypes.c_void_p * 8)(*pointers)
    assert run(addresses, layer.time, layer.batch, layer.directions, layer.reversed)
    return results


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


def _exact(layer: Recurrent, operands: list[np.ndarray]) -> list[np.ndarray]:
    """By the formulas of the operator, in float64."""
    projected, weights, bias, *states = (a.astype(np.float64) for a in operands)
    projected = projected.reshape(layer.time, layer.batch, layer.directions, layer.gates, -1)
    outputs = np.empty((layer.time, layer.batch, layer.directions, layer.hidden))
    for d in range(layer.directions):
        h = states[0][d]
        steps = range(layer.time)
        for t in reversed(steps) if layer.reversed or d == 1 else steps:
            x = projected[t, :, d].transpose(1, 0, 2)
            sums = (h @ weights[d].T + bias[d]).reshape(layer.batch, layer.gates, -1)
            gates = sums.transpose(1, 0, 2)
            if layer.cell == "lstm":
                i, f, g, o = x + gates
                states[1][d] = _sigmoid(f) * states[1][d] + _sigmoid(i) * np.tanh(g)
                h = _sigmoid(o) * np.tanh(states[1][d])
            else:
                r, z = (_sigmoid(x[k] + gates[k]) for k in range(2))
                h = (1 - z) * np.tanh(x[2] + r * gates[2]) + z * h
            outputs[t, :, d] = h
        states[0][d] = h
    return [outputs.reshape(layer.results[0]), *states]


@pytest.mark.parametrize("layer", LAYERS, ids=lambda x: f"{x.cell}-{x.hidden}-{x.batch}-{x.dtype}")
def test_kernel_is_the_operator(layer: Recurrent) -> None:
    rng = np.random.default_rng(layer.hidden)
    width, state = layer.gates * layer.hidden, (layer.directions, layer.batch, layer.hidden)
    shapes = [
        (layer.time, layer.batch, layer.directions * width),
        (layer.directions, width, layer.hidden),
        (layer.directions, width),
        *[state] * layer.states,
    ]
    scales = [1, layer.hidden**-0.5, 0.5, 0.5, 0.5]
    operands = [
        (rng.standard_normal(shape) * scale).astype(numpy_dtype(layer.dtype))
        for shape, scale in zip(shapes, scales, strict=False)
    ]
    limit = {"float16": 1e-3, "bfloat16": 8e-3}[layer.dtype]
    for got, right in zip(_emulated(layer, operands), _exact(layer, operands), strict=True):
        error = np.linalg.norm(got.astype(np.float64) - right) / np.linalg.norm(right)
        assert error < limit
