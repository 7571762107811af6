"""Launch configuration of a scheduled TIR function: blocks, threads, shared memory, and the buffers
that it writes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from ..cost.native import SMALLEST_KERNEL_US, moving_us
from ..ir.device import Device
from ..ir.schedule_parts import Occupancy
from ..tir.loads import itemsize
from .occupancy import of_launch


@dataclass(frozen=True)
class NativeKernel:
    """Facts of a function compiled by TVM.

    ``occupancy`` is that of the kernel that occupies most, ``launches`` their number, ``moved`` the
    bytes of the tensors in device memory that they read and write, ``duration_us`` an estimate of
    the time that they take together (:func:`_duration_us`), ``written`` the parameters that
    they store to. ``host_workspace`` says that it asks TVM for device memory while it runs: that
    pool belongs to a thread and knows no streams, so two such functions must not overlap.
    """

    occupancy: Occupancy
    launches: int
    moved: int
    duration_us: float
    written: frozenset[int]
    host_workspace: bool


def inspect(func: tirx.PrimFunc, device: Device) -> NativeKernel:
    """Facts of a function whose kernels are bound to threads; one block of one thread where they
    are not (functions for the CPU)."""
    blocks: list[s_tir.SBlock] = []
    tvm_ffi.structural_walk(func.body, [(s_tir.SBlock, blocks.append)])
    allocated = [buffer for block in blocks for buffer in block.alloc_buffers]
    statements = _statements(func.body)
    kernels = [_grid(statement) for statement in statements]
    occupancies = [
        of_launch(device, grid, threads, _shared_bytes(statement, grid))
        for statement, (grid, threads) in zip(statements, kernels, strict=True)
    ]
    views = _views(func)
    touched = [_touched(statement, views) for statement in statements]
    stored = {buffer for _, written in touched for buffer in written}
    moved = [sum(_bytes(b) for buffers in both for b in buffers) for both in touched]
    return NativeKernel(
        occupancy=max(occupancies, key=lambda occupancy: occupancy.waves),
        launches=len(kernels),
        moved=sum(moved),
        duration_us=sum(
            _duration_us(bytes_of, statement, occupancy, device)
            for bytes_of, statement, occupancy in zip(moved, statements, occupancies, strict=True)
        ),
        written=frozenset(i for i, param in enumerate(func.params) if param in stored),
        host_workspace=not blocks or any(buffer.scope() == "global" for buffer in allocated),
    )


def _views(func: tirx.PrimFunc) -> dict[tirx.Buffer, tirx.Buffer]:
    """Buffers that are views of other buffers' memory, with these buffers."""
    declared: list[tirx.DeclBuffer] = []
    blocks: list[s_tir.SBlock] = []
    tvm_ffi.structural_walk(
        func.body, [(tirx.DeclBuffer, declared.append), (s_tir.SBlock, blocks.append)]
    )
    views: dict[tirx.Buffer, tirx.Buffer] = {}
    known = {*func.params, *(buffer for block in blocks for buffer in block.alloc_buffers)}
    for view in declared:  # outer ones come first
        within: list[tirx.Var] = []
        if view.data is not None:
            tvm_ffi.structural_walk(view.data, [(tirx.Var, within.append)])
        for source in within:
            if source in known:  # and not a pointer from elsewhere
                views[view.buffer] = views.get(source, source)
                known.add(view.buffer)
    for block in blocks:
        for match in block.match_buffers:
            source = match.source.source
            views[match.buffer] = views.get(source, source)
    return views


def _touched(
    statement: tvm.ir.Stmt, views: dict[tirx.Buffer, tirx.Buffer]
) -> tuple[set[tirx.Buffer], set[tirx.Buffer]]:
    """Tensors in device memory that one launch reads, and those that it writes.

    A reduction's result that a block accumulates counts as written, not read; a tensor that is
    updated in place counts as both.
    """
    blocks: list[s_tir.SBlock] = []
    loads: list[tvm.ir.TensorLoad] = []
    stores: list[tirx.BufferStore] = []
    tvm_ffi.structural_walk(
        statement,
        [
            (s_tir.SBlock, blocks.append),
            (tvm.ir.TensorLoad, loads.append),
            (tirx.BufferStore, stores.append),
        ],
    )

    def memory(buffers: Iterable[tirx.Buffer]) -> set[tirx.Buffer]:
        owners = (views.get(buffer, buffer) for buffer in buffers)
        return {owner for owner in owners if owner.scope() == "global"}

    sums = {w.source for block in blocks if block.init is not None for w in block.writes}
    read = [r.source for block in blocks for r in block.reads] + [load.source for load in loads]
    written = [w.source for block in blocks for w in block.writes]
    written += [store.buffer for store in stores]
    return memory(buffer for buffer in read if buffer not in sums), memory(written)


#: Microseconds of a step that waits for the one before, and of one that a scheduler of an SM
#: issues while others wait.
_STEP_US, _ISSUE_US = 0.0025, 0.0035
#: Microseconds that a block waits for memory, and for a sum or maximum of all of its threads:
#: estimated.
_LOAD_US, _JOIN_US = 0.6, 0.15


