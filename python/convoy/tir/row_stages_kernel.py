"""GPU kernels of :mod:`convoy.tir.row_stages`: threads that share rows compute stage after stage.

What several stages read of the elements stays in registers where a thread has few. The states of a
reduction are joined by shuffles, and between warps in shared memory behind a barrier; every thread
then has the value of its rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.sym import Analyzer
from tvm.tirx import Expr
from tvm.tirx.script import builder as T

from .builder import split_index, substituted, when, with_body_of
from .loads import alignment, contiguous_in, itemsize, vector_width
from .row_norms import of_lane, registers
from .row_stages import RowStages, Stage, Unfit
from .row_stages_plan import Operand, RowPlan, TooMany, as_load_of, same_load

_WARP = 32


def kernel(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return the function as a GPU kernel.

    Raises:
        Unfit: It is no function of stages over the same rows, or none that is read in order.
    """
    try:
        found = _Kernel(RowStages(func))
    except TooMany:
        found = _Kernel(RowStages(func, keeps=False))
    return with_body_of(func, found.emit)


class _Kernel(RowPlan):
    """A kernel under construction."""

    def emit(self) -> None:
        layout, self._analyzer = self.layout, Analyzer()
        self._index = self.columns[0].var.ty.dtype
        for axis in [*self.rows, *self.columns]:
            if axis.var.ty.dtype != self._index:
                raise Unfit("indices of several types")
        self._allocate()
        with (
            T.thread_binding(0, self._int(layout.blocks), thread="blockIdx.x") as block,
            T.thread_binding(0, self._int(layout.threads), thread="threadIdx.x") as thread,
        ):
            bounds = ((block, layout.blocks), (thread, layout.threads))
            for var, extent in bounds:
                self._analyzer.bind(var, tvm.ir.Range(self._int(0), self._int(extent)))
            self.thread = thread
            beside = thread % layout.beside
            self.lane = self._simple(thread // layout.beside % layout.lanes)
            part = thread // (layout.beside * layout.lanes)
            group = self._simple((block * layout.parts + part) * layout.beside + beside)
            self.beside = self._simple(beside)
            self.guarded = layout.groups % (layout.parts * layout.beside) != 0
            self.is_own = group < layout.groups
            if self.guarded:  # all threads take part in shuffles and barriers
                group = tirx.min(group, self._int(layout.groups - 1))
            self.group = group
            for number, stage in enumerate(self.stages):
                self._emit_stage(number, stage)

    def _allocate(self) -> None:
        layout = self.layout
        self.loaded: dict[Operand, tirx.Buffer] = {}
        for operand in self.operands:
            size = layout.own * layout.width if operand.varies else 1
            steps = layout.steps
            if not operand.kept:
                steps = max(self.together(self.passing(number)) for number in operand.stages)
            shape = (1 if operand.of_row else steps, size)
            self.loaded[operand] = registers(shape, str(operand.load.source.dtype))
        #: Registers of each stage's values, by what they were written to before.
        self.values: dict[tirx.Buffer, tirx.Buffer] = {}
        for stage in self.stages:
            shape = (1, layout.own)
            if not stage.of_rows:
                shape = (1 if stage is self.stages[-1] else layout.steps, layout.own * layout.width)
            for buffer in stage.written:
                self.values[buffer] = registers(shape, str(buffer.dtype))
        #: Registers for new states of a reduction of several values, and shared memory.
        self.fresh = {
            buffer: registers((1,), str(buffer.dtype))
            for stage in self.stages
            for buffer in (stage.written if len(stage.written) > 1 else ())
        }
        #: Shared memory of a type, in which each stage has a place of its own: none overwrites what
        #: others may still read.
        self.shared: dict[tirx.Buffer, tuple[tirx.Buffer, int]] = {}
        if layout.warps > 1:
            reduced = [b for stage in self.stages if stage.start is not None for b in stage.written]
            for dtype in dict.fromkeys(str(buffer.dtype) for buffer in reduced):
                mine = [buffer for buffer in reduced if str(buffer.dtype) == dtype]
                slots = (len(mine), layout.warps, layout.beside * layout.own)
                place = T.sblock_alloc_buffer(slots, dtype, scope="shared")
                self.shared.update((buffer, (place, i)) for i, buffer in enumerate(mine))

    def _emit_stage(self, number: int, stage: Stage) -> None:
        is_last = number == len(self.stages) - 1
        mine = [o for o in self.operands if number in o.stages]
        first = [o for o in mine if o.stages[0] == number]
        for operand in first:
            if operand.of_row:
                self._load(operand, 0, self._int(0))
        if stage.start is not None:
            for buffer, start in zip(stage.written, stage.start, strict=True):
                for j in range(self.layout.own):
                    T.buffer_store(self.values[buffer], start, [0, j])
        if stage.start is None and stage.of_rows:
            self._compute(stage, 0, 0, None)
        else:
            self._load_kept([o for o in first if o.kept])
            read = self.passing(number)
            for chunk in self._chunks(self.together(read)):
                for slot, (_, vector, needed) in enumerate(chunk):
                    with when(vector < self.layout.vectors, needed):
                        for operand in read:
                            self._load(operand, slot, vector)
                for slot, (step, vector, needed) in enumerate(chunk):
                    own = self.guarded and is_last and not stage.of_rows
                    with when(vector < self.layout.vectors, needed), when(self.is_own, own):
                        self._compute(stage, step, slot, vector)
                        if is_last and not stage.of_rows:
                            self._store(stage, vector)
        if stage.start is not None:
            self._join(stage)
        if is_last and stage.of_rows:
            with when(self.lane == 0, self.layout.lanes > 1), when(self.is_own, self.guarded):
                self._store(stage, self._int(0))

    def _load_kept(self, operands: list[Operand]) -> None:
        for chunk in self._chunks(self.layout.steps) if operands else ():
            for step, vector, needed in chunk:
                with when(vector < self.layout.vectors, needed):
                    for operand in operands:
                        self._load(operand, step, vector)

    def _chunks(self, together: int) -> Iterator[list[tuple[int, Expr, bool]]]:
        """A thread's vectors, some at a time: number of the step, if it is known, number in the
        row, and whether it may be missing."""
        layout = self.layout
        if self.whole:
            steps = [
                (
                    step,
                    self._simple(self.lane + step * layout.lanes),
                    (step + 1) * layout.lanes > layout.vectors,
                )
                for step in range(layout.steps)
            ]
            for begin in range(0, layout.steps, together):
                yield steps[begin : begin + together]
            return
        chunks = -(-layout.steps // together)
        needed = chunks * together * layout.lanes > layout.vectors
        with T.serial(self._int(0), self._int(chunks)) as chunk:
            self._analyzer.bind(chunk, tvm.ir.Range(self._int(0), self._int(chunks)))
            yield [
                (-1, (chunk * together + u) * layout.lanes + self.lane, needed)
                for u in range(together)
            ]

    def _at(self, vector: Expr | None, element: Expr | int) -> dict[tirx.Var, Expr]:
        """The common axes at an element of a thread's vector."""
        layout = self.layout
        row, column = self.group * layout.own, self._int(0) if vector is None else vector
        column = column * layout.width
        if self.of_columns:
            column = column + element
        else:
            row = row + element
        rows = split_index(row, self.rows, self._analyzer)
        return {**rows, **split_index(column, self.columns, self._analyzer)}

    def _load(self, operand: Operand, place: int, vector: Expr) -> None:
        load, into = operand.load, self.loaded[operand]
        place = 0 if operand.of_row else place
        size = int(into.shape[1])
        for first in range(0, size, operand.vector):
            with vector_of(operand.vector, self._index) as i:
                if isinstance(i, tirx.Var):
                    extent = self._int(operand.vector)
                    self._analyzer.bind(i, tvm.ir.Range(self._int(0), extent))
                at = self._at(vector, i + first)
                indices = [self._placed(index, at) for index in load.indices]
                T.buffer_store(into, load.source[tuple(indices)], [self._int(place), i + first])

    def _placed(self, expr: Expr, at: dict[tirx.Var, Expr]) -> Expr:
        return self._simple(substituted(expr, at))

    def _compute(self, stage: Stage, step: int, slot: int, vector: Expr | None) -> None:
        """The values of a stage of each of a thread's elements next to each other."""
        layout = self.layout
        size = layout.own if vector is None else layout.own * layout.width
        for e in range(size):
            at = self._at(vector, self._int(e))
            values = [self._value(value, at, step, slot, e) for value in stage.values]
            row = 0 if self.of_columns else e
            if stage.join is not None:
                self._update(stage, row, values)
                continue
            to = [step if not stage.of_rows and stage is not self.stages[-1] else 0]
            to.append(row if stage.of_rows else e)
            for buffer, value in zip(stage.written, values, strict=True):
                T.buffer_store(self.values[buffer], value, to)

    def _value(self, value: Expr, at: dict[tirx.Var, Expr], step: int, slot: int, e: int) -> Expr:
        """An expression of one element, with what is in registers in place of loads."""

        def loaded(load: TensorLoad) -> Expr:
            kept = self.values.get(load.source)
            if kept is not None:
                if self._is_of_rows(load.source):
                    return kept[0, 0 if self.of_columns else e]
                return kept[step, e]
            for operand in self.operands:
                if same_load(operand.load, load):
                    where = 0 if operand.of_row else step if operand.kept else slot
                    return self.loaded[operand][where, e if operand.varies else 0]
            return load

        return tvm_ffi.structural_map(
            value, [(TensorLoad, loaded), (tirx.Var, lambda var: at.get(var, var))], order="pre"
        )

    def _is_of_rows(self, buffer: tirx.Buffer) -> bool:
        return any(buffer in stage.written and stage.of_rows for stage in self.stages)

    def _join(self, stage: Stage) -> None:
        """Join the states of the threads that share rows; each has the result."""
        layout = self.layout
        own = [self.values[buffer] for buffer in stage.written]
        others = [registers((1,), str(state.dtype)) for state in own]
        bits, bit = [], layout.beside
        while bit < min(_WARP, layout.beside * layout.lanes):
            bits.append(bit)
            bit *= 2
        for bit in reversed(bits):
            for j in range(layout.own):
                for state, other in zip(own, others, strict=True):  # by all lanes alike
                    T.buffer_store(other, _exchanged(bit, state[0, j]), [0])
                self._update(stage, j, [other[0] for other in others])
        if layout.warps == 1:
            return
        shared = [self.shared[buffer] for buffer in stage.written]
        warp, lane = self.thread // _WARP, self.thread % _WARP
        with when(lane < layout.beside):
            for j in range(layout.own):
                for state, (place, slot) in zip(own, shared, strict=True):
                    row = self.beside * layout.own + j
                    T.buffer_store(place, state[0, j], [slot, warp, row])
        T.evaluate(T.tvm_storage_sync("shared"))
        for j in range(layout.own):
            row = self.beside * layout.own + j
            for state, (place, slot) in zip(own, shared, strict=True):
                T.buffer_store(state, place[slot, 0, row], [0, j])
            for other in range(1, layout.warps):
                self._update(stage, j, [place[slot, other, row] for place, slot in shared])

    def _update(self, stage: Stage, j: int, values: Sequence[Expr]) -> None:
        """Join values to the states of a thread's row ``j``."""
        own = [self.values[buffer] for buffer in stage.written]
        assert stage.join is not None
        joined = stage.join([state[0, j] for state in own], values)
        if len(own) > 1:  # each depends on all of the states before
            fresh = [self.fresh[buffer] for buffer in stage.written]
            for one, value in zip(fresh, joined, strict=True):
                T.buffer_store(one, value, [0])
            joined = [one[0] for one in fresh]
        for state, value in zip(own, joined, strict=True):
            T.buffer_store(state, value, [0, j])

    def _store(self, stage: Stage, vector: Expr) -> None:
        """Write a thread's results."""
        (result,) = stage.written
        values = self.values[result]
        size, width = int(values.shape[1]), 1
        along = as_load_of(stage.indices, result)
        if size > 1 and contiguous_in(along, self.along.var):
            aligned = math.gcd(size, alignment(along, self.along.var))
            width = vector_width(aligned, result.dtype)
        for first in range(0, size, width):
            with vector_of(width, self._index) as i:
                if isinstance(i, tirx.Var):
                    self._analyzer.bind(i, tvm.ir.Range(self._int(0), self._int(width)))
                at = self._at(vector, i + first)
                indices = [self._placed(index, at) for index in stage.indices]
                T.buffer_store(result, values[0, i + first], indices)

    def _int(self, value: int) -> Expr:
        return tirx.const(value, self._index)

    def _simple(self, expr: Expr) -> Expr:
        return self._analyzer.simplify(expr)


@contextmanager
def vector_of(count: int, dtype: str) -> Iterator[Expr]:
    """Positions of a vector; a number where there is one."""
    if count == 1:
        yield tirx.const(0, dtype)
        return
    with T.vectorized(tirx.const(0, dtype), tirx.const(count, dtype)) as i:
        yield i


def _exchanged(bits: int, value: Expr) -> Expr:
    """The value of the lane whose number differs by ``bits``; narrow types travel as 32 bits."""
    dtype = str(value.ty.dtype)
    wide = dtype
    if itemsize(dtype) < 4:
        wide = "float32" if "float" in dtype else "int32"
    return of_lane(bits, value.astype(wide)).astype(dtype)
