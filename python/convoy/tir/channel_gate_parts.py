"""What a function computes that :mod:`convoy.tir.channel_gate` schedules."""

from __future__ import annotations

import math
from dataclasses import dataclass

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad
from tvm.sym import Analyzer
from tvm.tirx import Expr

from .builder import substituted
from .channel_gate_layout import GatedShape, Layout, layout_of
from .loads import (
    contiguous_in,
    depends_on,
    itemsize,
    loads_of,
    static_extents,
    vector_width,
    writes_in_order,
)
from .row_stages import Unfit, loads_in
from .window import single_reduction


@dataclass
class Gated:
    """What a function computes, in the axes of its result.

    Attributes:
        images, pixels, channel: Axes of the result, without those of one element.
        summed: Axis of the product.
        vector, matrix: Operands of the product, and what is added for an element of both.
        total: Stands for the sum in ``gate``, a function of it for each channel of an image.
        scale: Stands for the gate in ``value``, the result.
    """

    images: list[tirx.IterVar]
    pixels: list[tirx.IterVar]
    channel: tirx.IterVar
    summed: tirx.IterVar
    vector: TensorLoad
    matrix: TensorLoad
    term: Expr
    total: tirx.Var
    gate: Expr
    scale: tirx.Var
    value: Expr
    result: tirx.Buffer
    indices: list[Expr]
    layout: Layout


def gated(func: tirx.PrimFunc) -> Gated:
    """Read a function without a schedule.

    Raises:
        s_tir.ScheduleError: It is another kind of function, or one whose gates are better computed
            by a kernel of their own.
    """
    sch = s_tir.Schedule(func)
    found = single_reduction(sch)
    if found is None or found[0][-1] is found[1]:
        raise Unfit("not one reduction with something behind it")
    infos, reduction = found
    last, block = infos[-1].block_rv, reduction.block_rv
    if static_extents(sch, last) is None:
        raise Unfit("sizes that are not known")
    results, sums = (_elements(sch.get(rv).writes[0].source) for rv in (last, block))
    if results <= sums:
        raise Unfit("sums that are not spread over more elements")
    for info in infos[:-1]:
        if info is not reduction:
            sch.compute_inline(info.block_rv)
    return _read(sch.get(block), sch.get(last))


def _read(product: s_tir.SBlock, last: s_tir.SBlock) -> Gated:
    if not writes_in_order(last):
        raise Unfit("a result that is not written in order")
    axes = [axis for axis in last.iter_vars if int(axis.dom.extent) > 1]
    ones = [axis.var for axis in last.iter_vars if int(axis.dom.extent) == 1]
    zeros = {var: tirx.const(0, var.ty.dtype) for var in ones}
    value = _simplified(substituted(last.body.value, zeros), axes)
    indices = [substituted(index, zeros) for index in last.body.indices]
    sums = product.writes[0].source
    reads = [load for load in loads_in(value) if load.source.same_as(sums)]
    if not reads or any(not tvm_ffi.structural_equal(reads[0], other) for other in reads[1:]):
        raise Unfit("sums of several channels are read")
    at = [index for index in reads[0].indices if not isinstance(index, tirx.IntImm)]
    images, channel = axes[: len(at) - 1], axes[-1]
    pixels = axes[len(images) : -1]
    wanted = [axis.var for axis in [*images, channel]]
    if not pixels or at != wanted:
        raise Unfit("sums that are not of the channels of an image")
    gate, scale, value = _gate(value, sums, [axis.var for axis in pixels])
    total = tirx.Var("total", str(sums.dtype))
    gate = tvm_ffi.structural_map(
        gate, [(TensorLoad, lambda load: total if load.source.same_as(sums) else load)]
    )
    summed, term, own = _term(product, reads[0])
    vector, matrix = _operands(product, summed.var, own, channel.var)
    term, vector, matrix = (substituted(part, own) for part in (term, vector, matrix))
    (result,) = [region.source for region in last.writes]
    layout = layout_of(
        GatedShape(
            images=_size(images),
            pixels=_size(pixels),
            channels=_size([channel]),
            length=_size([summed]),
            width=_width(last, channel, sums),
            of_row=min(vector_width(_size([summed]), m.source.dtype) for m in (vector, matrix)),
            itemsize=itemsize(result.dtype),
            weight_itemsize=itemsize(matrix.source.dtype),
        )
    )
    if layout is None:
        raise Unfit("a matrix that each block would take long to read")
    return Gated(
        images, pixels, channel, summed, vector, matrix, term, total, gate, scale, value, result,
        indices, layout,
    )  # fmt: skip


