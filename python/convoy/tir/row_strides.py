"""Kernels on slices: tensors whose rows lie further apart than their elements."""

from __future__ import annotations

from collections.abc import Mapping

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from ..graph.slices import NotSliceable
from .builder import substituted

#: Attribute of a function: the row strides that it was given, by the numbers of its parameters.
ROW_STRIDES = "convoy.row_strides"


def with_row_strides(func: tirx.PrimFunc, strides: Mapping[int, int]) -> tirx.PrimFunc:
    """The same scheduled function on tensors whose rows (the last axis) lie so many elements apart,
    by the numbers of its parameters.

    Raises NotSliceable for a function that takes the memory of one of them for something else.
    """
    replaced = {func.params[i]: _strided(func.params[i], row) for i, row in strides.items()}
    _check(func, replaced)
    body = substituted(func.body, replaced)
    params = [replaced.get(param, param) for param in func.params]
    attrs = {ROW_STRIDES: [[i, row] for i, row in strides.items()]}
    return tirx.PrimFunc(params, body, func.ret_type, func.attrs, func.span).with_attr(attrs)


def like(func: tirx.PrimFunc, strided: tirx.PrimFunc) -> tirx.PrimFunc:
    """A function on compact tensors, with the row strides that another one was given."""
    if not strided.attrs or ROW_STRIDES not in strided.attrs:
        return func
    return with_row_strides(func, {int(i): int(row) for i, row in strided.attrs[ROW_STRIDES]})


def _strided(param: tirx.Buffer, row: int) -> tirx.Buffer:
    steps, step = [1], row
    for extent in reversed(list(param.shape)[:-1]):
        steps.append(step)
        step *= int(extent)
    strides = [
        tirx.IntImm(extent.ty.dtype, value)
        for extent, value in zip(param.shape, reversed(steps), strict=True)
    ]
    return tirx.decl_buffer(param.shape, param.dtype, param.name, strides=strides)


def _check(func: tirx.PrimFunc, params: Mapping[tirx.Buffer, tirx.Buffer]) -> None:
    """Raise where something but loads and stores by index refers to a parameter."""
    named: list[object] = []
    tvm_ffi.structural_walk(
        func.body,
        [
            (s_tir.SBlock, lambda node: named.extend(m.source.source for m in node.match_buffers)),
            (tvm.ir.Call, lambda node: named.extend(node.args)),
        ],
    )
    for source in named:
        if isinstance(source, tvm.ir.Var) and source in params:
            raise NotSliceable(f"{source.name} of a kernel that takes its address")
