"""Base class of executors, which run jobs on the GPUs of this machine or of a cluster."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Sequence

from ..ir.device import Device
from ..records.environment import Environment
from .job import Job, Result


class Executor(abc.ABC):
    """Runs jobs.

    Attributes:
        slots: Jobs that may be under way at once, those that wait for compilations included.
        device: The GPU that is measured on.
        environment: All else that measurements depend on.
    """

    slots: int
    device: Device
    environment: Environment

    @abc.abstractmethod
    def run(self, job: Job, stop: Callable[[], bool] = lambda: False) -> Iterator[Result]:
        """Yield the results of a job as they come; called by ``slots`` threads at once.

        Ends early once ``stop()`` is true. Raises MeasuringFailed where nothing can be measured.
        """

    def start(self) -> None:
        """Start processes ahead of the first job. Optional."""

    def announce(self, jobs: Sequence[Job]) -> None:
        """Compile the kernels of jobs that will be run while others are measured. Optional."""

    def close(self) -> None:
        """End all processes."""

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
