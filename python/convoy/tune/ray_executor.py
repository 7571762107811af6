"""The GPUs of a Ray cluster: a LocalExecutor in an actor on each machine."""

from __future__ import annotations

import dataclasses
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ..errors import InvalidOption, LibraryMissing, MeasuringFailed, NoGpu
from ..ir.candidate import Candidate
from ..ir.device import Device
from ..paths import install_command
from ..records.environment import Environment
from .executor import Executor
from .job import Job, Result
from .local_executor import LocalExecutor
from .measurer import Spec

if TYPE_CHECKING:
    from types import ModuleType

    from ray import ObjectRef
    from ray.actor import ActorHandle

JOBS_OF_A_MACHINE = 64


class _Machine:
    """The actor on one machine, whose CUDA_VISIBLE_DEVICES Ray has set."""

    def __init__(self, spec: str, has_gpus: bool, compile_jobs: int | None) -> None:
        names = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if has_gpus else [None]
        self._executor = LocalExecutor(Spec.loads(spec), names, compile_jobs)
        self._halted = -1

    def about(self) -> tuple[Device, Environment]:
        return self._executor.device, self._executor.environment

    def run(self, job: Job, epoch: int) -> Iterator[Result]:
        yield from self._executor.run(job, lambda: epoch <= self._halted)

    def halt(self, epoch: int) -> None:
        """End the jobs of this epoch and of earlier ones."""
        self._halted = max(self._halted, epoch)

    def close(self) -> None:
        self._executor.close()


class RayExecutor(Executor):
    """Measures on every machine of a Ray cluster that has GPUs, and compiles there.

    convoy must be installed on every machine. Jobs of a machine that is lost go to the others.

    Args:
        spec: The measurer.
        address: "auto" (the cluster that this machine belongs to), "local" (a new one on this
            machine) or host:port.
        gpus: False uses machines without a GPU, for measurers that need none.
        compile_jobs: Compilers at once on each machine.

    Raises:
        LibraryMissing: ray is not installed.
        NoGpu: No machine has a GPU.
        InvalidOption: Machines have different GPUs, or no cluster answers.
    """

    def __init__(
        self,
        spec: Spec,
        address: str = "auto",
        *,
        gpus: bool = True,
        compile_jobs: int | None = None,
    ) -> None:
        self._ray = _ray()
        self._owner = _connect(self._ray, address)
        self._lock = threading.Lock()
        self._load: dict[ActorHandle, int] = {}
        self._epoch = 0
        try:
            self._start(spec, gpus, compile_jobs)
        except BaseException:
            self.close()
            raise

    def _start(self, spec: Spec, gpus: bool, compile_jobs: int | None) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        # A checkout is found by path; on other machines, where that path is not, convoy is
        # installed.
        variables = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        machine = self._ray.remote(_Machine)
        for node in self._ray.nodes():
            count = int(node["Resources"].get("GPU", 0)) if gpus else 0
            if not node["Alive"] or (gpus and not count):
                continue
            actor = machine.options(
                num_gpus=count,
                num_cpus=0,
                max_concurrency=JOBS_OF_A_MACHINE + 8,  # they wait for kernels and the GPU inside
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
                runtime_env={"env_vars": variables},
            ).remote(spec.dumps(), gpus, compile_jobs)
            self._load[actor] = 0
        if not self._load:
            raise NoGpu("a Ray cluster without GPUs", "a machine with a GPU in it")
        answers = [self._ask(actor.about.remote()) for actor in self._load]
        self.device, self.environment = answers[0]
        for device, _ in answers:
            if device != self.device:
                raise InvalidOption(
                    f"a Ray cluster with {self.device.name} and {device.name}",
                    "machines with the same GPU",
                    "Tune each kind in a cluster of its own, then merge the records.",
                )
        # Enough that machines know of all kernels that they will need while they measure.
        self.slots = JOBS_OF_A_MACHINE * len(self._load)

    def _ask(self, reference: ObjectRef) -> Any:
        """Wait for a machine's answer; raise the error that it raised there."""
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as err:
            raise err.cause from None
        except self._ray.exceptions.RayActorError as err:
            raise MeasuringFailed(
                f"a machine of the Ray cluster that does not start ({err})", "one that measures"
            ) from None

    def run(self, job: Job, stop: Callable[[], bool] = lambda: False) -> Iterator[Result]:
        left: list[Candidate] = list(job.candidates)
        while left and not stop():
            actor = self._least_busy()
            try:
                part = dataclasses.replace(job, candidates=tuple(left))
                epoch = self._epoch
                stream = actor.run.options(num_returns="streaming").remote(part, epoch)
                for reference in stream:
                    result: Result = self._ask(reference)
                    left.remove(result.candidate)
                    yield result
                    if stop():
                        self._halt(epoch)
                        return
                return
            except (MeasuringFailed, self._ray.exceptions.RayError) as err:
                self._drop(actor, err)  # the rest goes to another machine
            finally:
                with self._lock:
                    if actor in self._load:
                        self._load[actor] -= 1

    def _halt(self, epoch: int) -> None:
        """Cancel jobs that wait for kernels or for a GPU."""
        with self._lock:
            self._epoch = max(self._epoch, epoch + 1)
            for actor in self._load:
                actor.halt.remote(epoch)

    def _least_busy(self) -> ActorHandle:
        with self._lock:
            actor = min(self._load, key=lambda a: self._load[a])
            self._load[actor] += 1
            return actor

    def _drop(self, actor: ActorHandle, why: Exception) -> None:
        with self._lock:
            self._load.pop(actor, None)
            if not self._load:
                raise MeasuringFailed(
                    f"a Ray cluster whose machines are all lost, the last one by: {why}",
                    "at least one machine that measures",
                ) from why

    def close(self) -> None:
        for actor in self._load:
            actor.close.remote()
            self._ray.kill(actor)
        self._load.clear()
        if self._owner:
            self._ray.shutdown()


def _ray() -> ModuleType:
    try:
        import ray
    except ImportError as err:
        raise LibraryMissing(
            f"no ray ({err})", "ray, for tuning on many machines", install_command("ray")
        ) from None
    return ray


def _connect(ray: ModuleType, address: str) -> bool:
    """Join the cluster; return whether this executor has to leave it again."""
    if ray.is_initialized():
        return False
    try:
        ray.init(address=address, log_to_driver=False, include_dashboard=False)
    except TypeError:
        ray.init(address=address, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError) as err:
        raise InvalidOption(
            f"Ray address {address!r} ({err})", "auto, local, or host:port of a running cluster"
        ) from None
    return True
