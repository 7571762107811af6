"""Estimate the time of TVM's kernels, which cannot be measured before they are compiled.

Each is memory-bound: bytes moved divided by bandwidth. Operations that a subgraph leaves to TVM
have to be costed, otherwise the shortest subgraph would always look cheapest. So do operations that
no subgraph covers: they cost the same in every plan, but the larger of host and device time, and
the overlap between streams, depend on them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from .. import programmatic
from ..graph.function import used_vars
from ..ir.device import Device
from ..ir.dtypes import DTYPE_BYTES, FLOAT_DTYPES
from ..ir.measurement import Measurement
from ..ir.operands import Operand, weights
from ..ir.workload import Workload
from ..tir.channel_gate_layout import GatedShape, layout_of
from ..tir.gemv import FEWEST_LANES
from ..tir.loads import vector_width

if TYPE_CHECKING:
    from ..partition.match_graph import Op, Subgraph

# A kernel that does nothing still takes this long inside a CUDA graph, in microseconds.
SMALLEST_KERNEL_US = 1.3
# Share of the copy bandwidth that an element-wise kernel reaches.
ELEMENTWISE_EFFICIENCY = 0.85
# Host time of one call of a TVM kernel, and what a synchronized call takes beyond that and the
# kernel itself: means over the pools, concatenations and reductions of GoogLeNet and Inception v3
# on an H200.
NATIVE_ENQUEUE_US, SYNCHRONISE_US = 2.8, 4.0
# Rows up to which a GEMM is one of a matrix and vectors. Its kernel takes as long as any other
# that moves as much: on an H200 0.95 us for 512 x 32, 1.7 us for 1280 x 1000, one row each.
MOST_GEMV_ROWS = 4
# Multiply-adds in a second of TVM's kernel for batched matmuls, without tensor cores: estimated.
BATCHED_MATMUL_RATE = 5e12
FREE = Measurement(kernel_us=0.0, enqueue_us=0.0, e2e_us=0.0)


def native_measurement(kernel_us: float, device: Device) -> Measurement:
    """Measurement of a kernel of TVM that takes so long on the device; free if it takes none.

    Where TVM's kernels are launched programmatically they let their successors start early; they do
    nothing themselves before they wait, and take as long as links."""
    if not kernel_us:
        return FREE
    early = programmatic.available(device.arch)
    return dataclasses.replace(of_duration(kernel_us), chained_us=kernel_us if early else None)


def of_duration(kernel_us: float) -> Measurement:
    """Measurement of a kernel that takes so long on the device, with host times of TVM's."""
    return Measurement(
        kernel_us=kernel_us,
        enqueue_us=NATIVE_ENQUEUE_US,
        e2e_us=kernel_us + NATIVE_ENQUEUE_US + SYNCHRONISE_US,
    )


def moving_us(moved_bytes: int, device: Device) -> float:
    """Time of an elementwise kernel that moves this many bytes."""
    seconds = moved_bytes / (ELEMENTWISE_EFFICIENCY * device.memory_bandwidth)
    return SMALLEST_KERNEL_US + seconds * 1e6


def native_us(subgraph: Subgraph, device: Device) -> float | None:
    """Time of TVM's own kernel for a complete subgraph; None if a library is expected to be much
    faster."""
    workload = subgraph.require_workload()
    if subgraph.optional:
        return moving_us(workload.bytes_moved, device)
    if workload.is_batched:
        arithmetic_us = workload.flops / 2 / BATCHED_MATMUL_RATE * 1e6
        return moving_us(workload.bytes_moved, device) + arithmetic_us
    if has_constant_weights(subgraph) and is_gemv(workload) and len(subgraph.outputs) == 1:
        matrix = workload.c * workload.k * DTYPE_BYTES[workload.dtype]
        return moving_us(_rows(workload) * matrix, device)
    return None


def has_constant_weights(subgraph: Subgraph) -> bool:
    """Return whether the filters are constants of the module."""
    places, inputs = weights(subgraph.require_workload()), subgraph.inputs
    return len(inputs) > max(places) and not any(used_vars(inputs[place]) for place in places)


def is_gemv(workload: Workload) -> bool:
    """Return whether a workload is a GEMM of a few rows, for which tensor cores do nothing: each
    row reads the matrix once (tir/gemv.py)."""
    few = workload.c % FEWEST_LANES == 0 and _rows(workload) <= MOST_GEMV_ROWS
    return _is_dense(workload) and few


