"""Depthwise convolutions by one small kernel that also does what stands behind them.

cuDNN's engines for depthwise convolutions fuse nothing, CUTLASS has none: here bias, residual and
activation cost no second pass over memory.
"""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from convoy import paths
from convoy.backends.base import Backend, Binary
from convoy.backends.kernels.cache import KernelCache
from convoy.backends.kernels.toolkit import find_toolkit
from convoy.errors import CompileFailed
from convoy.ir.candidate import Candidate, Decline, make_config
from convoy.ir.device import Device
from convoy.ir.workload import Workload

SOURCE = Path(__file__).with_name("kernel.cu")
ELEMENTS = {"float32": "float", "float16": "__half"}
ACTIVATIONS = {"none": 0, "relu": 1, "clip": 2}


class DirectBackend(Backend):
    """Forward depthwise convolutions in float32 and float16. Of device arch 0 it makes a library
    for host memory."""

    name = "direct"
    libraries = ("cuda",)

    def accepts(self, workload: Workload, device: Device) -> Decline | None:
        if workload.op != "fprop":
            return self.decline(f"op {workload.op}", "use cudnn or cutlass")
        if workload.is_3d:
            return self.decline("a convolution over volumes", "use cudnn")
        if not workload.is_depthwise:
            return self.decline(f"groups = {workload.groups}", "as many groups as channels")
        if workload.epilogue.affine_relu:
            return self.decline("a second output", "fuse less")
        if workload.epilogue.activation not in ACTIVATIONS:
            return self.decline(
                f"activation {workload.epilogue.activation}", f"one of {', '.join(ACTIVATIONS)}"
            )
        if workload.epilogue.residual_last:
            return self.decline("a residual behind the activation", "fuse less")
        if workload.dtype not in ELEMENTS or workload.out_dtype != workload.dtype:
            return self.decline(f"{workload.dtype} in, {workload.out_dtype} out", "float16")
        if workload.acc_dtype != "float32":
            return self.decline(f"accumulation in {workload.acc_dtype}", "float32")
        if device.arch == 0 and workload.dtype != "float32":
            return self.decline(f"{workload.dtype} on host memory", "float32")
        return None

    def propose(self, workload: Workload, device: Device) -> Sequence[Candidate] | Decline:
        if (declined := self.accepts(workload, device)) is not None:
            return declined
        config = make_config(
            element=ELEMENTS[workload.dtype], activation=ACTIVATIONS[workload.epilogue.activation]
        )
        return [Candidate(self.name, "one_thread_an_output", config)]

    def build(self, workload: Workload, candidate: Candidate, device: Device) -> Binary:
        """Compile the kernel, or take it from the cache. Raises CompileFailed, LibraryMissing."""
        content = _library(candidate, device)
        sha256 = hashlib.sha256(content).hexdigest()
        entry = {
            "backend": "kernel",
            "workload": workload.to_json(),
            "library": sha256,
            "split_k": 1,
            "swizzle": 0,
        }
        return Binary(entry, {sha256: content})


def _library(candidate: Candidate, device: Device) -> bytes:
    """The kernel library of a candidate for a device."""
    command = _compiler(device)
    for name, value in candidate.options().items():
        command.append(f"-D{name.upper()}={value}")
    command.append(f"-I{paths.include_dir()}")
    key = hashlib.sha256("\0".join([*command, SOURCE.read_text()]).encode()).hexdigest()
    cache = KernelCache()
    if (entry := cache.get(key)) is not None:
        return entry.library
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "kernel.so"
        done = subprocess.run(
            [*command, "-o", str(library), str(SOURCE)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise CompileFailed(
                f"an error from the compiler:\n{done.stderr[-2000:]}\ncommand: {' '.join(command)}",
                "a kernel library",
            )
        return cache.put(key, library.read_bytes(), {"name": candidate.key}).library


def _compiler(device: Device) -> list[str]:
    if device.arch == 0:
        return ["c++", "-x", "c++", "-std=c++17", "-O2", "-shared", "-fPIC", "-fvisibility=hidden"]
    toolkit = find_toolkit()
    command = [str(toolkit.nvcc), f"-gencode=arch=compute_{device.arch},code=sm_{device.arch}"]
    command += ["-O3", "-std=c++17", "-shared", "-Xcompiler=-fPIC,-fvisibility=hidden"]
    command += ["-cudart=none", f"-Xlinker={toolkit.cudart}"]
    return command + [f"-I{path}" for path in toolkit.includes]