def _gate(value: Expr, sums: tirx.Buffer, pixels: list[tirx.Var]) -> tuple[Expr, tirx.Var, Expr]:
    """The largest part of a value that reads sums and is the same for all pixels, a variable, and
    the value with the variable in its place."""
    found: list[tuple[Expr, tirx.Var]] = []

    def replaced(part: Expr) -> Expr:
        of_sums = any(load.source.same_as(sums) for load in loads_in(part))
        if not of_sums or any(depends_on(part, var) for var in pixels):
            return part
        if not found:
            found.append((part, tirx.Var("gate", str(part.ty.dtype))))
        gate, scale = found[0]
        if not tvm_ffi.structural_equal(gate, part):
            raise Unfit("several functions of the sums")
        return scale

    value = tvm_ffi.structural_map(value, [(tirx.Expr, replaced)], order="pre")
    return *found[0], value


def _term(
    product: s_tir.SBlock, read: TensorLoad
) -> tuple[tirx.IterVar, Expr, dict[tirx.Var, Expr]]:
    """The axis that is summed, what is added, and axes of the result for the product's own."""
    summed = [a for a in product.iter_vars if a.iter_type == tirx.IterVar.CommReduce]
    store, init = product.body, product.init
    if len(summed) != 1 or not isinstance(store, tirx.BufferStore):
        raise Unfit("sums over several axes")
    value, start = store.value, init.value if isinstance(init, tirx.BufferStore) else None
    if not isinstance(value, tirx.Add) or not isinstance(start, tirx.FloatImm) or start.value != 0:
        raise Unfit("a reduction that is no sum")
    state = [part for part in (value.a, value.b) if _is_load(part, store.buffer)]
    terms = [part for part in (value.a, value.b) if not _is_load(part, store.buffer)]
    if len(state) != 1 or any(load.source.same_as(store.buffer) for load in loads_in(terms[0])):
        raise Unfit("a reduction that is no sum")
    own: dict[tirx.Var, Expr] = {}
    for index, at in zip(store.indices, read.indices, strict=True):
        if isinstance(index, tirx.Var):
            own[index] = at
    for axis in product.iter_vars:
        if axis.var not in own and not axis.var.same_as(summed[0].var):
            if int(axis.dom.extent) > 1:
                raise Unfit("sums that are not written in order")
            own[axis.var] = tirx.const(0, axis.var.ty.dtype)
    return summed[0], terms[0], own


def _is_load(part: Expr, buffer: tirx.Buffer) -> bool:
    return isinstance(part, TensorLoad) and part.source.same_as(buffer)


def _operands(
    product: s_tir.SBlock, summed: tirx.Var, own: dict[tirx.Var, Expr], channel: tirx.Var
) -> tuple[TensorLoad, TensorLoad]:
    """The vector of an image, and the matrix, whose rows are those of the channels."""
    loads = loads_of(product)
    if len(loads) != 2 or any(load.guarded or not load.uniform for load in loads):
        raise Unfit("not a product of two operands")
    if not all(contiguous_in(load, summed) for load in loads):
        raise Unfit("operands that are not read in order")
    of_row = [var for var, common in own.items() if common.same_as(channel)]
    of_image = [var for var, common in own.items() if not common.same_as(channel)]
    vector, matrix = sorted(loads, key=lambda load: any(map(load.along, of_row)))
    if any(map(vector.along, of_row)) or any(map(matrix.along, of_image)):
        raise Unfit("not a product of a vector of an image and a matrix of the channels")
    found = {load.source: load for load in loads_in(product.body)}
    return found[vector.buffer], found[matrix.buffer]


def _simplified(value: Expr, axes: list[tirx.IterVar]) -> Expr:
    """A value with the simplest indices: a reshape puts divisions into them."""
    analyzer = Analyzer()
    for axis in axes:
        analyzer.bind(axis.var, axis.dom)

    def placed(load: TensorLoad) -> Expr:
        return load.source[tuple(map(analyzer.simplify, load.indices))]

    return tvm_ffi.structural_map(value, [(TensorLoad, placed)])


def _width(last: s_tir.SBlock, channel: tirx.IterVar, sums: tirx.Buffer) -> int:
    """Channels that a thread moves at once."""
    moved = [last.writes[0].source]
    for load in loads_of(last):
        of_image = contiguous_in(load, channel.var) and len(load.indices) > 1
        if of_image and not load.buffer.same_as(sums):
            moved.append(load.buffer)
    return min(vector_width(int(channel.dom.extent), buffer.dtype) for buffer in moved)


def _size(axes: list[tirx.IterVar]) -> int:
    return math.prod(int(axis.dom.extent) for axis in axes)


def _elements(buffer: tirx.Buffer) -> int:
    return math.prod(map(int, buffer.shape))
