"""Parts that kernels built with TVM's IR builder share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import tvm_ffi
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.sym import Analyzer
from tvm.tirx.script import builder as T

from ..graph.state import IN_PLACE

Node = TypeVar("Node", bound=tvm_ffi.Object)

#: Attribute of kernels that take longer with some values of their inputs than with others.
TIMED_BY_VALUES = "convoy.timed_by_values"

#: Attributes of a kernel that comes with its threads bound and fuses with nothing (opaque).
KERNEL = {"op_pattern": 8, "tirx.is_scheduled": True, "tirx.noalias": True}

#: The same, with results that may share the memory of inputs of their shape.
IN_PLACE_KERNEL = {**KERNEL, IN_PLACE: True}


@contextmanager
def when(condition: tirx.Expr, needed: bool = True) -> Iterator[None]:
    """Guard the statements emitted inside by a condition, if one is ``needed``."""
    if not needed:
        yield
        return
    with T.If(condition), T.Then():
        yield


def with_body_of(func: tirx.PrimFunc, emit: Callable[[], None]) -> tirx.PrimFunc:
    """Return the function with the body that ``emit`` writes."""
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name("main")
            emit()
        built = builder.get()
    return func.with_body(built.body)


def coordinates(
    number: tirx.Expr, sizes: Sequence[int], analyzer: Analyzer | None = None
) -> list[tirx.Expr]:
    """Return the place along each axis of an element that is numbered across all of them, the last
    axis fastest."""
    found: list[tirx.Expr] = []
    for axis in reversed(range(len(sizes))):
        place = number % sizes[axis] if axis else number
        found.insert(0, analyzer.simplify(place) if analyzer else place)
        number = number // sizes[axis]
    return found


def split_index(
    number: tirx.Expr, axes: Sequence[tirx.IterVar], analyzer: Analyzer
) -> dict[tirx.Var, tirx.Expr]:
    """Return :func:`coordinates` by the variable of each axis."""
    places = coordinates(number, [int(axis.dom.extent) for axis in axes], analyzer)
    return {axis.var: place for axis, place in zip(axes, places, strict=True)}


def substituted(node: Node, by: Mapping[tirx.Var, tirx.Expr]) -> Node:
    """Return an expression or statement with others in place of its variables and buffers."""
    return tvm_ffi.structural_map(node, [(tirx.Var, lambda var: by.get(var, var))], order="pre")
