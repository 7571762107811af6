"""The measurer of kernels on a GPU."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence

from ..backends.base import Backend, Binary
from ..errors import ConvoyError, InvalidOption
from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.workload import Workload
from ..records.environment import Environment
from .measurer import Measurer


class GpuMeasurer(Measurer):
    """Measures candidates of registered backends on GPU 0 by :mod:`convoy.measure.protocol`.

    Args:
        backends: Names of the backends.
        cold: Also measure with a flushed L2 cache.
    """

    def __init__(self, backends: Sequence[str], cold: bool = True) -> None:
        self._names, self._cold = tuple(backends), cold
        self._ready: tuple[Workload, Candidate, Binary | Measurement] | None = None

    @functools.cached_property
    def _backends(self) -> dict[str, Backend]:
        from ..backends import registry

        return {name: registry.get(name) for name in self._names}

    @functools.cached_property
    def _device(self) -> Device:
        from ..runtime import current_device

        return current_device()

    def describe(self) -> tuple[Device, Environment]:
        return self._device, self.environment()

    def environment(self) -> Environment:
        # Without the runtime, which would load tvm_ffi, and that PyTorch where it is installed.
        from ..records import environment

        found = environment.current()
        if not found.gpu:
            _ = self._device  # raises NoGpu
        return found

    def ready(self, workload: Workload, candidate: Candidate) -> None:
        from ..measure import protocol

        binary: Binary | Measurement
        try:
            binary = self._backend(candidate).build(workload, candidate, self._device)
            protocol.prepare(workload)
        except (ConvoyError, RuntimeError, ValueError) as err:
            binary = Measurement(failure=f"{type(err).__name__}: {err}"[:500])
        self._ready = workload, candidate, binary

    def measure(
        self, workload: Workload, candidate: Candidate, best_us: float | None
    ) -> Measurement:
        from ..measure import protocol

        if self._ready is None or self._ready[:2] != (workload, candidate):
            self.ready(workload, candidate)
        assert self._ready is not None
        binary, self._ready = self._ready[2], None
        if isinstance(binary, Measurement):
            return binary
        return protocol.measure(
            workload, candidate, binary, self._device, best_us=best_us, cold=self._cold
        )

    def kernel(self, candidate: Candidate) -> str:
        kernel = candidate.kernel_fields()
        return f"{candidate.backend} {json.dumps(kernel, sort_keys=True)}" if kernel else ""

    def prepare(self, workload: Workload, candidate: Candidate) -> None:
        backend = self._backend(candidate)
        backend.check(candidate)  # then its architecture is one that kernels are made for
        arch = candidate.kernel_fields().get("arch", 90)
        assert isinstance(arch, int)
        device = Device(arch=arch)
        backend.prepare([(workload, candidate)], device)
        backend.build(workload, candidate, device)  # raises the reason of a failure

    def narrow(self, environment: Environment, candidate: Candidate) -> Environment:
        backend = self._backend(candidate)
        return environment.narrowed(backend.libraries, backend.kernel_source(candidate))

    def _backend(self, candidate: Candidate) -> Backend:
        if candidate.backend not in self._backends:
            raise InvalidOption(f"candidate {candidate.key}", f"one of {', '.join(self._names)}")
        return self._backends[candidate.backend]
