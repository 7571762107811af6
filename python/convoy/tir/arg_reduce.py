"""Places of extrema along a short axis (the class of each pixel): a thread for each result."""

from __future__ import annotations

import math

from tvm import s_tir, tirx
from tvm.s_tir.dlight.analysis import normalize_prim_func
from tvm.s_tir.dlight.base import ScheduleRule
from tvm.s_tir.schedule import SBlockRV
from tvm.target import Target

from .loads import bind_grid, static_extents

#: Longest axis, and results from which on a thread each fills a GPU.
_LONGEST, _MANY = 256, 1 << 14


class ArgReduce(ScheduleRule):
    """One reduction to a place and its value, between element-wise steps."""

    def apply(self, func: tirx.PrimFunc, target: Target, tunable: bool) -> s_tir.Schedule | None:
        sch = s_tir.Schedule(func)
        infos = normalize_prim_func(sch) or []
        reductions = [info for info in infos if info.is_reduction()]
        if len(reductions) != 1 or reductions[0] is infos[-1]:
            return None
        place = infos.index(reductions[0])
        reduce, final = reductions[0].block_rv, infos[-1].block_rv
        if len(sch.get(reduce).writes) != 2 or static_extents(sch, reduce) is None:
            return None
        length, results = (_elements(sch, reduce, kind) for kind in _KINDS)
        written = math.prod(int(size) for size in sch.get(final).writes[0].source.shape)
        if length > _LONGEST or results < _MANY or written != results:
            return None
        for info in infos[:place] + infos[place + 1 : -1]:
            sch.compute_inline(info.block_rv)
        _, thread = bind_grid(sch, sch.get_loops(final), results)
        sch.compute_at(reduce, thread)
        for i in range(2):
            sch.set_scope(reduce, i, "local")
        return sch


_KINDS = (tirx.IterVar.CommReduce, tirx.IterVar.DataPar)


def _elements(sch: s_tir.Schedule, block: SBlockRV, kind: int) -> int:
    axes = sch.get(block).iter_vars
    return math.prod(int(axis.dom.extent) for axis in axes if axis.iter_type == kind)
