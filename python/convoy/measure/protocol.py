"""The one timing routine of candidates: every measurement of a kernel comes from here."""

from __future__ import annotations

import dataclasses
import itertools
import math
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

import numpy as np

from ..backends.base import Binary
from ..backends.load import load_binary
from ..errors import ConvoyError
from ..ir.candidate import Candidate
from ..ir.defaults import SAMPLES_MS
from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.workload import Workload
from ..runtime.library import function
from .gpu_lock import gpu_lock
from .network import spread_us
from .problem import Blueprint, Problem, error_of, make_blueprint, on_gpu, tolerance

if TYPE_CHECKING:
    import tvm_ffi

# Launches in one captured graph: as many as take about a millisecond, within these bounds. The gap
# between two replays is then under half a percent of what is timed.
LEAST_LAUNCHES, LAUNCHES = 4, 20
REPLAY_US = 1000.0
# Sets of tensors that the launches of a chain take cyclically, so that none writes what the one
# before it reads or writes.
CHAIN_SETS = 3
# Replays of it at most; few for candidates that are slower than the best by so much.
SAMPLES = 30
PRUNING_SAMPLES = 3
PRUNE_ABOVE = 1.5

# Workloads whose random blocks and reference are kept, a megabyte or two each: within a budget
# the second guesses come after the first ones of all workloads.
_MOST_BLUEPRINTS = 64


def measure(
    workload: Workload,
    candidate: Candidate,
    binary: Binary,
    device: Device,
    *,
    best_us: float | None = None,
    budget_ms: float = SAMPLES_MS,
    cold: bool = True,
) -> Measurement:
    """Measure one built candidate on the current GPU.

    A candidate whose kernel takes more than 1.5 times ``best_us`` is measured with few samples and
    without a cold cache. ``budget_ms`` bounds the time spent on samples, not on building.
    Whatever goes wrong becomes ``failure``; only when the GPU itself is lost, after which nothing
    more can be measured in this process, a RuntimeError is raised.
    """
    try:
        problem = _problem(workload)
        # Started when its predecessor has ended, as behind any kernel.
        run = load_binary(binary, device, programmatic=False)
        error = error_of(problem, run)
        link = None
        if binary.entry.get("programmatic"):
            link = load_binary(binary, device, constant_weights=True)
            error = max(error, error_of(problem, link))
        limit = tolerance(workload)
        if not error <= limit:
            return Measurement(
                error=error if math.isfinite(error) else None,
                failure=f"relative L2 error {error:.1e} above {limit:.0e}",
            )
        flushed = 2 * device.l2_bytes if cold else 0
        with gpu_lock():
            times = _time(problem, run, link, flushed, best_us, budget_ms * 1e3)
        return dataclasses.replace(times, error=error)
    except (ConvoyError, RuntimeError, ValueError, TypeError) as err:
        _raise_if_lost(candidate, err)
        return Measurement(failure=f"{type(err).__name__}: {err}"[:500])


def prepare(workload: Workload) -> Blueprint:
    """Prepare a measurement of the workload without the GPU: random blocks and the reference.

    :func:`measure` does this itself if necessary; done in advance, by any thread, it overlaps with
    another measurement.
    """
    with _lock:
        known = _blueprints.get(workload.key)
        if known is None:
            if len(_blueprints) == _MOST_BLUEPRINTS:
                _blueprints.pop(next(iter(_blueprints)))
            rng, made = np.random.default_rng(next(_seeds)), Future[Blueprint]()
            _blueprints[workload.key] = made
    if known is not None:
        return known.result()
    try:
        made.set_result(make_blueprint(workload, rng))
    except BaseException as error:
        made.set_exception(error)
        raise
    return made.result()


_seeds = itertools.count(1)
_lock = threading.Lock()
_blueprints: dict[str, Future[Blueprint]] = {}
_problems: dict[str, Problem] = {}


def _problem(workload: Workload) -> Problem:
    """The problem of a workload; the last one is kept, since candidates come workload by workload
    and tensors may fill much of the memory."""
    if workload.key not in _problems:
        _problems.clear()
        _problems[workload.key] = on_gpu(workload, prepare(workload))
    return _problems[workload.key]


def release() -> None:
    """Free the tensors of the last workload."""
    _problems.clear()
    _blueprints.clear()


def _over_sets(problem: Problem, run: tvm_ffi.Function) -> Callable[..., None]:
    """A call of a kernel that takes other tensors than the call before."""
    while len(problem.spare) < CHAIN_SETS - 1:
        problem.spare.append(on_gpu(problem.workload, prepare(problem.workload)).tensors)
    sets = itertools.cycle([problem.tensors, *problem.spare])

    def call(*_: object) -> None:
        run(*next(sets))

    return call


def _time(
    problem: Problem,
    run: tvm_ffi.Function,
    link: tvm_ffi.Function | None,
    flushed: int,
    best_us: float | None,
    budget_us: float,
) -> Measurement:
    """Time a kernel.

    Args:
        link: The kernel launched programmatically, to be timed in a chain of itself.
        flushed: Bytes that are written before each cold launch; 0 for no cold launches.
        best_us: The best kernel's time; one that is much slower is timed less often.
        budget_us: Microseconds that the samples of each kind may take, about.
    """

    def samples_of(name: str, *arguments: object, call: Callable[..., object] = run) -> np.ndarray:
        timer = function(f"measure.{name}")
        return np.array(list(timer(call, problem.tensors, 0, *arguments)))

    e2e = samples_of("e2e_us", SAMPLES, budget_us / 4)
    launches = _launches(float(np.median(e2e)))
    kernel = samples_of("kernel_us", launches, PRUNING_SAMPLES, budget_us)
    pruned = best_us is not None and float(np.median(kernel)) > PRUNE_ABOVE * best_us
    rest = (PRUNING_SAMPLES if pruned else SAMPLES, budget_us / 4)
    cold_us = chained_us = None
    if not pruned:
        kernel = samples_of("kernel_us", launches, *rest)
        if flushed:
            buffer = function("cuda.empty")((flushed,), "uint8", 0)
            cold_us = float(np.median(samples_of("cold_us", buffer, launches // 2, *rest)))
        if link is not None:
            chain = samples_of("kernel_us", launches, *rest, call=_over_sets(problem, link))
            chained_us = float(np.median(chain))
    enqueue = samples_of("enqueue_us", launches, *rest)
    return Measurement(
        kernel_us=float(np.median(kernel)),
        kernel_spread_us=spread_us(kernel),
        cold_us=cold_us,
        enqueue_us=float(np.median(enqueue)),
        enqueue_spread_us=spread_us(enqueue),
        e2e_us=float(np.median(e2e)),
        e2e_spread_us=spread_us(e2e),
        samples=len(kernel),
        chained_us=chained_us,
    )


def _launches(one_us: float) -> int:
    """Number of launches in a replay, for a kernel that takes at most this time."""
    return max(LEAST_LAUNCHES, min(LAUNCHES, math.ceil(REPLAY_US / one_us)))


def _raise_if_lost(candidate: Candidate, cause: BaseException) -> None:
    """An illegal access makes every later call of the process fail, so going on would record
    failures of candidates that are good."""
    try:
        function("cuda.synchronize")(0)
    except ConvoyError:
        return  # no CUDA at all: that is the failure itself
    except RuntimeError as err:
        raise RuntimeError(
            f"the GPU stopped working after {candidate.key}: {cause}. Nothing more can be measured "
            "in this process; leave this candidate out and start again"
        ) from err