def _duration_us(moved: int, statement: tvm.ir.Stmt, occupancy: Occupancy, device: Device) -> float:
    """Time of a kernel: that of its bytes, of one thread's steps, of all threads' on an SM, or of
    the blocks that an SM has one after the other, whichever is most."""
    warps = occupancy.blocks * math.ceil(occupancy.threads / 32) / (4 * device.sm_count)
    busy = _steps(statement) * max(_STEP_US, warps * _ISSUE_US)
    joins = _JOIN_US * _joins(statement)
    waiting = max(joins, occupancy.waves * (_LOAD_US + joins))
    return max(moving_us(moved, device), SMALLEST_KERNEL_US + max(busy, waiting))


def _joins(statement: tvm.ir.Stmt) -> int:
    """Count how often the threads of a block wait for each other: at barriers that are written
    out, or for tensors in shared memory."""
    barriers: list[tvm.ir.Call] = []

    def call(node: tvm.ir.Call) -> None:
        if isinstance(node.op, tvm.ir.Op) and node.op.name == "tirx.tvm_storage_sync":
            barriers.append(node)

    tvm_ffi.structural_walk(statement, [(tvm.ir.Call, call)])
    return max(len(barriers), len({store.buffer for store in _shared_stores(statement)}))


def _steps(statement: tvm.ir.Stmt) -> int:
    """Stores that a thread makes one after the other, a vector as one."""
    if isinstance(statement, s_tir.SBlockRealize):
        return _steps(statement.block.body)
    if isinstance(statement, tirx.SeqStmt):
        return sum(map(_steps, statement.seq))
    if isinstance(statement, tirx.IfThenElse):
        branches = [statement.then_case, statement.else_case]
        return max(_steps(branch) for branch in branches if branch is not None)
    inner = getattr(statement, "body", None)
    if inner is None:
        return 1
    together = (tirx.ForKind.THREAD_BINDING, tirx.ForKind.VECTORIZED)
    if not isinstance(statement, tirx.For) or statement.kind in together:
        return _steps(inner)
    extent = statement.extent
    return _steps(inner) * (int(extent) if isinstance(extent, tirx.IntImm) else 1)


def _grid(statement: tvm.ir.Stmt) -> tuple[int, int]:
    """(blocks, threads) of a launch."""
    extents: dict[str, int] = {}

    def bound(loop: tirx.For) -> None:
        if loop.thread_binding is not None and isinstance(loop.extent, tirx.IntImm):
            tag = str(loop.thread_binding.thread_tag)
            extents[tag] = max(extents.get(tag, 1), int(loop.extent))

    tvm_ffi.structural_walk(statement, [(tirx.For, bound)])
    grid = math.prod(v for tag, v in extents.items() if tag.startswith("blockIdx"))
    threads = math.prod(v for tag, v in extents.items() if tag.startswith("threadIdx"))
    return grid, threads


def _statements(body: tvm.ir.Stmt) -> list[tvm.ir.Stmt]:
    """The statements below the root block: each is one launch."""
    if isinstance(body, s_tir.SBlockRealize):
        body = body.block.body
    return list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]


def _shared_stores(statement: tvm.ir.Stmt) -> list[tirx.BufferStore]:
    stores: list[tirx.BufferStore] = []
    tvm_ffi.structural_walk(statement, [(tirx.BufferStore, stores.append)])
    return [store for store in stores if store.buffer.scope().startswith("shared")]


def _shared_bytes(statement: tvm.ir.Stmt, grid: int) -> int:
    """Shared memory of a block. Until TVM compacts them, buffers may be declared for the whole
    grid: those that are written at places which depend on the block."""
    of_blocks: set[tirx.Var] = set()
    realizes: list[s_tir.SBlockRealize] = []

    def bound(loop: tirx.For) -> None:
        if loop.thread_binding is not None and "blockIdx" in str(loop.thread_binding.thread_tag):
            of_blocks.add(loop.loop_var)

    def depends(expr: tvm.ir.Expr) -> bool:
        used: list[tirx.Var] = []
        tvm_ffi.structural_walk(expr, [(tirx.Var, used.append)])
        return not of_blocks.isdisjoint(used)

    tvm_ffi.structural_walk(
        statement, [(tirx.For, bound), (s_tir.SBlockRealize, realizes.append)], order="pre"
    )
    for realize in realizes:  # outer ones come first
        for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
            if depends(value):
                of_blocks.add(axis.var)
    sizes: dict[tirx.Buffer, int] = {}
    for store in _shared_stores(statement):
        whole = any(map(depends, store.indices))
        sizes[store.buffer] = -(-_bytes(store.buffer) // (grid if whole else 1))
    return sum(sizes.values())


def _bytes(buffer: tirx.Buffer) -> int:
    shape = [int(d) if isinstance(d, tirx.IntImm) else 1 for d in buffer.shape]
    return math.prod(shape) * itemsize(buffer.dtype)
