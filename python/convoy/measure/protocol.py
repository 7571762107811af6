"""The one timing routine of candidates: every measurement of a kernel comes from here.

Inputs are uniform random numbers, fresh for each workload: a random block of a prime number of
elements, repeated over the tensor, so that no offset within a tensor looks like another and the
reference knows every element without a copy of it. Outputs are NaN before the run that is checked.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..backends.base import Binary
from ..backends.load import load_binary
from ..errors import ConvoyError
from ..ir.candidate import Candidate
from ..ir.device import Device
from ..ir.measurement import Measurement
from ..ir.workload import Workload
from ..runtime.library import function
from . import dtypes, reference
from .turns import turn

if TYPE_CHECKING:
    import tvm_ffi

# Launches in one captured graph: as many as take about a millisecond, within these bounds. The gap
# between two replays is then under half a percent of what is timed.
LEAST_LAUNCHES, LAUNCHES = 4, 20
REPLAY_US = 1000.0
# Sets of tensors that the launches of a chain take in turns, so that none writes what the one
# before it reads or writes.
CHAIN_SETS = 3
# Replays of it at most; few for candidates that are slower than the best by so much.
SAMPLES = 30
PRUNING_SAMPLES = 3
PRUNE_ABOVE = 1.5

# Elements of the random block: a prime, so that no power of two divides the period.
_BLOCK = 262_139
# Outputs up to this many elements are searched for NaN as a whole.
_SCAN_LIMIT = 1 << 23
# Workloads whose random blocks and reference are kept, a megabyte or two each: within a budget
# the second guesses come after the first ones of all workloads.
_MOST_BLUEPRINTS = 64

# Largest relative L2 error against float64 by the type that the result was rounded to. float16 and
# bfloat16 round with 11 and 8 bits: 2.8e-4 and 2.3e-3 at worst on average.
TOLERANCE = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-5, "tf32": 2e-3}


def tolerance(workload: Workload) -> float:
    """Largest relative L2 error that counts as right for this workload."""
    if workload.math == "tf32":
        return max(TOLERANCE["tf32"], TOLERANCE[workload.out_dtype])
    return TOLERANCE[workload.out_dtype]


def measure(
    workload: Workload,
    candidate: Candidate,
    binary: Binary,
    device: Device,
    *,
    best_us: float | None = None,
    budget_ms: float = 20.0,
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
        with turn():
            return _time(problem, run, link, device, error, best_us, budget_ms * 1e3, cold)
    except (ConvoyError, RuntimeError, ValueError, TypeError) as err:
        _raise_if_lost(candidate, err)
        return Measurement(failure=f"{type(err).__name__}: {err}"[:500])


def prepare(workload: Workload) -> None:
    """Prepare a measurement of the workload without the GPU: random blocks and the reference.

    :func:`measure` does this itself if necessary; done in advance, it overlaps with the measurement
    of another process.
    """
    if workload.key not in _blueprints:
        if len(_blueprints) == _MOST_BLUEPRINTS:
            _blueprints.pop(next(iter(_blueprints)))
        rng = np.random.default_rng(next(_seeds))
        _blueprints[workload.key] = make_blueprint(workload, rng)


@dataclass
class Blueprint:
    """The host's part of a problem: blocks of random inputs by name, and the expected outputs."""

    blocks: dict[str, np.ndarray]
    expected: list[reference.Sample]


@dataclass
class Problem:
    """A workload with its tensors on the GPU and what its outputs should be; ``spare`` has more
    sets of tensors, for chains of launches."""

    workload: Workload
    tensors: list[tvm_ffi.Tensor]
    outputs: dict[str, tvm_ffi.Tensor]
    expected: list[reference.Sample]
    spare: list[list[tvm_ffi.Tensor]] = field(default_factory=list)


_seeds = itertools.count(1)
_blueprints: dict[str, Blueprint] = {}
_problems: dict[str, Problem] = {}


def _problem(workload: Workload) -> Problem:
    """The problem of a workload; the last one is kept, since candidates come workload by workload
    and tensors may fill much of the memory."""
    if workload.key not in _problems:
        _problems.clear()
        prepare(workload)
        _problems[workload.key] = _on_gpu(workload, _blueprints[workload.key])
    return _problems[workload.key]


def release() -> None:
    """Free the tensors of the last workload."""
    _problems.clear()
    _blueprints.clear()


def make_problem(workload: Workload, rng: np.random.Generator) -> Problem:
    """Tensors with random inputs on GPU 0, and the exact outputs at sampled places."""
    return _on_gpu(workload, make_blueprint(workload, rng))


def make_blueprint(workload: Workload, rng: np.random.Generator) -> Blueprint:
    """Random inputs, as blocks that are repeated over the tensors, and the expected outputs."""
    shapes = workload.operand_shapes()
    blocks: dict[str, np.ndarray] = {}
    operands: dict[str, reference.Operand] = {}
    for name, shape, dtype in shapes[: len(shapes) - workload.num_outputs]:
        size = min(_BLOCK, math.prod(shape))
        values = (2 * rng.random(size, np.float32) - 1) * np.float32(_scale(workload, name))
        blocks[name] = dtypes.encode(values, dtype)
        operands[name] = reference.Operand(dtypes.decode(blocks[name], dtype))
    return Blueprint(blocks, reference.sample(workload, operands, rng))


