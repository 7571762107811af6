"""GPU kernels of :mod:`convoy.tir.row_stages`: threads that share rows compute stage after stage.

What several stages read of the elements stays in registers where a thread has few. The states of a
reduction are joined by shuffles, and between warps in shared memory behind a barrier; every thread
then has the value of its rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad
from tvm.script.ir_builder import IRBuilder
from tvm.sym import Analyzer
from tvm.tirx import Expr
from tvm.tirx.script import builder as T

from .builder import when
from .loads import Load, alignment, contiguous_in, depends_on, is_select, itemsize, vector_width
from .row_norms import registers
from .row_stages import RowStages, Stage, Unfit
from .row_stages_layout import MOST_KEPT, Layout, across_rows, along_columns

_WARP = 32
#: Registers of 4 bytes for what several stages read, and elements that a thread loads before it
#: computes of them.
_BUDGET, _TOGETHER = 64, 32


@dataclass(eq=False)
class _Operand:
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


def kernel(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return the function as a GPU kernel.

    Raises:
        Unfit: It is no function of stages over the same rows, or none that is read in order.
    """
    try:
        found = _Kernel(RowStages(func))
    except TooMany:
        found = _Kernel(RowStages(func, keeps=False))
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name("main")
            found.emit()
        built = builder.get()
    return func.with_body(built.body)


class TooMany(Unfit):
    """A thread has too many elements to keep what is computed of them in registers."""