def gates_us(workload: Workload, pixels: int) -> float | None:
    """Time that a kernel takes longer to scale images of so many pixels if it computes the gates of
    the channels, a function of a matrix-vector product for each image; None if it had better not
    (tir/channel_gate.py)."""
    if not is_of_images(workload) or {workload.dtype, workload.out_dtype}.difference(FLOAT_DTYPES):
        return None
    layout = layout_of(
        GatedShape(
            images=workload.n,
            pixels=pixels,
            channels=workload.k,
            length=workload.c,
            width=vector_width(workload.k, workload.out_dtype),
            of_row=vector_width(workload.c, workload.dtype),
            itemsize=DTYPE_BYTES[workload.out_dtype],
            weight_itemsize=DTYPE_BYTES[workload.dtype],
        )
    )
    return layout.gates_us if layout is not None else None


def is_of_images(workload: Workload) -> bool:
    """Return whether a workload is a matrix-vector product for each image."""
    return _is_dense(workload) and _rows(workload) == workload.n and not workload.is_batched


def _is_dense(workload: Workload) -> bool:
    """Return whether a workload multiplies each pixel by a matrix."""
    dense = workload.op in ("fprop", "matmul") and (workload.r, workload.s) == (1, 1)
    return dense and workload.groups == 1


def _rows(workload: Workload) -> int:
    return workload.n * workload.p * workload.q


def elementwise_us(op: Op, elements: Mapping[str, int], dtype: str, device: Device) -> float:
    """Time of one kernel for an operation: every operand read and the result written once.
    ``elements`` are those of the operations that it may read."""
    read = sum(elements.get(name, op.elements) for name in op.inputs) or op.elements
    return moving_us((read + op.elements) * DTYPE_BYTES[dtype], device)


@dataclasses.dataclass(frozen=True)
class Leftover:
    """Operations that TVM computes with one kernel, and its time."""

    ops: tuple[str, ...]
    us: float


def leftover_us(subgraph: Subgraph, longest: Subgraph, device: Device) -> float:
    """Time of TVM's kernels for the operations of ``longest`` beyond ``subgraph``."""
    return sum(kernel.us for kernel in leftovers(subgraph, longest, device))


def leftovers(subgraph: Subgraph, longest: Subgraph, device: Device) -> list[Leftover]:
    """The kernels for the operations of ``longest`` beyond ``subgraph``: one behind it, and one in
    front of it that makes an image what the subgraph reads."""
    rest = tuple(name for name in longest.ops if name not in subgraph.ops)
    whole, mine = longest.require_workload(), subgraph.require_workload()
    if not rest:
        return []
    if whole.stem is None:
        return [Leftover(rest, _epilogue_us(mine, whole, device))]
    root = longest.ops.index(longest.root)
    front = tuple(name for name in longest.ops[:root] if name in rest)
    behind = rest[len(front) :]
    image, *_, pooled = whole.operand_shapes()
    found = []
    if front:
        written = whole.n * whole.h * whole.w * whole.c * DTYPE_BYTES[whole.dtype]
        found.append(Leftover(front, moving_us(_bytes(image) + written, device)))
    if behind:
        us = _epilogue_us(mine, whole, device) if mine.epilogue != whole.epilogue else 0.0
        if whole.stem.pools and not (mine.stem and mine.stem.pools):
            us += moving_us(_result_bytes(whole) + _bytes(pooled), device)
        found.append(Leftover(behind, us))
    return found


def _bytes(operand: Operand) -> int:
    _, shape, dtype = operand
    return math.prod(shape) * DTYPE_BYTES[dtype]


def _epilogue_us(mine: Workload, longest: Workload, device: Device) -> float:
    """Time of one elementwise kernel for the epilogue of ``longest`` beyond one's own.

    It reads the result so far and a residual that is not yet added, and writes each result that is
    not yet written.
    """
    own, whole = mine.epilogue, longest.epilogue
    passes = 2 + (whole.residual and not own.residual)
    base = (whole.residual, whole.bias, whole.activation)
    if whole.affine_relu and whole.writes_y and base != (own.residual, own.bias, own.activation):
        passes += 1  # the plain result is written as well
    return moving_us(passes * _result_bytes(mine), device)


def copies(subgraph: Subgraph, gathered: Collection[str], device: Device) -> list[Measurement]:
    """Measurements of the copies that cut the result of a split subgraph into tensors of their own;
    none for the parts that are ``gathered`` (:class:`Op`)."""
    if not subgraph.split:
        return []
    workload = subgraph.require_workload()
    channel = 2 * _result_bytes(workload) // workload.k  # read and written
    return [
        native_measurement(moving_us(channel * channels, device), device)
        for name, channels in zip(subgraph.outputs, subgraph.split, strict=True)
        if name not in gathered
    ]


def _result_bytes(workload: Workload) -> int:
    """Bytes of a forward workload's result."""
    return workload.pixels * workload.k * DTYPE_BYTES[workload.out_dtype]
