"""What a kernel's innermost statement reads, and how: the facts that the schedule rules decide by."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.sym import detect_linear_equation

#: Bytes that one thread loads or stores with one instruction.
VECTOR_BYTES = 16


@dataclass
class Load:
    """All reads of one buffer in a block's body."""

    buffer: tirx.Buffer
    indices: list[tirx.Expr]
    guarded: bool  # inside an if_then_else, so possibly out of bounds on its own
    uniform: bool  # every read has the same indices


def itemsize(dtype: object) -> int:
    """Bytes of an element, by dtype name (``float16``, ``int64``, ``bool``)."""
    digits = "".join(ch for ch in str(dtype) if ch.isdigit())
    return max(1, int(digits) // 8) if digits else 1


def loads_of(block: s_tir.SBlock) -> list[Load]:
    """Reads in the block's body, one entry a buffer, without the block's own output."""
    written = {region.source for region in block.writes}
    found: dict[tirx.Buffer, Load] = {}
    guarded: set[int] = set()

    def mark(call: tvm.ir.Call) -> None:
        if isinstance(call.op, tvm.ir.Op) and call.op.name.endswith("if_then_else"):
            for branch in call.args[1:]:
                tvm_ffi.structural_walk(
                    branch, [(tvm.ir.TensorLoad, lambda b: guarded.add(_key(b)))]
                )

    def collect(load: tvm.ir.TensorLoad) -> None:
        if load.source in written:
            return
        known = found.get(load.source)
        if known is None:
            entry = Load(load.source, list(load.indices), _key(load) in guarded, True)
            found[load.source] = entry
        else:
            same = tvm_ffi.structural_equal(known.indices, list(load.indices))
            known.uniform = known.uniform and same
            known.guarded = known.guarded or _key(load) in guarded

    tvm_ffi.structural_walk(block.body, [(tvm.ir.Call, mark)])
    tvm_ffi.structural_walk(block.body, [(tvm.ir.TensorLoad, collect)])
    return list(found.values())


def _key(load: tvm.ir.TensorLoad) -> int:
    return tvm_ffi.structural_hash([load.source.name, list(load.indices)], map_free_vars=False)


def depends_on(expr: tirx.Expr, var: tirx.Var) -> bool:
    hit = []
    tvm_ffi.structural_walk(expr, [(tirx.Var, lambda v: hit.append(v) if v.same_as(var) else None)])
    return bool(hit)


def coefficient(expr: tirx.Expr, var: tirx.Var) -> int | None:
    """Factor of ``var`` in an index that is linear in it; 0 without it, None when not linear."""
    if not depends_on(expr, var):
        return 0
    factors = detect_linear_equation(expr, [var])
    if not factors or not isinstance(factors[0], tirx.IntImm):
        return None
    return int(factors[0])


def contiguous_in(load: Load, var: tirx.Var) -> bool:
    """Whether successive values of ``var`` read successive elements."""
    if not load.indices or any(depends_on(index, var) for index in load.indices[:-1]):
        return False
    return coefficient(load.indices[-1], var) == 1


def vector_width(extent: int, dtype: object) -> int:
    """Widest power of two that divides ``extent`` and fits one 16-byte access."""
    width = VECTOR_BYTES // itemsize(dtype)
    while width > 1 and extent % width:
        width //= 2
    return width


def vectorize_copy(sch: s_tir.Schedule, block: SBlockRV, width: int, dtype: object) -> None:
    """Make the last loop of a copying block one or more 16-byte accesses."""
    loop = sch.get_loops(block)[-1]
    per_access = min(width, VECTOR_BYTES // itemsize(dtype))
    if width > per_access:
        outer, loop = sch.split(loop, factors=[None, per_access])
        sch.unroll(outer)
    if per_access > 1:
        sch.vectorize(loop)


def stage_reads(sch: s_tir.Schedule, block: SBlockRV, at: LoopRV, width: int) -> None:
    """Read the operands that are contiguous along the block's last axis through registers, with
    vector loads, at loop ``at``, below which the block runs over ``width`` elements.

    Operands read under a condition are left: outside of it they may lie out of bounds.
    """
    if width == 1:
        return
    stmt = sch.get(block)
    spatial = [a.var for a in stmt.iter_vars if a.iter_type == tirx.IterVar.DataPar]
    last = spatial[-1]
    names = {}
    for load in loads_of(stmt):
        if contiguous_in(load, last) and load.uniform and not load.guarded:
            names[load.buffer.name] = load
    for index, region in enumerate(sch.get(block).reads):
        load = names.get(region.source.name)
        if load is None or sch_scope(region.source) != "global":
            continue
        copy = sch.cache_read(block, index, "local")
        sch.compute_at(copy, at)
        vectorize_copy(sch, copy, width, region.source.dtype)


def sch_scope(buffer: tirx.Buffer) -> str:
    """Memory scope of a buffer; "global" where none is given."""
    scope = buffer.scope() if callable(getattr(buffer, "scope", None)) else ""
    return scope or "global"


def static_extents(sch: s_tir.Schedule, block: SBlockRV) -> list[int] | None:
    """Extents of the loops around a block, or None where one is symbolic."""
    extents = [sch.get(loop).extent for loop in sch.get_loops(block)]
    if not all(isinstance(e, tirx.IntImm) for e in extents):
        return None
    return [int(e) for e in extents]


def bind_grid(
    sch: s_tir.Schedule, loops: list[LoopRV], total: int, threads: int = 256
) -> tuple[LoopRV, LoopRV]:
    """Fuse ``loops`` (``total`` iterations) and spread them over blocks of up to ``threads``
    threads; fewer where that would leave multiprocessors idle. Returns (block, thread) loops."""
    while threads > 64 and total < threads * 264:
        threads //= 2
    fused = sch.fuse(*loops) if len(loops) > 1 else loops[0]
    block, thread = sch.split(fused, factors=[None, threads])
    sch.bind(block, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    return block, thread
