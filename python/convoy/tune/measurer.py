"""The base class of measurers: compile a candidate ahead of time, and measure it."""

from __future__ import annotations

import abc
import importlib
import json
from dataclasses import dataclass, field

from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.workload import Workload
from ..records.environment import Environment


class Measurer(abc.ABC):
    """Measures candidates.

    One object lives in the measuring process, another in its supervisor, which calls everything but
    :meth:`ready` and :meth:`measure`.
    """

    @abc.abstractmethod
    def describe(self) -> tuple[Device, Environment]:
        """Return the GPU of this process and all that measurements depend on. Raises NoGpu."""

    def environment(self) -> Environment:
        """Return the environment alone, which may be known sooner. Raises NoGpu."""
        return self.describe()[1]

    def ready(self, workload: Workload, candidate: Candidate) -> None:
        """Prepare a measurement without the GPU, right before :meth:`measure`. Optional. Another
        process may be measuring on the GPU meanwhile."""

    @abc.abstractmethod
    def measure(
        self, workload: Workload, candidate: Candidate, best_us: float | None
    ) -> Measurement:
        """Measure one candidate.

        Args:
            workload: The workload.
            candidate: Compiled, where :meth:`kernel` names something to compile.
            best_us: Fastest kernel known; much slower ones are measured less closely.

        Raises:
            RuntimeError: This process has lost the GPU. Any other mishap is the measurement's
                ``failure``.
        """

    def kernel(self, candidate: Candidate) -> str:
        """Return the name of the library to compile before measuring; empty for none.

        Candidates with the same name share it.
        """
        return ""

    def prepare(self, workload: Workload, candidate: Candidate) -> None:
        """Compile that library on this machine; called by several threads at once.

        Raises:
            CompileFailed: This kernel does not compile.
            LibraryMissing: No kernel compiles without a library.
            CacheUnwritable: No kernel can be stored.
        """

    def narrow(self, environment: Environment, candidate: Candidate) -> Environment:
        """Return the part of an environment that a candidate's measurement depends on."""
        return environment


@dataclass(frozen=True)
class Spec:
    """A measurer as data, so that other processes and machines can make it.

    Attributes:
        measurer: Its class as ``module:name``.
        options: Keyword arguments of the class, JSON types only.
    """

    measurer: str = "convoy.tune.gpu_measurer:GpuMeasurer"
    options: dict[str, object] = field(default_factory=dict)

    def make(self) -> Measurer:
        module, _, name = self.measurer.partition(":")
        measurer: Measurer = getattr(importlib.import_module(module), name)(**self.options)
        return measurer

    def dumps(self) -> str:
        return json.dumps({"measurer": self.measurer, "options": self.options})

    @classmethod
    def loads(cls, text: str) -> Spec:
        return cls(**json.loads(text))
