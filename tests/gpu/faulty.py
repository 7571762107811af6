"""A measurer for candidates whose kernel misbehaves on purpose, beside those of backends."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from convoy import paths
from convoy.backends.base import Binary
from convoy.backends.kernels.toolkit import find_toolkit
from convoy.ir.candidate import Candidate, make_config
from convoy.ir.measurement import Measurement
from convoy.ir.workload import Workload
from convoy.measure import protocol
from convoy.records.environment import Environment
from convoy.tune.gpu_measurer import GpuMeasurer

FAULTS = {1: "illegal_access", 2: "hang", 3: "wrong", 4: "out_of_memory"}
BACKEND = "faulty"


def compile_fault(fault: int, folder: Path) -> Path:
    """The kernel library of a fault."""
    toolkit, library = find_toolkit(), folder / f"{FAULTS[fault]}.so"
    includes = [f"-I{path}" for path in (paths.include_dir(), *toolkit.includes)]
    command = [str(toolkit.nvcc), "-arch=sm_90a", f"-DFAULT={fault}", *includes]
    command += ["-shared", "-Xcompiler=-fPIC", "-cudart=none", f"-Xlinker={toolkit.cudart}"]
    command += ["-o", str(library), str(Path(__file__).with_name("faulty_kernel.cu"))]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return library


def candidate(fault: int, folder: Path) -> Candidate:
    library = str(compile_fault(fault, folder))
    return Candidate(BACKEND, FAULTS[fault], make_config(library=library))


class FaultyMeasurer(GpuMeasurer):
    """Appends one line for each measurement to ``log``."""

    def __init__(self, log: str, **options) -> None:
        super().__init__(**options)
        self._log = Path(log)

    def measure(
        self, workload: Workload, candidate: Candidate, best_us: float | None
    ) -> Measurement:
        with self._log.open("a") as stream:
            stream.write(f"{workload.key} {candidate.key} {os.getpid()}\n")
        if candidate.backend != BACKEND:
            return super().measure(workload, candidate, best_us)
        library = Path(candidate.options()["library"]).read_bytes()
        digest = hashlib.sha256(library).hexdigest()
        entry = {
            "workload": workload.to_json(),
            "backend": "kernel",
            "library": digest,
            "split_k": 1,
            "swizzle": 0,
        }
        binary = Binary(entry, {digest: library})
        return protocol.measure(workload, candidate, binary, self._device, best_us=best_us)

    def narrow(self, environment: Environment, candidate: Candidate) -> Environment:
        if candidate.backend == BACKEND:
            return environment
        return super().narrow(environment, candidate)
