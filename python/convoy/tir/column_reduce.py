"""Reductions of short rows (a softmax over channels, or over the bins of a box): one thread per
row.

TVM's rule uses a thread block per row, which would leave most of its threads idle; if the rows are
not contiguous, each of the others would also need a memory transaction of its own.
"""

from __future__ import annotations

import math

from tvm import s_tir, tirx
from tvm.s_tir.dlight.analysis import SBlockInfo, normalize_prim_func
from tvm.s_tir.dlight.base import ScheduleRule
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.target import Target

from .loads import bind_grid, loads_of, loops_below, static_extents

_LONGEST = 64  # elements of a row, kept in registers
_FEWEST = 1024  # fewer rows leave most of a GPU idle
_THREADS = 128


class ColumnReduce(ScheduleRule):
    """Several blocks over the same rows, at least one of which reduces them, the last one not."""

    def apply(self, func: tirx.PrimFunc, target: Target, tunable: bool) -> s_tir.Schedule | None:
        sch = s_tir.Schedule(func)
        infos = normalize_prim_func(sch) or []
        try:
            return sch if _schedule(sch, infos) else None
        except s_tir.ScheduleError:
            return None


def _schedule(sch: s_tir.Schedule, infos: list[SBlockInfo]) -> bool:
    reductions = [info for info in infos if info.is_reduction()]
    if not reductions or infos[-1].is_reduction():
        return False
    if any(set(info.dom_kind()) - {"S", "R"} for info in infos):
        return False
    if any(static_extents(sch, info.block_rv) is None for info in infos):
        return False
    if not all(_is_row(sch, info) for info in reductions):
        return False
    last = infos[-1].block_rv
    reduced = {sch.get(info.block_rv).writes[0].source for info in reductions}
    across = _axis_across(sch.get(last), reduced)
    if across is None:
        return False
    loops = sch.get_loops(last)
    rows = [loop for i, loop in enumerate(loops) if i != across]
    count = math.prod(int(sch.get(loop).extent) for loop in rows)
    if count < _FEWEST or int(sch.get(loops[across]).extent) > _LONGEST:
        return False
    sch.reorder(*rows, loops[across])
    _, thread = bind_grid(sch, rows, count, _THREADS)
    sch.unroll(loops[across])
    for info in reversed(infos[:-1]):
        _put_at(sch, info.block_rv, thread)
    return True


def _is_row(sch: s_tir.Schedule, info: SBlockInfo) -> bool:
    """Return whether a block reduces one short axis to one result."""
    block = sch.get(info.block_rv)
    extents = [int(a.dom.extent) for a in block.iter_vars if a.iter_type == tirx.IterVar.CommReduce]
    return len(block.writes) == 1 and len(extents) == 1 and extents[0] <= _LONGEST


def _axis_across(block: s_tir.SBlock, reduced: set[tirx.Buffer]) -> int | None:
    """Return the axis of the last block that runs along a row: the only one by which no reduced
    value is indexed; all values of a row are indexed by the others, in order."""
    axes = [axis.var for axis in block.iter_vars]
    found: set[int] = set()
    for load in loads_of(block):
        if load.buffer not in reduced:
            continue
        used = [i for i in load.indices if not isinstance(i, tirx.IntImm)]
        places = [p for index in used for p, axis in enumerate(axes) if axis.same_as(index)]
        missing = [p for p in range(len(axes)) if p not in places]
        if not load.uniform or len(missing) != 1 or places != sorted(places):
            return None
        found.update(missing)
    return found.pop() if len(found) == 1 else None


def _put_at(sch: s_tir.Schedule, block: SBlockRV, thread: LoopRV) -> None:
    """Compute what a thread needs of a block in its registers."""
    sch.set_scope(block, 0, "local")
    sch.compute_at(block, thread)
    inside = loops_below(sch, block, thread)
    if math.prod(int(sch.get(loop).extent) for loop in inside) > _LONGEST:
        raise s_tir.ScheduleError("a thread needs more of it than a row")
    for loop in inside:
        sch.unroll(loop)
