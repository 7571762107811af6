"""A workload on the GPU: random inputs, the outputs that they should give, and a run's error.

Inputs are uniform random numbers, fresh for each workload: a random block of a prime number of
elements, repeated over the tensor, so that no offset within a tensor looks like another and the
reference knows every element without a copy of it. Outputs are NaN before the run that is checked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..ir.workload import Workload
from ..runtime.library import function
from . import dtypes, reference, requantization

if TYPE_CHECKING:
    import tvm_ffi

# Elements of the random block: a prime, so that no power of two divides the period.
_BLOCK = 262_139
# Outputs up to this many elements are searched for NaN as a whole.
_SCAN_LIMIT = 1 << 23

# Largest relative L2 error against float64 by the type that the result was rounded to. float16 and
# bfloat16 round with 11 and 8 bits: 2.8e-4 and 2.3e-3 at worst on average.
TOLERANCE = {
    "float16": 1e-3,
    "bfloat16": 8e-3,
    "float32": 1e-5,
    "tf32": 2e-3,
    "int32": 0.0,
    "int8": 0.0,
}


def tolerance(workload: Workload) -> float:
    """Largest relative L2 error that counts as right for this workload."""
    if workload.math == "tf32":
        return max(TOLERANCE["tf32"], TOLERANCE[workload.out_dtype])
    return TOLERANCE[workload.out_dtype]


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


def make_problem(workload: Workload, rng: np.random.Generator) -> Problem:
    """Tensors with random inputs on GPU 0, and the exact outputs at sampled places."""
    return on_gpu(workload, make_blueprint(workload, rng))


def make_blueprint(workload: Workload, rng: np.random.Generator) -> Blueprint:
    """Random inputs, as blocks that are repeated over the tensors, and the expected outputs."""
    shapes = workload.operand_shapes()
    blocks: dict[str, np.ndarray] = {}
    operands: dict[str, reference.Operand] = {}
    for name, shape, dtype in shapes[: len(shapes) - workload.num_outputs]:
        size = min(_BLOCK, math.prod(shape))
        if workload.requantizes and name == "bias":
            blocks[name] = requantization.rows(workload, rng)
        elif workload.is_integer:
            limits = np.iinfo(np.int8)  # of a bias as well: sums are exact, however large
            blocks[name] = rng.integers(limits.min, limits.max, size, dtype, endpoint=True)
        else:
            values = (2 * rng.random(size, np.float32) - 1) * np.float32(_scale(workload, name))
            blocks[name] = dtypes.encode(values, dtype)
        operands[name] = reference.Operand(dtypes.decode(blocks[name], dtype))
    return Blueprint(blocks, reference.sample(workload, operands, rng))


def on_gpu(workload: Workload, blueprint: Blueprint) -> Problem:
    """The tensors of a problem on GPU 0, its inputs filled."""
    empty, tile = function("cuda.empty"), function("cuda.tile")
    tensors: list[tvm_ffi.Tensor] = []
    outputs: dict[str, tvm_ffi.Tensor] = {}
    for name, shape, dtype in workload.operand_shapes():
        tensors.append(empty(shape, dtype, 0))
        if name in blueprint.blocks:
            tile(as_tensor(blueprint.blocks[name]), tensors[-1])
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
    if workload.expansion is not None and name == "expand":
        return 3 / math.sqrt(workload.expansion.channels)
    if workload.bottleneck is not None and name in ("expand", "reduce"):  # of values near 1
        return math.sqrt(3 / (workload.k if name == "expand" else workload.bottleneck.expand))
    if workload.squeeze_excite is not None:
        squeeze = 3 * math.sqrt(workload.h * workload.w / workload.c)  # of means, which are small
        excite = math.sqrt(3 / workload.squeeze_excite.channels)
        return {"squeeze": squeeze, "excite": excite}.get(name, 1.0)
    channels = workload.k if workload.op == "dgrad" else workload.c
    length = channels // workload.groups * workload.taps
    return 3 / math.sqrt(length) if name == "w" else 1.0


def as_tensor(array: np.ndarray) -> tvm_ffi.Tensor:
    """The memory of an array."""
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
        gather(output, as_tensor(expected.starts.astype(np.int64)), expected.run, as_tensor(stored))
        got = dtypes.decode(stored, dtype)
        difference += float(np.sum((got - expected.values) ** 2))
        norm += float(np.sum(expected.values**2))
        size = math.prod(output.shape)
        if size <= _SCAN_LIMIT:
            whole = np.empty(size, dtypes.STORAGE[dtype])
            copy(output, as_tensor(whole))
            if dtypes.any_nan(whole, dtype):
                return math.inf
    if not math.isfinite(difference):
        return math.inf
    return math.sqrt(difference / norm) if norm else math.sqrt(difference)
