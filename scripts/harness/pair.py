"""Two independent branches of 3x3 convolutions, 14x14 with 256 channels in float16.

The naive form (naive_pair.cc) has a cuDNN handle for each stream and makes descriptors and
workspace in every call.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
SIZE, CHANNELS = 14, 256
SOURCE = Path(__file__).with_name("naive_pair.cc")


def weights(depth: int) -> list[list[Array]]:
    """Filters (OHWI) of both branches, scaled so that activations keep their size."""
    rng = np.random.default_rng(5)
    scale = (9 * CHANNELS) ** -0.5
    shape = (CHANNELS, 3, 3, CHANNELS)
    return [[rng.normal(0, scale, shape).astype("float16") for _ in range(depth)] for _ in "ab"]


def module(batch: int, depth: int = 1) -> Any:
    """A Relax module of two branches, each a chain of ``depth`` convolutions of an input of its
    own, NHWC in float16; returns both ends. 20 convolutions have more weights than L2 holds."""
    from tvm import relax

    shape = (batch, SIZE, SIZE, CHANNELS)
    inputs = [relax.Var(name, relax.TensorType(shape, "float16")) for name in "ab"]
    builder = relax.BlockBuilder()
    chains = weights(depth)
    with builder.function("main", inputs):
        with builder.dataflow():
            ends = list(inputs)
            for level in range(depth):  # pair by pair, as a network has its branches
                for i, chain in enumerate(chains):
                    w = relax.const(chain[level])
                    call = relax.op.nn.conv2d(
                        ends[i], w, padding=1, data_layout="NHWC", kernel_layout="OHWI"
                    )
                    ends[i] = builder.emit(call)
            result = builder.emit_output(relax.Tuple(ends))
        builder.emit_func_output(result)
    return builder.get()


def exact(batch: int, inputs: list[Array], depth: int = 1) -> list[Array]:
    """The ends of both branches in float64, each (n, 14, 14, 256)."""
    found = []
    for x, chain in zip(inputs, weights(depth), strict=True):
        y = x.astype("float64")
        for w in chain:
            padded = np.pad(y, ((0, 0), (1, 1), (1, 1), (0, 0)))
            taps = [
                padded[:, r : r + SIZE, s : s + SIZE] @ w[:, r, s].astype("float64").T
                for r in range(3)
                for s in range(3)
            ]
            y = np.sum(taps, axis=0)
        found.append(y)
    return found


def naive(batch: int) -> list[dict[str, Any]]:
    """Compile and run the naive form: a row for each of its algorithms.

    Raises:
        LibraryMissing: No cuDNN with its headers, or no CUDA compiler.
        RuntimeError: The program fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        program = _compile(Path(folder))
        command = [str(program), *map(str, (batch, CHANNELS, SIZE, CHANNELS))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        raise RuntimeError(done.stderr[-1000:])
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return [
        {
            "system": f"naive, {row['algorithm']}",
            "ms": row["sustained_us"] / 1e3,
            "latency_ms": row["latency_us"] / 1e3,
        }
        for row in found
    ]


def _compile(folder: Path) -> Path:
    from convoy.backends.kernels.toolkit import find_toolkit
    from convoy.errors import LibraryMissing
    from convoy.runtime.library import locations

    cudnn = Path(locations()["cudnn"])
    include = cudnn.parent.parent / "include"
    if not (include / "cudnn.h").is_file():
        raise LibraryMissing(
            f"no cudnn.h beside {cudnn}", "cuDNN's wheel", 'pip install "tvm-convoy[cudnn]"'
        )
    program = folder / "naive_pair"
    command = [str(find_toolkit().nvcc), "-std=c++17", "-O2", str(SOURCE), f"-I{include}"]
    command += [f"-L{cudnn.parent}", f"-l:{cudnn.name}", "-Xlinker", f"-rpath={cudnn.parent}"]
    subprocess.run([*command, "-o", str(program)], check=True, capture_output=True, timeout=120)
    return program
