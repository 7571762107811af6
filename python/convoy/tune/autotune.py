"""From workloads to records: everything put together, for ``convoy tune`` and for scripts."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .. import paths
from ..backends import registry
from ..errors import InvalidOption, NoGpu
from ..ir.candidate import Candidate
from ..ir.workload import Workload
from ..records.environment import Environment
from ..records.store import RecordStore
from .executor import Executor, LocalExecutor, visible_gpus
from .journal import Journal
from .measurer import Spec
from .search import Exhaustive, InOrder, Random, Search
from .space import Space, propose
from .tuner import Budget, Observer, Outcome, Tuner

if TYPE_CHECKING:  # NumPy takes a while to load, and a run may find all it wants in records
    from ..cost.ranking import Sample

SEARCHES = ("model", "random", "exhaustive", "order")
DEFAULT_BUDGET = Budget()
BACKENDS = ("cudnn", "cutlass", "hopper")


def autotune(
    workloads: Sequence[Workload],
    *,
    records: str | os.PathLike[str] | None = None,
    backends: Sequence[str] = BACKENDS,
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

    Arguments:
        records: file that results are added to; default: the user's own. What it and the shipped
            records hold is not measured again, and the model learns from it.
        backends: names of registered backends; records of others do not count as candidates.
        search: one of SEARCHES, or a Search.
        compile: False leaves out kernels that are not in the cache of compiled kernels.
        neighbours: whether to look at configurations around the best that backends do not propose.
        gpus: how many of this machine's GPUs to use; default: all that are visible.
        ray: address of a Ray cluster ("auto", "local" or host:port) whose GPUs are used instead.
        seed: of the random search and of the model.
        spec: what measures; default: GpuMeasurer with these backends.

    Raises NoGpu without a GPU, InvalidOption, LibraryMissing without xgboost for "model" and
    without ray for ``ray``, and the errors of :meth:`Tuner.tune`.
    """
    if isinstance(search, str) and search not in SEARCHES:
        raise InvalidOption(f"search {search!r}", f"one of {', '.join(SEARCHES)}")
    used = [registry.get(name) for name in backends]
    spec = spec or Spec(options={"backends": list(backends)})
    file = paths.user_records_file() if records is None else Path(records)
    store = RecordStore([paths.records_dir()], write_to=file)
    with contextlib.closing(_executor(spec, gpus, ray)) as executor:
        kernel = spec.make().kernel
        tasks = list(dict.fromkeys(workloads))

        ready: dict[str, bool] = {}

        def keep(candidate: Candidate) -> bool:
            name = kernel(candidate)
            if compile or not name:
                return True
            if name not in ready:
                ready[name] = registry.get(candidate.backend).is_ready(candidate)
            return ready[name]

        def space(workload: Workload) -> Space:
            return propose(workload, used, executor.device, keep)

        # What waits for no compiler is measured in one go, workload by workload.
        waits_for = kernel if compile else lambda candidate: ""
        complete: set[str] = set()

        def prior() -> list[Sample]:
            own = [workload for workload in tasks if workload.key not in complete]
            return prior_samples(store, executor.environment, own)

        if isinstance(search, str):
            search = make_search(search, executor, prior, waits_for, seed)

        def around(workload: Workload, candidate: Candidate) -> Sequence[Candidate]:
            if not neighbours:
                return ()
            backend = registry.get(candidate.backend)
            found = backend.neighbours(workload, candidate, executor.device)
            return [c for c in found if keep(c)]

        tuner = Tuner(executor, search, store, space, waits_for, around, observer, backends)
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
    """The search of a name. Raises InvalidOption for another one."""
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
    """What records of this GPU tell of workloads other than ``excluded``, by workload and, as
    times from two environments do not compare, by environment family."""
    from ..cost.ranking import Sample

    left_out = {workload.key for workload in excluded}
    samples = []
    for workload in store.workloads():
        if workload.key in left_out:
            continue
        records = [
            r
            for r in store.of(workload)
            if not environment.gpu or r.environment.gpu == environment.gpu
        ]
        if records:
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