class _Kernel:
    """A kernel under construction."""

    def __init__(self, stages: RowStages) -> None:
        self.stages = stages.stages
        self.rows, self.columns = stages.rows, stages.columns
        self._analyzer = Analyzer()
        self.operands = self._operands()
        self.along = self._axis()
        self.layout = self._layout()
        self._plan()

    # --- What is read, and by which threads.

    def _operands(self) -> list[_Operand]:
        found: list[_Operand] = []
        stage_buffers = {buffer for stage in self.stages for buffer in stage.written}
        columns = [axis.var for axis in self.columns]
        for number, stage in enumerate(self.stages):
            for value in stage.values:
                guarded = _guarded(value)
                loads: list[TensorLoad] = []
                tvm_ffi.structural_walk(value, [(TensorLoad, loads.append)])
                for load in loads:
                    if load.source in stage_buffers or any(_same(load, g) for g in guarded):
                        continue
                    if any(_has_load(index) for index in load.indices):
                        continue
                    known = next((o for o in found if _same(o.load, load)), None)
                    if known is None:
                        of_row = not any(depends_on(i, v) for i in load.indices for v in columns)
                        known = _Operand(load, of_row, [])
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
        if contiguous_in(_as_indices(last.indices, result), self.along.var):
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
        self.whole = layout.kept <= MOST_KEPT
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

    # --- The kernel.

    def emit(self) -> None:
        layout = self.layout
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
        self.loaded: dict[_Operand, tirx.Buffer] = {}
        for operand in self.operands:
            size = layout.own * layout.width if operand.varies else 1
            steps = layout.steps
            if not operand.kept:
                steps = max(self._together(self._passing(number)) for number in operand.stages)
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
                shape = (len(mine), layout.warps, layout.beside * layout.own)
                place = T.sblock_alloc_buffer(shape, dtype, scope="shared")
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
            read = self._passing(number)
            for chunk in self._chunks(self._together(read)):
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

    def _passing(self, number: int) -> list[_Operand]:
        """What a stage loads of the elements and no stage keeps."""
        return [o for o in self.operands if number in o.stages and not o.kept and not o.of_row]

    def _load_kept(self, operands: list[_Operand]) -> None:
        for chunk in self._chunks(self.layout.steps) if operands else ():
            for step, vector, needed in chunk:
                with when(vector < self.layout.vectors, needed):
                    for operand in operands:
                        self._load(operand, step, vector)

    def _together(self, operands: list[_Operand]) -> int:
        """Steps of a thread for which operands are loaded before any is computed."""
        layout = self.layout
        size = layout.own * layout.width * max(1, len(operands))
        return min(layout.steps, max(1 if self.whole else 2, _TOGETHER // size))

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
        return {**self._split(row, self.rows), **self._split(column, self.columns)}

    def _split(self, number: Expr, axes: Sequence[tirx.IterVar]) -> dict[tirx.Var, Expr]:
        found = {}
        for position, axis in reversed([*enumerate(axes)]):
            extent = int(axis.dom.extent)
            found[axis.var] = self._simple(number % extent if position else number)
            number = number // extent
        return found

    def _load(self, operand: _Operand, place: int, vector: Expr) -> None:
        load, into = operand.load, self.loaded[operand]
        place = 0 if operand.of_row else place
        size = int(into.shape[1])
        for first in range(0, size, operand.vector):
            with _elements(operand.vector, self._index) as i:
                if isinstance(i, tirx.Var):
                    extent = self._int(operand.vector)
                    self._analyzer.bind(i, tvm.ir.Range(self._int(0), extent))
                at = self._at(vector, i + first)
                indices = [self._placed(index, at) for index in load.indices]
                T.buffer_store(into, load.source[tuple(indices)], [self._int(place), i + first])

    def _placed(self, expr: Expr, at: dict[tirx.Var, Expr]) -> Expr:
        return self._simple(
            tvm_ffi.structural_map(expr, [(tirx.Var, lambda var: at.get(var, var))], order="pre")
        )

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
                if _same(operand.load, load):
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
                    T.buffer_store(other, _of_lane(bit, state[0, j]), [0])
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
        (result,), _layout = stage.written, self.layout
        values = self.values[result]
        size, width = int(values.shape[1]), 1
        along = _as_indices(stage.indices, result)
        if size > 1 and contiguous_in(along, self.along.var):
            aligned = math.gcd(size, alignment(along, self.along.var))
            width = vector_width(aligned, result.dtype)
        for first in range(0, size, width):
            with _elements(width, self._index) as i:
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
def _elements(count: int, dtype: str) -> Iterator[Expr]:
    """Positions of a vector; a number where there is one."""
    if count == 1:
        yield tirx.const(0, dtype)
        return
    with T.vectorized(tirx.const(0, dtype), tirx.const(count, dtype)) as i:
        yield i


def _of_lane(bits: int, value: Expr) -> Expr:
    """The value of the lane whose number differs by ``bits``; 32 bits or more are exchanged."""
    dtype = str(value.ty.dtype)
    wide = dtype
    if itemsize(dtype) < 4:
        wide = "float32" if "float" in dtype else "int32"
    mask = tirx.const(0xFFFFFFFF, "uint32")
    other = T.tvm_warp_shuffle_xor(mask, value.astype(wide), bits, _WARP, _WARP)
    return other.astype(dtype)


def _guarded(value: Expr) -> list[TensorLoad]:
    """Loads that happen under a condition only."""
    found: list[TensorLoad] = []

    def select(call: tvm.ir.Call) -> None:
        if is_select(call):
            for branch in call.args[1:]:
                tvm_ffi.structural_walk(branch, [(TensorLoad, found.append)])

    tvm_ffi.structural_walk(value, [(tvm.ir.Call, select)])
    return found


def _has_load(expr: Expr) -> bool:
    found: list[TensorLoad] = []
    tvm_ffi.structural_walk(expr, [(TensorLoad, found.append)])
    return bool(found)


def _same(one: TensorLoad, other: TensorLoad) -> bool:
    return one.source.same_as(other.source) and tvm_ffi.structural_equal(
        list(one.indices), list(other.indices)
    )


def _as_indices(indices: Sequence[Expr], buffer: tirx.Buffer) -> Load:
    longer = [
        index
        for index, size in zip(indices, buffer.shape, strict=True)
        if not (isinstance(size, tirx.IntImm) and int(size) == 1)
    ]
    return Load(buffer, longer, False, True)


def _as_load(load: TensorLoad) -> Load:
    return _as_indices(load.indices, load.source)


def _contiguous(load: TensorLoad, var: tirx.Var) -> bool:
    return contiguous_in(_as_load(load), var)
