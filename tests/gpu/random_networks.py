"""Random networks on several streams against one stream and numpy: a worker process.

    python random_networks.py FIRST LAST     (with python/ and the checkout on PYTHONPATH)

runs the networks of the seeds FIRST to LAST - 1 and prints a JSON line for each that is done, and
one for each that went wrong. Convolutions are cuDNN's, on Hopper the larger one the own kernel that
loads weights before its predecessor has ended, all other kernels TVM's; storage and results
are filled with NaN before each run, and inputs are new each time.
"""

from __future__ import annotations

import json
import random
import sys
from typing import Any

import numpy as np

# isort: off
import convoy  # noqa: F401  finds CUDA's runtime before TVM looks for it
import tvm
import tvm_ffi
from tvm import relax

# isort: on
from tests.streams.networks import (
    SHAPE,
    by_numpy,
    kernels,
    random_network,
    schedule_all,
    to_calls,
)  # fmt: skip

from convoy.backends.cudnn import CudnnBackend
from convoy.backends.kernels.sm90.family import sm90_backend
from convoy.ir.artifact import Meta, TensorInfo
from convoy.ir.device import Device
from convoy.ir.schedule import Schedule
from convoy.ir.workload import Workload
from convoy.lower.lowered import Lowered
from convoy.runtime import create_module, current_device, load_runtime
from convoy.runtime.library import function
from convoy.runtime.session import Session
from convoy.streams.link import Part, link
from convoy.streams.planner import multi_stream, single_stream
from convoy.streams.program import read

DTYPE = "float16"
CONVOLUTIONS = ("conv3", "conv1")
RUNS = 3
arenas: list[Any] = []


def convolutions() -> tuple[Any, dict[str, np.ndarray], dict[str, Any]]:
    """A runtime module with a 3x3 and a 1x1 convolution by engines that differ, their weights, and
    the same as functions on numpy arrays."""
    device = current_device()
    rng = np.random.default_rng(1)
    entries, weights, by_name, blobs = [], {}, {}, {}
    for name, size in zip(CONVOLUTIONS, (3, 1), strict=True):
        pad = size // 2
        n, h, w, c = SHAPE
        workload = Workload(
            "fprop", n, h, w, c, c, size, size, padding=(pad,) * 4, dtype=DTYPE, out_dtype=DTYPE
        )
        own = device.arch == 90 and size == 3
        backend = sm90_backend() if own else CudnnBackend()
        candidate = backend.propose(workload, device)[0]
        binary = backend.build(workload, candidate, device)
        entries.append({**binary.entry, "constant_weights": True, "symbol": name})
        blobs.update(binary.blobs)
        value = rng.uniform(-1, 1, (c, size, size, c)) / (size * size * c) ** 0.5
        weights[name] = value.astype(DTYPE)
        by_name[name] = convolve(weights[name].astype("float32"))
    return create_module(entries, blobs, arch=device.arch), weights, by_name


def convolve(weights: np.ndarray) -> Any:
    def apply(x: np.ndarray) -> np.ndarray:
        size = weights.shape[1]
        pad = size // 2
        padded = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (1, 2))
        return np.einsum("nhwcrs,krsc->nhwk", windows, weights, optimize=True)

    return apply


def distance(got: np.ndarray, expected: np.ndarray) -> float:
    """Relative L2 error."""
    return float(np.linalg.norm(got - expected) / (np.linalg.norm(expected) + 1e-3))


def keep_arenas() -> None:
    """Arenas as they are made, so that they can be filled from outside."""
    view = tvm_ffi.get_global_func("convoy.streams.view")

    def noticed(arena: Any, *more: Any) -> Any:
        if not any(arena.data_ptr() == a.data_ptr() for a in arenas):
            arenas.append(arena)
        return view(arena, *more)

    tvm_ffi.register_global_func("convoy.streams.view", noticed, override=True)


def poison(tensors: list[Any]) -> None:
    for tensor in [*arenas, *tensors]:
        function("cuda.fill")(tensor, 0xFF)


class Runner:
    """Kernels and convolutions, compiled once for all networks of this process."""

    def __init__(self) -> None:
        device = current_device()
        self.target = tvm.target.Target("nvidia/nvidia-h100" if device.arch == 90 else "cuda")
        self.target = tvm.target.Target(self.target, host="llvm")
        self.scheduled = schedule_all(kernels(DTYPE), self.target)
        self.kernels = Lowered(tvm.IRModule(self.scheduled), self.target).kernels
        self.external, weights, self.by_numpy = convolutions()
        self.weights = {name: relax.const(value) for name, value in weights.items()}

    def problems(self, seed: int) -> list[str]:
        rng = random.Random(seed)
        network = random_network(seed, rng.randint(4, 36), CONVOLUTIONS)
        calls = to_calls(network, self.target, DTYPE, self.scheduled, self.weights)
        lowered = Lowered(calls, self.target, [self.external])
        lowered.kernels = self.kernels
        program = read(lowered.calls, Device())
        streams = rng.randint(2, 6)
        schedules: list[Schedule] = [
            single_stream(program.ops, program.buffers),
            multi_stream(program.ops, program.buffers, streams),
        ]
        wrong = []
        for schedule in schedules:
            executable = link([Part(lowered, program, schedule)])
            for graph in (False, True):
                for problem in self.run(network, executable, seed, graph):
                    wrong.append(f"{schedule.streams} streams, graph {graph}: {problem}")
        return wrong

    def rounding(self, network: Any, inputs: list[np.ndarray], index: int) -> float:
        """What float16 itself makes of a result: what is left of a difference of equals may be
        nothing but rounding."""
        wide = [x.astype("float32") for x in inputs]
        half, exact = (by_numpy(network, x, self.by_numpy)[index] for x in (inputs, wide))
        return distance(half, exact)

    def run(self, network: Any, executable: Any, seed: int, graph: bool) -> list[str]:
        info = tuple(TensorInfo(f"x{i}", SHAPE, DTYPE) for i in range(network.inputs))
        results = tuple(TensorInfo(f"y{i}", SHAPE, DTYPE) for i in range(len(network.results)))
        meta = Meta(info, results, "cuda", DTYPE, cuda_graph=graph)
        arenas.clear()
        session = Session(executable, meta, tvm.cuda(0))
        wrong = []
        rng = np.random.default_rng(seed)
        for run in range(RUNS + graph):
            inputs = [rng.uniform(-1, 1, SHAPE).astype(DTYPE) for _ in info]
            # First, because a result may be a view of an input.
            poison([session.output(i) for i in range(len(results))] if run > 1 else [])
            for i, x in enumerate(inputs):
                session.set_input(i, x)
            session.run()
            session.synchronize()
            want = by_numpy(network, inputs, self.by_numpy)
            for i, expected in enumerate(want):
                got = session.output(i).numpy().astype("float32")
                error = distance(got, expected)
                if not error < 0.01 and not error < self.rounding(network, inputs, i):
                    wrong.append(f"run {run}, result {i}: relative error {error:.2e}")
        return wrong


def main() -> None:
    first, last = map(int, sys.argv[1:])
    load_runtime()
    keep_arenas()
    runner = Runner()
    for seed in range(first, last):
        if problems := runner.problems(seed):
            print(json.dumps({"seed": seed, "problems": problems}), flush=True)
        print(json.dumps({"done": 1}), flush=True)


if __name__ == "__main__":
    main()
