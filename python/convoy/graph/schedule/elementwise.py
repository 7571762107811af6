"""Elementwise and data-moving kernels: one thread computes 16 bytes of the output.

Operands that are contiguous in the same direction are loaded 16 bytes at a time too. Where an
operand is contiguous along another axis (a layout conversion), neighbouring threads run along that
axis, so that both sides are coalesced: each thread gathers its vector from as many coalesced rows.
"""

from __future__ import annotations

import math

from tvm import s_tir, tirx
from tvm.s_tir.dlight.analysis import normalize_prim_func
from tvm.s_tir.dlight.base import ScheduleRule, try_inline
from tvm.target import Target

from .loads import bind_grid, coefficient, contiguous_in, depends_on, loads_of, stage_reads
from .loads import static_extents, vector_width, vectorize_copy


class Elementwise(ScheduleRule):
    """Kernels that become one block without reductions once producers are inlined."""

    def apply(self, func: tirx.PrimFunc, target: Target, tunable: bool) -> s_tir.Schedule | None:
        sch = s_tir.Schedule(func)
        infos = normalize_prim_func(sch)
        if not infos or not all(info.is_injective() for info in infos):
            return None
        infos = try_inline(sch, infos)
        if len(infos) != 1:
            return None
        block = infos[0].block_rv
        extents = static_extents(sch, block)
        if not extents or not _writes_in_order(sch.get(block)):
            return None
        width = vector_width(extents[-1], sch.get(block).writes[0].source.dtype)
        along = _coalescing_axis(sch.get(block))
        store = sch.cache_write(block, 0, "local")
        loops = sch.get_loops(store)
        outer, vector = sch.split(loops[-1], factors=[None, width])
        order = [*loops[:-1], outer]
        if along is not None:
            order.append(order.pop(along))
            sch.reorder(*order, vector)
        _, thread = bind_grid(sch, order, math.prod(extents) // width)
        vectorize_copy(sch, store, sch.get(store).writes[0].source.dtype)
        sch.compute_at(block, thread)
        if width > 1:
            sch.unroll(sch.get_loops(block)[-1])
        stage_reads(sch, block, thread, width)
        return sch


def _writes_in_order(block: s_tir.SBlock) -> bool:
    """Whether the output is indexed by the block's axes one by one, in order."""
    if not isinstance(block.body, tirx.BufferStore):
        return False
    axes = [axis.var for axis in block.iter_vars]
    indices = list(block.body.indices)
    return len(axes) == len(indices) and all(
        isinstance(i, tirx.Var) and i.same_as(a) for i, a in zip(indices, axes, strict=True)
    )


def _coalescing_axis(block: s_tir.SBlock) -> int | None:
    """The axis that neighbouring threads should run along instead of the last one: that along
    which the largest operand not contiguous in the last axis is (nearly) contiguous."""
    axes = [axis.var for axis in block.iter_vars]
    best, size = None, 0
    for load in loads_of(block):
        elements = math.prod(int(d) for d in load.buffer.shape)
        if not load.indices or contiguous_in(load, axes[-1]) or elements <= size:
            continue
        for position, axis in enumerate(axes[:-1]):
            factor = coefficient(load.indices[-1], axis)
            if factor is not None and 1 <= factor <= 4:
                best, size = position, elements
            elif factor is None and depends_on(load.indices[-1], axis):
                continue
    return best
