"""Memory accesses of a kernel's innermost statement, and their vectorization.

Schedule rules decide by which buffers are read contiguously along which axis.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.sym import Analyzer, detect_linear_equation
from tvm_ffi.structural import WalkResult

#: Bytes that one thread loads or stores with one instruction.
VECTOR_BYTES = 16

#: Block annotation: longest vector along the last axis, in elements.
VECTOR_LIMIT = "convoy.vector_limit"

#: Block annotation: a copy that is staged in registers, with others of the same buffer beside it.
STAGED = "convoy.staged"


@dataclass
class Load:
    """All reads of one buffer in a block's body.

    Attributes:
        indices: Along the dimensions that are longer than one element.
    """

    buffer: tirx.Buffer
    indices: list[tirx.Expr]
    guarded: bool  # inside an if_then_else, so possibly out of bounds on its own
    uniform: bool  # every read has the same indices

    @property
    def plain(self) -> bool:
        """Whether there is one read, of device memory, and each of its indices is one axis."""
        indexed = all(isinstance(i, (tirx.Var, tirx.IntImm)) for i in self.indices)
        return indexed and self.uniform and not self.guarded and scope_of(self.buffer) == "global"

    def along(self, var: tirx.Var) -> bool:
        """Return whether the indices depend on an axis."""
        return any(depends_on(index, var) for index in self.indices)


def itemsize(dtype: object) -> int:
    """Return the bytes of an element, by dtype name (``float16``, ``int64``, ``bool``)."""
    digits = "".join(ch for ch in str(dtype) if ch.isdigit())
    return max(1, int(digits) // 8) if digits else 1


def loads_of(block: s_tir.SBlock) -> list[Load]:
    """Reads in the block's body, one entry a buffer, without the block's own output."""
    written = {region.source for region in block.writes}
    found: dict[tirx.Buffer, Load] = {}
    guarded: set[int] = set()

    def mark(call: tvm.ir.Call) -> WalkResult | None:
        if not is_select(call):
            return None
        for branch in call.args[1:]:
            tvm_ffi.structural_walk(branch, [(tvm.ir.TensorLoad, lambda b: guarded.add(_key(b)))])
        tvm_ffi.structural_walk(call.args[0], [(tvm.ir.Call, mark)], order="pre")
        return WalkResult.SKIP  # all that is in the branches is marked

    def collect(load: tvm.ir.TensorLoad) -> None:
        if load.source in written:
            return
        known = found.get(load.source)
        if known is None:
            found[load.source] = Load(load.source, _indices(load), _key(load) in guarded, True)
        else:
            same = tvm_ffi.structural_equal(known.indices, _indices(load))
            known.uniform = known.uniform and same
            known.guarded = known.guarded or _key(load) in guarded

    tvm_ffi.structural_walk(block.body, [(tvm.ir.Call, mark)], order="pre")
    tvm_ffi.structural_walk(block.body, [(tvm.ir.TensorLoad, collect)])
    return list(found.values())


def _indices(load: tvm.ir.TensorLoad) -> list[tirx.Expr]:
    dims = zip(load.indices, load.source.shape, strict=True)
    return [index for index, size in dims if not _is_one(size)]


def _is_one(size: tirx.Expr) -> bool:
    return isinstance(size, tirx.IntImm) and int(size) == 1


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
    """Return whether successive values of ``var`` read successive elements."""
    if not load.indices or any(depends_on(index, var) for index in load.indices[:-1]):
        return False
    return coefficient(load.indices[-1], var) == 1


def vector_width(extent: int, dtype: object) -> int:
    """Return the widest power of two that divides ``extent`` and fits one 16-byte access.

    At most 4 for 8-bit elements, because TVM emits wrong code for longer vectors of constants (the
    zeros of a padding), and 1 for bool, because TVM emits bool vectors as 16-bit ones.
    """
    if str(dtype) == "bool":
        return 1
    size = itemsize(dtype)
    width = 4 if size == 1 else VECTOR_BYTES // size
    while width > 1 and extent % width:
        width //= 2
    return width


def alignment(load: Load, var: tirx.Var) -> int:
    """Largest power of two (at most 16) that divides the element offset of every run of a load
    that is contiguous in ``var``: of the index where a run starts, and of the rows' length. TVM
    takes a vector that is not so aligned apart in a way that the compiler rejects for float16."""
    analyzer = Analyzer()
    known = analyzer.modular_set(analyzer.simplify(load.indices[-1] - var))
    steps = [int(known.coeff), int(known.base)]
    if len(load.indices) > 1:
        length = next(size for size in reversed(load.buffer.shape) if not _is_one(size))
        steps.append(int(length) if isinstance(length, tirx.IntImm) else 1)
    return math.gcd(16, *steps)


def vectorize_copy(
    sch: s_tir.Schedule, block: SBlockRV, at: LoopRV, dtype: object, aligned: int = 16
) -> None:
    """Make the last loop of a copying block below loop ``at`` 16-byte accesses (or what divides
    it and ``aligned`` elements), and write out the other loops there."""
    below = [loop for loop in loops_below(sch, block, at) if int(sch.get(loop).extent) > 1]
    if not below:
        return  # one element
    *around, loop = below
    for other in around:
        sch.unroll(other)
    extent = int(sch.get(loop).extent)
    width = vector_width(math.gcd(extent, aligned), dtype)
    if width == 1:
        return
    if width < extent:
        outer, loop = sch.split(loop, factors=[None, width])
        sch.unroll(outer)
    sch.vectorize(loop)


def loops_below(sch: s_tir.Schedule, block: SBlockRV, at: LoopRV) -> list[LoopRV]:
    """Return the loops around a block inside of loop ``at``."""
    loops = sch.get_loops(block)
    shared = sch.get(at).loop_var
    position = next(i for i, loop in enumerate(loops) if sch.get(loop).loop_var.same_as(shared))
    return loops[position + 1 :]


def stage_reads(
    sch: s_tir.Schedule, block: SBlockRV, at: LoopRV, width: int, reduced: int = 1
) -> None:
    """Read operands through registers with vector loads at loop ``at``, below which the block runs
    over ``width`` elements of its last output axis and ``reduced`` of its last reduction axis.

    Staged are operands in device memory that are contiguous along one of the two. Operands read
    under a condition are left: outside of it they may lie out of bounds. So are those at indices
    that TVM cannot bound (rounded coordinates, say): it would stage all that they may be.
    """
    stmt = sch.get(block)
    aligned = {}
    for load in loads_of(stmt):
        if load.uniform and not load.guarded and scope_of(load.buffer) == "global":
            axis, fitting = staging_axis(stmt, load, width, reduced)
            if axis is not None and fitting > 1:
                aligned[load.buffer.name] = alignment(load, axis)
    for index, region in enumerate(stmt.reads):
        if region.source.name not in aligned:
            continue
        copy = sch.cache_read(block, index, "local", [block])
        sch.compute_at(copy, at)
        loops = loops_below(sch, copy, at)
        if math.prod(int(sch.get(loop).extent) for loop in loops) > width * reduced:
            sch.compute_inline(copy)
            continue
        vectorize_copy(sch, copy, at, region.source.dtype, aligned[region.source.name])


def is_guarded_copy(block: s_tir.SBlock) -> bool:
    """Return whether a block only moves elements from device memory, choosing by conditions:
    padding and concatenation. All reads are contiguous along the last axis and of the dtype
    written, so that the block can move vectors; where a condition splits a vector, TVM moves single
    elements."""
    if not isinstance(block.body, tirx.BufferStore) or not block.iter_vars:
        return False
    last, written = block.iter_vars[-1].var, block.writes[0].source
    loads: list[tvm.ir.TensorLoad] = []

    def moves(value: tirx.Expr) -> bool:
        if isinstance(value, tvm.ir.TensorLoad):
            loads.append(value)
            return True
        if isinstance(value, tvm.ir.Call) and is_select(value):
            return moves(value.args[1]) and moves(value.args[2])
        return isinstance(value, (tirx.FloatImm, tirx.IntImm))

    if not moves(block.body.value) or isinstance(block.body.value, tvm.ir.TensorLoad):
        return False
    return bool(loads) and all(  # a constant alone moves nothing
        str(load.source.dtype) == str(written.dtype)
        and scope_of(load.source) == "global"
        and contiguous_in(Load(load.source, _indices(load), True, True), last)
        for load in loads
    )


def is_select(call: tvm.ir.Call) -> bool:
    """Return whether a call chooses between values by a condition."""
    return isinstance(call.op, tvm.ir.Op) and call.op.name.endswith("if_then_else")


def staging_axis(
    stmt: s_tir.SBlock, load: Load, width: int, reduced: int
) -> tuple[tirx.Var | None, int]:
    """Along which axis and how many elements ``load`` has in a row below the loop of
    :func:`stage_reads`: ``width`` when it is contiguous along the last output axis alone,
    ``reduced`` when along the last reduction axis alone, otherwise (None, 1)."""
    output = last_axis(stmt, tirx.IterVar.DataPar)
    summed = last_axis(stmt, tirx.IterVar.CommReduce)
    for axis, other, size in ((output, summed, width), (summed, output, reduced)):
        if axis is None or not contiguous_in(load, axis):
            continue
        if other is None or not depends_on(load.indices[-1], other):
            return axis, size
    return None, 1


def staging_width(stmt: s_tir.SBlock, load: Load, width: int, reduced: int) -> int:
    """Elements in a row, as :func:`staging_axis` finds them."""
    return staging_axis(stmt, load, width, reduced)[1]


def last_axis(stmt: s_tir.SBlock, kind: int) -> tirx.Var | None:
    """Return the last axis of a kind (``IterVar.DataPar`` or ``CommReduce``) of a block."""
    axes = [axis.var for axis in stmt.iter_vars if axis.iter_type == kind]
    return axes[-1] if axes else None


def writes_in_order(block: s_tir.SBlock) -> bool:
    """Whether the output is indexed by the block's axes one by one, in order (dimensions of size 1
    have no axis)."""
    if not isinstance(block.body, tirx.BufferStore):
        return False
    axes = [axis.var for axis in block.iter_vars]
    indices = [i for i in block.body.indices if not isinstance(i, tirx.IntImm)]
    return len(axes) == len(indices) and all(
        isinstance(i, tirx.Var) and i.same_as(a) for i, a in zip(indices, axes, strict=True)
    )


def scope_of(buffer: tirx.Buffer) -> str:
    """Memory scope of a buffer; "global" if it has none."""
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
    threads; fewer where that would leave SMs idle. Returns (block, thread) loops."""
    fused = sch.fuse(*loops) if len(loops) > 1 else loops[0]
    block, thread = sch.split(fused, factors=[None, block_size(total, threads)])
    sch.bind(block, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    return block, thread


def block_size(total: int, limit: int = 256) -> int:
    """Threads per block: whole warps that divide ``total`` if possible (the kernel then needs no
    bounds check), few enough for two blocks on each of 132 SMs."""
    while limit > 64 and total < limit * 264:
        limit //= 2
    exact = [t for t in range(limit, 31, -32) if total % t == 0]
    return exact[0] if exact else limit