def _on_gpu(workload: Workload, blueprint: Blueprint) -> Problem:
    empty, tile = function("cuda.empty"), function("cuda.tile")
    tensors: list[tvm_ffi.Tensor] = []
    outputs: dict[str, tvm_ffi.Tensor] = {}
    for name, shape, dtype in workload.operand_shapes():
        tensors.append(empty(shape, dtype, 0))
        if name in blueprint.blocks:
            tile(_tensor(blueprint.blocks[name]), tensors[-1])
        else:
            outputs[name] = tensors[-1]
    return Problem(workload, tensors, outputs, blueprint.expected)


def _scale(workload: Workload, name: str) -> float:
    """Scale of the inputs that keeps outputs near 1 for any length of the reduction, so that no
    type overflows and no activation saturates: uniform numbers from -1 to 1 have variance 1/3."""
    if workload.op == "attention":
        return 1.0  # the result is an average of v
    if workload.op == "wgrad":
        length = workload.pixels
        return 3 / math.sqrt(length) if name == "dy" else 1.0
    channels = workload.k if workload.op == "dgrad" else workload.c
    length = channels // workload.groups * workload.taps
    return 3 / math.sqrt(length) if name == "w" else 1.0


def _tensor(array: np.ndarray) -> tvm_ffi.Tensor:
    import tvm_ffi

    return tvm_ffi.from_dlpack(array)


def error_of(problem: Problem, run: tvm_ffi.Function) -> float:
    """Relative L2 error of one run over all sampled outputs; infinite where a NaN is left."""
    fill, gather, copy = (function(f"cuda.{name}") for name in ("fill", "gather", "copy"))
    for output in problem.outputs.values():
        fill(output, 0xFF)
    function("measure.call")(run, problem.tensors, 0)
    dtype = problem.workload.out_dtype
    difference = norm = 0.0
    for expected in problem.expected:
        output = problem.outputs[expected.name]
        stored = np.empty(expected.values.shape, dtypes.STORAGE[dtype])
        gather(output, _tensor(expected.starts.astype(np.int64)), expected.run, _tensor(stored))
        got = dtypes.decode(stored, dtype)
        difference += float(np.sum((got - expected.values) ** 2))
        norm += float(np.sum(expected.values**2))
        size = math.prod(output.shape)
        if size <= _SCAN_LIMIT:
            whole = np.empty(size, dtypes.STORAGE[dtype])
            copy(output, _tensor(whole))
            if dtypes.any_nan(whole, dtype):
                return math.inf
    if not math.isfinite(difference):
        return math.inf
    return math.sqrt(difference / norm) if norm else math.sqrt(difference)


def _in_turns(problem: Problem, run: tvm_ffi.Function) -> Callable[..., None]:
    """A call of a kernel that takes other tensors than the call before."""
    while len(problem.spare) < CHAIN_SETS - 1:
        blueprint = _blueprints[problem.workload.key]
        problem.spare.append(_on_gpu(problem.workload, blueprint).tensors)
    sets = itertools.cycle([problem.tensors, *problem.spare])

    def call(*_: object) -> None:
        run(*next(sets))

    return call


def _time(
    problem: Problem,
    run: tvm_ffi.Function,
    link: tvm_ffi.Function | None,
    device: Device,
    error: float,
    best_us: float | None,
    budget_us: float,
    cold: bool,
) -> Measurement:
    def samples_of(name: str, *arguments: float, call: Callable[..., object] = run) -> np.ndarray:
        timer = function(f"measure.{name}")
        return np.array(list(timer(call, problem.tensors, 0, *arguments)))

    e2e = samples_of("e2e_us", SAMPLES, budget_us / 4)
    launches = _launches(float(np.median(e2e)))
    kernel = samples_of("kernel_us", launches, PRUNING_SAMPLES, budget_us)
    pruned = best_us is not None and float(np.median(kernel)) > PRUNE_ABOVE * best_us
    samples = PRUNING_SAMPLES if pruned else SAMPLES
    if not pruned:
        kernel = samples_of("kernel_us", launches, samples, budget_us / 4)
    cold_us = None
    if cold and not pruned:
        flush = function("cuda.empty")((2 * device.l2_bytes,), "uint8", 0)
        cold_us = float(
            np.median(samples_of("cold_us", flush, launches // 2, samples, budget_us / 4))
        )
    chained_us = None
    if link is not None and not pruned:
        turns = _in_turns(problem, link)
        chained = samples_of("kernel_us", launches, samples, budget_us / 4, call=turns)
        chained_us = float(np.median(chained))
    enqueue = samples_of("enqueue_us", launches, samples, budget_us / 4)
    return Measurement(
        kernel_us=float(np.median(kernel)),
        kernel_spread_us=_spread(kernel),
        cold_us=cold_us,
        enqueue_us=float(np.median(enqueue)),
        enqueue_spread_us=_spread(enqueue),
        e2e_us=float(np.median(e2e)),
        e2e_spread_us=_spread(e2e),
        samples=len(kernel),
        error=error,
        chained_us=chained_us,
    )


def _launches(one_us: float) -> int:
    """Number of launches in a replay, for a kernel that takes at most this time."""
    return max(LEAST_LAUNCHES, min(LAUNCHES, math.ceil(REPLAY_US / one_us)))


def _spread(values: np.ndarray) -> float:
    """Half the distance between the 10th and the 90th percentile."""
    low, high = np.percentile(values, [10, 90])
    return float(high - low) / 2


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
