"""What the threads of a kernel of :mod:`convoy.tir.row_stages` read, and what they keep."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.tirx import Expr

from .loads import Load, alignment, contiguous_in, depends_on, is_select, itemsize, vector_width
from .row_stages import RowStages, Unfit, loads_in
from .row_stages_layout import MOST_KEPT, Layout, across_rows, along_columns

#: Registers of 4 bytes for what several stages read, and elements that a thread loads before it
#: computes of them.
_BUDGET, _TOGETHER = 64, 32


class TooMany(Unfit):
    """A thread has too many elements to keep what is computed of them in registers."""


@dataclass(eq=False)
class Operand:
    """A parameter that is read at one place in each element, or once in each row.

    Attributes:
        of_row: Whether it is the same for all elements of a row.
        stages: Numbers of those that read it.
        varies: Whether a thread's elements next to each other are different ones of it.
        vector: How many of them are loaded at once.
        kept: Whether it stays in registers from the first stage that reads it.
    """

    load: TensorLoad
    of_row: bool
    stages: list[int]
    varies: bool = True
    vector: int = 1
    kept: bool = False


class RowPlan:
    """Operands of stages, and the threads that read them.

    Attributes:
        along: The axis along which a thread has elements next to each other.
        whole: Whether the steps of a thread are written out.

    Raises:
        Unfit: Nothing is read in order.
        TooMany: Values of elements are more than registers.
    """

    def __init__(self, stages: RowStages) -> None:
        self.stages = stages.stages
        self.rows, self.columns = stages.rows, stages.columns
        self.operands = self._operands()
        self.along = self._axis()
        self.layout = self._layout()
        self.whole = self.layout.kept <= MOST_KEPT
        self._plan()

    def _operands(self) -> list[Operand]:
        found: list[Operand] = []
        stage_buffers = {buffer for stage in self.stages for buffer in stage.written}
        columns = [axis.var for axis in self.columns]
        for number, stage in enumerate(self.stages):
            for value in stage.values:
                guarded = guarded_loads(value)
                for load in loads_in(value):
                    if load.source in stage_buffers or any(same_load(load, g) for g in guarded):
                        continue
                    if any(map(loads_in, load.indices)):
                        continue
                    known = next((o for o in found if same_load(o.load, load)), None)
                    if known is None:
                        of_row = not any(depends_on(i, v) for i in load.indices for v in columns)
                        known = Operand(load, of_row, [])
                        found.append(known)
                    if number not in known.stages:
                        known.stages.append(number)
        return found

    def _axis(self) -> tirx.IterVar:
        """The axis along which a thread has elements next to each other."""
        weights = []
        for axes in (self.columns, self.rows):
            axis = axes[-1] if axes else None
            weights.append(
                sum(
                    itemsize(o.load.source.dtype) * math.prod(map(int, o.load.source.shape))
                    for o in self.operands
                    if axis is not None and not o.of_row and _contiguous(o.load, axis.var)
                )
            )
        if not any(weights):
            raise Unfit("nothing is read in order")
        return self.columns[-1] if weights[0] >= weights[1] else self.rows[-1]

    @property
    def of_columns(self) -> bool:
        return self.along.var.same_as(self.columns[-1].var)

    def _layout(self) -> Layout:
        dtypes = [o.load.source.dtype for o in self.operands if _contiguous(o.load, self.along.var)]
        size = max(map(itemsize, dtypes))
        last = self.stages[-1]
        (result,) = last.written
        if contiguous_in(as_load_of(last.indices, result), self.along.var):
            dtypes.append(result.dtype)
        width = min(vector_width(int(self.along.dom.extent), dtype) for dtype in dtypes)
        rows, columns = (
            math.prod(int(axis.dom.extent) for axis in axes) for axes in (self.rows, self.columns)
        )
        make = along_columns if self.of_columns else across_rows
        return make(rows, columns, width, size)

    def _plan(self) -> None:
        """Choose vectors, and what stays in registers."""
        layout, var = self.layout, self.along.var
        together = layout.width * layout.own
        for operand in self.operands:
            load = operand.load
            operand.varies = any(depends_on(index, var) for index in load.indices)
            if _contiguous(load, var):
                aligned = alignment(_as_load(load), var)
                operand.vector = math.gcd(together, aligned)
        left = _BUDGET
        elements = [s for s in self.stages[:-1] if not s.of_rows]
        if elements:
            left -= layout.kept * len(elements)
            if not self.whole or left < 0:
                raise TooMany
        for operand in sorted(self.operands, key=lambda o: -len(o.stages)):
            size = -(-layout.kept * itemsize(operand.load.source.dtype) // 4)
            keeps = self.whole and len(operand.stages) > 1 and not operand.of_row
            if keeps and size <= left:
                operand.kept, left = True, left - size

    def passing(self, number: int) -> list[Operand]:
        """What a stage loads of the elements and no stage keeps."""
        return [o for o in self.operands if number in o.stages and not o.kept and not o.of_row]

    def together(self, operands: list[Operand]) -> int:
        """Steps of a thread for which operands are loaded before any is computed."""
        layout = self.layout
        size = layout.own * layout.width * max(1, len(operands))
        return min(layout.steps, max(1 if self.whole else 2, _TOGETHER // size))


def guarded_loads(value: Expr) -> list[TensorLoad]:
    """Loads that happen under a condition only."""
    found: list[TensorLoad] = []

    def select(call: tvm.ir.Call) -> None:
        if is_select(call):
            for branch in call.args[1:]:
                found.extend(loads_in(branch))

    tvm_ffi.structural_walk(value, [(tvm.ir.Call, select)])
    return found


def same_load(one: TensorLoad, other: TensorLoad) -> bool:
    """Whether two loads read the same element."""
    return one.source.same_as(other.source) and tvm_ffi.structural_equal(
        list(one.indices), list(other.indices)
    )


def as_load_of(indices: Sequence[Expr], buffer: tirx.Buffer) -> Load:
    """A buffer at indices, as a read."""
    longer = [
        index
        for index, size in zip(indices, buffer.shape, strict=True)
        if not (isinstance(size, tirx.IntImm) and int(size) == 1)
    ]
    return Load(buffer, longer, False, True)


def _as_load(load: TensorLoad) -> Load:
    return as_load_of(load.indices, load.source)


def _contiguous(load: TensorLoad, var: tirx.Var) -> bool:
    return contiguous_in(_as_load(load), var)
