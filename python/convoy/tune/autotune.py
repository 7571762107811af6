"""Tune workloads into records, for ``convoy tune`` and for scripts."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .. import paths
from ..backends import registry
from ..errors import InvalidOption, NoGpu
from ..ir.candidate import Candidate
from ..ir.defaults import LIBRARIES
from ..ir.workload import Workload
from ..records.environment import Environment
from ..records.store import RecordStore
from .budget import DEFAULT_BUDGET, Budget
from .executor import Executor
from .journal import Journal
from .local_executor import LocalExecutor, visible_gpus
from .measurer import Spec
from .observer import Observer, Outcome
from .proposer import Proposer
from .search import Exhaustive, InOrder, Random, Search
from .tuner import Tuner

if TYPE_CHECKING:  # NumPy takes a while to load, and a run may find everything in records
    from ..cost.ranking import Sample
    from ..records.record import Record

SEARCHES = ("model", "random", "exhaustive", "order")


def autotune(
    workloads: Sequence[Workload],
    *,
    records: str | os.PathLike[str] | None = None,
    backends: Sequence[str] = LIBRARIES,
    search: str | Search = "model",
    budget: Budget = DEFAULT_BUDGET,
    compile: bool = True,
    neighbours: bool = True,
    gpus: int | None = None,
    ray: str | None = None,
    seed: int = 0,
    spec: Spec | None = None,
    observer: Observer | None = None,
) -> Outcome:
    """Measure candidates of workloads and record them.

    Args:
        workloads: Duplicates count once.
        records: File that results are added to; default: the user's own. What it and the shipped
            records hold is not measured again, and the model learns from it.
        backends: Names of registered backends; records of others do not count as candidates.
        search: One of SEARCHES, or a Search.
        budget: Limits of the run.
        compile: False leaves out kernels that are not in the cache of compiled kernels.
        neighbours: Whether to measure configurations around the best that backends do not propose.
        gpus: Number of this machine's GPUs to use; default: all that are visible.
        ray: Address of a Ray cluster ("auto", "local" or host:port) whose GPUs are used instead.
        seed: Of the random search and of the model.
        spec: The measurer; default: GpuMeasurer with these backends.
        observer: Callbacks.

    Raises:
        NoGpu: No GPU is visible.
        InvalidOption: An unknown search or backend, or more GPUs than are visible.
        LibraryMissing: "model" needs xgboost, ``ray`` needs ray.
        CacheUnwritable: ``records`` cannot be written; see also :meth:`Tuner.tune`.
        MeasuringFailed: See :meth:`Tuner.tune`.
    """
    if isinstance(search, str) and search not in SEARCHES:
        raise InvalidOption(f"search {search!r}", f"one of {', '.join(SEARCHES)}")
    used = [registry.get(name) for name in backends]
    spec = spec or Spec(options={"backends": list(backends)})
    file = paths.user_records_file() if records is None else Path(records)
    paths.check_writable(file, make_folders=True)
    store = RecordStore([paths.records_dir()], write_to=file)
    tasks = list(dict.fromkeys(workloads))
    complete: set[str] = set()
    with contextlib.closing(_executor(spec, gpus, ray)) as executor:
        kernel = spec.make().kernel
        proposer = Proposer(used, executor, kernel, not compile, neighbours)
        # Candidates without compilation are measured in one round, workload by workload.
        compiled = kernel if compile else lambda candidate: ""

        def prior() -> list[Sample]:
            tuned = [workload for workload in tasks if workload.key not in complete]
            return prior_samples(store, executor.environment, tuned)

        if isinstance(search, str):
            search = make_search(search, executor, prior, compiled, seed)
        tuner = Tuner(
            executor, search, store, proposer.space, compiled, proposer.around, observer, backends
        )
        run = [dataclasses.asdict(budget), search.name, seed, executor.environment, compile]
        run += [neighbours, backends, [workload.key for workload in tasks]]
        journal = Journal(file, run)
        complete |= journal.begin(tuner.complete(tasks, budget), tuner.known(tasks))
        outcome = tuner.tune(tasks, budget, complete)
        journal.end(None if outcome.stopped else tuner.known(tasks))
        return outcome


def make_search(
    name: str,
    executor: Executor,
    prior: Callable[[], Iterable[Sample]],
    kernel: Callable[[Candidate], str],
    seed: int = 0,
) -> Search:
    """Return the search of a name. Raises InvalidOption for an unknown one."""
    if name == "random":
        return Random(seed)
    if name == "exhaustive":
        return Exhaustive()
    if name == "order":
        return InOrder()
    if name == "model":
        from .guided import ModelGuided

        return ModelGuided(lambda: executor.device, prior, kernel, seed)
    raise InvalidOption(f"search {name!r}", f"one of {', '.join(SEARCHES)}")


def prior_samples(
    store: RecordStore, environment: Environment, excluded: Iterable[Workload] = ()
) -> list[Sample]:
    """Return the records of workloads other than ``excluded``: of each, those of this GPU or, where
    it has none, those of the GPU that has most."""
    from ..cost.ranking import Sample

    left_out = {workload.key for workload in excluded}
    samples = []
    for workload in store.workloads():
        if workload.key in left_out:
            continue
        by_gpu: dict[str, list[Record]] = defaultdict(list)
        for record in store.of(workload):
            by_gpu[record.environment.gpu].append(record)
        records = by_gpu.get(environment.gpu) or max(by_gpu.values(), key=len)
        samples.append(Sample(workload, tuple((r.candidate, r.measurement) for r in records)))
    return samples


def _executor(spec: Spec, gpus: int | None, ray: str | None) -> Executor:
    if ray is not None:
        from .ray_executor import RayExecutor

        return RayExecutor(spec, ray)
    visible = visible_gpus()
    if not visible:
        raise NoGpu("no GPU", "a GPU to measure on", "Run on a machine with one, or use --ray.")
    if gpus is not None and not 1 <= gpus <= len(visible):
        raise InvalidOption(f"gpus = {gpus}", f"1 to {len(visible)}, the visible GPUs")
    return LocalExecutor(spec, visible[:gpus])
