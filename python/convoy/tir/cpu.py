"""Convolutions, products and pools on a CPU: each thread sums a few pixels of a vector of channels.

TVM's own kernels add up one result after the other, without vectors, on one core. Here the sums of
some pixels and some neighbouring channels are registers, and blocks of them go to threads. Every
sum keeps its order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.dlight.analysis import SBlockInfo, normalize_prim_func
from tvm.s_tir.schedule import SBlockRV

from .loads import depends_on
from .rules import with_source

#: Sums of fewer products than this stay as they are: they cost less than another schedule takes to
#: make and compile.
LEAST_PRODUCTS = 1 << 20
#: Channels of a vector, and pixels that share what is read of the weights: with one register for
#: each they leave two of the sixteen that every x86-64 has.
CHANNELS, PIXELS = 8, 7
#: Pixels of a row from which on a copy of the weights pays.
LEAST_REUSE = 7
#: Dtypes of sums: of 16 bits LLVM has no vectors on every CPU.
_SUMMED = ("float32", "float64", "int32")


def schedule_for_cpu(mod: tvm.IRModule) -> tvm.IRModule:
    """Schedule the kernels of a module that reduce much; the others are left to LLVM."""
    functions = {
        var: scheduled(func) if isinstance(func, tirx.PrimFunc) else func
        for var, func in mod.functions_items()
    }
    return tvm.IRModule(functions, attrs=mod.attrs)


def scheduled(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return the function with its large sums in tiles; as it is where it has none, or where TVM's
    schedules do not apply."""
    attrs = dict(func.attrs or {})
    if attrs.get("tirx.is_scheduled"):
        return func
    try:
        sch = s_tir.Schedule(func)
        large = [info for info in normalize_prim_func(sch) or [] if _is_large_sum(sch, info)]
        tiled = [_tile(sch, info) for info in large]
    except Exception:  # any error of TVM's, as in rules.py: LLVM compiles the function as it is
        return func
    return with_source(sch.mod["main"].with_attrs(attrs), func) if any(tiled) else func


def _is_large_sum(sch: s_tir.Schedule, info: SBlockInfo) -> bool:
    extents = [axis.dom for axis in info.iters]
    if not info.is_reduction() or not all(isinstance(extent, int) for extent in extents):
        return False
    written = sch.get(info.block_rv).writes
    if len(written) != 1 or str(written[0].source.dtype) not in _SUMMED:
        return False
    return math.prod(extents) >= LEAST_PRODUCTS


def _tile(sch: s_tir.Schedule, info: SBlockInfo) -> bool:
    """Schedule a reduction; False where its results do not lie side by side along an axis."""
    block = sch.get(info.block_rv)
    kinds, loops = info.dom_kind(), sch.get_loops(info.block_rv)
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == "S"]
    steps = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == "R"]
    axes = [axis.var for axis in block.iter_vars if axis.iter_type == tirx.IterVar.DataPar]
    if not spatial or not steps or not block.writes[0].region[-1].min.same_as(axes[-1]):
        return False
    extents = [int(sch.get(loop).extent) for loop in spatial]
    channels = _divisor(extents[-1], CHANNELS)
    if channels < 4:
        return False
    outer, vector = sch.split(spatial[-1], factors=[None, channels])
    inner = [vector]
    others = spatial[:-1]
    if others and (pixels := _divisor(extents[-2], PIXELS)) > 1:
        others[-1], pixel = sch.split(others[-1], factors=[None, pixels])
        inner.insert(0, pixel)
    sch.reorder(outer, *others, *steps, *inner)
    if len(axes) > 1 and extents[-2] >= LEAST_REUSE:
        _pack(sch, info.block_rv, axes, channels)
    result = sch.cache_write(info.block_rv, 0, "local")
    sch.reverse_compute_at(result, [outer, *others][-1])
    sch.vectorize(vector)
    if len(inner) > 1:
        sch.unroll(inner[0])
    sch.parallel(sch.fuse(outer, *others))
    sch.decompose_reduction(info.block_rv, steps[0])
    return True


def _pack(sch: s_tir.Schedule, reduction: SBlockRV, axes: list[tirx.Var], width: int) -> None:
    """Copy what all pixels read along the channels, the weights, so that a vector of it lies side
    by side and the next one behind it."""
    found = _weights(sch.get(reduction).reads, *axes[-2:])
    if found is None:
        return
    number, place = found
    copy = sch.cache_read(reduction, number, "global")

    def packed(*at: tirx.PrimExpr) -> list[tirx.PrimExpr]:
        channel = at[place]
        return [channel // width, *at[:place], *at[place + 1 :], channel % width]

    sch.transform_layout(copy, ("write", 0), packed)
    sch.parallel(sch.get_loops(copy)[0])


def _weights(
    reads: Sequence[tirx.BufferRegion], pixel: tirx.Var, channel: tirx.Var
) -> tuple[int, int] | None:
    """The number of a read that depends on the channel but on no pixel, and the channel's place
    among its indices."""
    for number, region in enumerate(reads):
        at = [dimension.min for dimension in region.region]
        place = next((i for i, index in enumerate(at) if index.same_as(channel)), None)
        if place is not None and len(at) > 1 and not any(depends_on(i, pixel) for i in at):
            return number, place
    return None


def _divisor(extent: int, most: int) -> int:
    return next(n for n in range(most, 0, -1) if extent % n == 0)
