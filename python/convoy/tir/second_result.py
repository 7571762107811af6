"""GPU kernels of two element-wise results, of which the second one is computed of the first.

FuseOps gives a value that several kernels read a kernel of its own, and what is computed of it
element by element another one: two launches for the state of a recurrent cell and its output.
"""

from __future__ import annotations

import math

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import TensorLoad
from tvm.s_tir.dlight.analysis import normalize_prim_func
from tvm.script.ir_builder import IRBuilder
from tvm.sym import Analyzer
from tvm.tirx import Expr
from tvm.tirx.script import builder as T

from .builder import KERNEL, coordinates, substituted, when
from .loads import (
    alignment,
    contiguous_in,
    loads_of,
    static_extents,
    vector_width,
    writes_in_order,
)
from .row_stages import Unfit, loads_in

_THREADS = 128
#: Threads that are worth shorter vectors: so many run at once on a GPU.
_MANY_THREADS = 1 << 14


def second_result(first: tirx.PrimFunc, second: tirx.PrimFunc, place: int) -> tirx.PrimFunc:
    """Join two functions without schedules, of which the second one reads the result of the first
    as its parameter in ``place``: (parameters of both, result of the first, result of the second).

    Raises:
        s_tir.ScheduleError: They are others than element-wise functions of one shape.
    """
    one, other = map(_statement, (first, second))
    between = second.params[place]
    sizes = [int(axis.dom.extent) for axis in other.iter_vars]
    if sizes != [int(axis.dom.extent) for axis in one.iter_vars]:
        raise Unfit("results of several shapes")
    axes = {axis.var: own.var for axis, own in zip(one.iter_vars, other.iter_vars, strict=True)}
    value = substituted(one.body.value, axes)
    places = [[substituted(index, axes) for index in b.body.indices] for b in (one, other)]

    reads = [load for load in loads_in(other.body.value) if load.source.same_as(between)]
    if not all(tvm_ffi.structural_equal(list(load.indices), places[0]) for load in reads):
        raise Unfit("elements of the first result that are read elsewhere")

    def result(load: TensorLoad) -> Expr:
        return value if load.source.same_as(between) else load

    values = [value, tvm_ffi.structural_map(other.body.value, [(TensorLoad, result)])]
    *inputs, out = first.params
    *others, last = second.params
    others.pop(place)
    width = math.gcd(_width(one, ()), _width(other, (between,)))
    while width > 2 and math.prod(sizes) // width < _MANY_THREADS:
        width //= 2
    params = [*inputs, *others, out, last]
    variables = [axis.var for axis in other.iter_vars]
    return _kernel(params, [*zip(values, places, strict=True)], variables, sizes, width)


def _kernel(
    params: list[tirx.Buffer],
    results: list[tuple[Expr, list[Expr]]],
    axes: list[tirx.Var],
    sizes: list[int],
    width: int,
) -> tirx.PrimFunc:
    *outer, last = sizes
    vectors, dtype = math.prod(sizes) // width, str(axes[0].ty.dtype)
    analyzer = Analyzer()
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name("two_results")
            T.func_attr(KERNEL)
            made: dict[tirx.Var, Expr] = {
                param: T.arg(f"x{i}", T.buffer(param.shape, param.dtype))
                for i, param in enumerate(params)
            }
            outs = [made[param] for param in params[-2:]]
            with (
                T.sblock("root"),
                T.thread_binding(
                    0, tirx.const(-(-vectors // _THREADS), dtype), thread="blockIdx.x"
                ) as block,
                T.thread_binding(0, tirx.const(_THREADS, dtype), thread="threadIdx.x") as thread,
            ):
                number = block * _THREADS + thread
                *rows, vector = coordinates(number, [*outer, last // width], analyzer)
                with when(number < vectors, vectors % _THREADS > 0):
                    for out, (value, place) in zip(outs, results, strict=True):
                        with T.vectorized(0, tirx.const(width, dtype)) as lane:
                            at = [*rows, vector * width + lane]
                            names = {**made, **dict(zip(axes, at, strict=True))}
                            own = [substituted(index, names) for index in place]
                            T.buffer_store(out, substituted(value, names), own)
        return builder.get()


def _statement(func: tirx.PrimFunc) -> s_tir.SBlock:
    """The block that an element-wise function becomes once its steps are inlined."""
    sch = s_tir.Schedule(func)
    infos = normalize_prim_func(sch)
    if not infos or not all(info.is_injective() for info in infos):
        raise Unfit("more than element-wise steps")
    for info in infos[:-1]:
        sch.compute_inline(info.block_rv)
    block = sch.get(infos[-1].block_rv)
    plain = len(block.writes) == 1 and isinstance(block.body, tirx.BufferStore)
    if not plain or not static_extents(sch, infos[-1].block_rv) or not writes_in_order(block):
        raise Unfit("a result that is not written in order")
    if not block.writes[0].source.same_as(func.params[-1]):
        raise Unfit("another result than the last parameter")
    return block


def _width(block: s_tir.SBlock, skipped: tuple[tirx.Buffer, ...]) -> int:
    """Elements that a thread computes, as many as all operands can be loaded at once."""
    last = block.iter_vars[-1]
    width = vector_width(int(last.dom.extent), block.writes[0].source.dtype)
    for load in loads_of(block):
        if load.along(last.var) and not any(map(load.buffer.same_as, skipped)):
            if load.guarded or not load.uniform or not contiguous_in(load, last.var):
                return 1
            longest = vector_width(width, load.buffer.dtype)
            width = math.gcd(longest, alignment(load, last.var))
    return width
