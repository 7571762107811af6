"""GPU kernels of :mod:`convoy.tir.channel_gate`.

A thread loads what it needs of the matrix and then its elements of the image, so that all of it is
under way together. Threads that share a row of the matrix add their parts by shuffles; the gates of
the block's channels meet in shared memory, behind the kernel's one barrier.
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
from tvm.sym import Analyzer
from tvm.tirx import Expr
from tvm.tirx.script import builder as T

from .builder import split_index, when, with_body_of
from .channel_gate_parts import Gated
from .loads import alignment, contiguous_in, depends_on, vector_width
from .row_norms import of_lane, registers
from .row_stages import Unfit, loads_in
from .row_stages_kernel import vector_of
from .row_stages_plan import as_load_of, guarded_loads, same_load

#: Loads with the registers that hold what they load.
Loaded = Sequence[tuple[TensorLoad, Expr]]


def kernel(func: tirx.PrimFunc, gated: Gated) -> tirx.PrimFunc:
    """Return the function as a GPU kernel.

    Raises:
        Unfit: What is computed of the gates reads tensors out of order.
    """
    return with_body_of(func, _Kernel(gated).emit)


@dataclass
class _Operand:
    """A tensor that the result is computed of.

    Attributes:
        of_pixel: Whether each pixel reads another element.
        size: Elements of a thread at a pixel.
        vector: How many of them are loaded at once.
    """

    load: TensorLoad
    of_pixel: bool
    size: int
    vector: int


class _Kernel:
    """A kernel under construction."""

    def __init__(self, gated: Gated) -> None:
        self.gated, self.layout, self.shape = gated, gated.layout, gated.layout.shape
        self.index = str(gated.channel.var.ty.dtype)
        axes = [*gated.images, *gated.pixels, gated.channel, gated.summed]
        if any(str(axis.var.ty.dtype) != self.index for axis in axes):
            raise Unfit("indices of several types")
        self.operands = [self._operand(load) for load in _distinct(gated.value)]
        self.of_gate = _distinct(gated.gate)

    def _operand(self, load: TensorLoad) -> _Operand:
        channel, width = self.gated.channel.var, self.shape.width
        of_pixel = any(depends_on(i, a.var) for i in load.indices for a in self.gated.pixels)
        if not any(depends_on(index, channel) for index in load.indices):
            return _Operand(load, of_pixel, 1, 1)
        read = as_load_of(load.indices, load.source)
        if not contiguous_in(read, channel):
            raise Unfit("channels that do not lie next to each other")
        vector = math.gcd(vector_width(width, load.source.dtype), alignment(read, channel))
        return _Operand(load, of_pixel, width, vector)

    def emit(self) -> None:
        layout, self.analyzer = self.layout, Analyzer()
        self._allocate()
        with (
            T.thread_binding(0, self._int(layout.blocks), thread="blockIdx.x") as block,
            T.thread_binding(0, self._int(layout.threads), thread="threadIdx.x") as thread,
        ):
            for var, extent in ((block, layout.blocks), (thread, layout.threads)):
                self._bind(var, extent)
            chunk, block = block % layout.chunks, block // layout.chunks
            part, image = block % layout.parts, self._simple(block // layout.parts)
            self.first, self.thread = self._simple(chunk * layout.gates), thread
            self.lane, self.row = thread % layout.lanes, thread // layout.lanes
            vector = tirx.min(chunk * layout.lanes + self.lane, self._int(layout.vectors - 1))
            self.is_own = chunk * layout.lanes + self.lane < layout.vectors
            self.channel = vector * self.shape.width
            self.pixel = part * layout.pixels + self.row
            self.of_image = split_index(image, self.gated.images, self.analyzer)
            self._load_weights()
            self._load_image()
            self._gates()
            T.evaluate(T.tvm_storage_sync("shared"))
            self._results()

    def _allocate(self) -> None:
        layout, gated, width = self.layout, self.gated, self.shape.width
        of_row = self.shape.of_row
        self.passes = -(-layout.gates * layout.sharing // layout.threads)
        self.steps = -(-layout.row_vectors // layout.sharing)
        matrix, vector = (str(load.source.dtype) for load in (gated.matrix, gated.vector))
        self.matrix = registers((self.passes * self.steps, of_row), matrix)
        self.vector = registers((self.steps, of_row), vector)
        self.sums = registers((self.passes,), str(gated.total.ty.dtype))
        self.added = [registers((self.passes,), str(load.source.dtype)) for load in self.of_gate]
        self.loaded = [
            registers((layout.steps if o.of_pixel else 1, o.size), str(o.load.source.dtype))
            for o in self.operands
        ]
        gate = str(gated.scale.ty.dtype)
        self.shared = T.sblock_alloc_buffer((layout.gates,), gate, scope="shared")
        self.scales = registers((width,), gate)
        self.written = registers((width,), str(gated.result.dtype))

    def _dots(self) -> Iterator[tuple[int, Expr, dict[tirx.Var, Expr], bool]]:
        """The gates of a thread: number, number in the block, axes, and whether it may be none."""
        layout = self.layout
        together = layout.threads // layout.sharing
        for number in range(self.passes):
            gate = self._simple(number * together + self.thread // layout.sharing)
            channel = tirx.min(self.first + gate, self._int(self.shape.channels - 1))
            at = {**self.of_image, self.gated.channel.var: channel}
            yield number, gate, at, (number + 1) * together > layout.gates

    def _row_vectors(self) -> Iterator[tuple[int, Expr, bool]]:
        """The vectors of a thread in a row of the matrix, and whether each may be missing."""
        layout = self.layout
        for step in range(self.steps):
            vector = step * layout.sharing + self.thread % layout.sharing
            yield step, self._simple(vector), (step + 1) * layout.sharing > layout.row_vectors

    def _load_weights(self) -> None:
        width, summed = self.shape.of_row, self.gated.summed.var
        for number, gate, at, few in self._dots():
            with when(gate < self.layout.gates, few):
                for step, vector, short in self._row_vectors():
                    with when(vector < self.layout.row_vectors, short):
                        to = (self.matrix, number * self.steps + step)
                        self._vectors(*to, self.gated.matrix, at, summed, vector * width, width)
                for buffer, load in zip(self.added, self.of_gate, strict=True):
                    T.buffer_store(buffer, self._value(load, at), [number])
        for step, vector, short in self._row_vectors():
            with when(vector < self.layout.row_vectors, short):
                to = (self.vector, step)
                self._vectors(*to, self.gated.vector, self.of_image, summed, vector * width, width)

    def _gates(self) -> None:
        """Add products, and write the gates to shared memory."""
        layout, gated = self.layout, self.gated
        for number, gate, at, few in self._dots():
            zero = tirx.const(0, str(gated.total.ty.dtype))
            T.buffer_store(self.sums, zero, [number])
            with when(gate < layout.gates, few):
                for step, vector, short in self._row_vectors():
                    with when(vector < layout.row_vectors, short):
                        for e in range(self.shape.of_row):
                            loads = (
                                (gated.matrix, self.matrix[number * self.steps + step, e]),
                                (gated.vector, self.vector[step, e]),
                            )
                            self._add(number, self._value(gated.term, at, loads))
            bit = layout.sharing // 2
            while bit:
                self._add(number, of_lane(bit, self.sums[number]))
                bit //= 2
            own = [(o, buffer[number]) for o, buffer in zip(self.of_gate, self.added, strict=True)]
            at = {**at, gated.total: self.sums[number]}
            first = self.thread % layout.sharing == 0
            with when(gate < layout.gates, few), when(first, layout.sharing > 1):
                T.buffer_store(self.shared, self._value(gated.gate, at, own), [gate])

    def _add(self, number: int, value: Expr) -> None:
        T.buffer_store(self.sums, self.sums[number] + value, [number])

    def _load_image(self) -> None:
        for operand, buffer in zip(self.operands, self.loaded, strict=True):
            if not operand.of_pixel:
                self._elements(operand, buffer, 0, self._int(0))
        for step in range(self.layout.steps):
            with self._own_pixel(step) as pixel:
                for operand, buffer in zip(self.operands, self.loaded, strict=True):
                    if operand.of_pixel:
                        self._elements(operand, buffer, step, pixel)

    def _results(self) -> None:
        gated, width = self.gated, self.shape.width
        at = {**self.of_image, gated.channel.var: self.channel}
        vector = vector_width(width, self.scales.dtype)
        for first in range(0, width, vector):
            with vector_of(vector, self.index) as i:
                place = self.lane * width + (i + first)
                T.buffer_store(self.scales, self.shared[place], [i + first])
        along = as_load_of(gated.indices, gated.result)
        store = math.gcd(
            vector_width(width, gated.result.dtype), alignment(along, gated.channel.var)
        )
        for step in range(self.layout.steps):
            with self._own_pixel(step) as pixel:
                pixels = split_index(pixel, gated.pixels, self.analyzer)
                for e in range(width):
                    loads = [
                        (o.load, buffer[step if o.of_pixel else 0, e if o.size > 1 else 0])
                        for o, buffer in zip(self.operands, self.loaded, strict=True)
                    ]
                    own = {
                        **at, **pixels,
                        gated.channel.var: self.channel + e, gated.scale: self.scales[e],
                    }  # fmt: skip
                    T.buffer_store(self.written, self._value(gated.value, own, loads), [e])
                for first in range(0, width, store):
                    with vector_of(store, self.index) as i:
                        own = {**at, **pixels, gated.channel.var: self.channel + (i + first)}
                        indices = [self._value(index, own) for index in gated.indices]
                        T.buffer_store(gated.result, self.written[i + first], indices)

    @contextmanager
    def _own_pixel(self, step: int) -> Iterator[Expr]:
        """The pixel of a thread's step, where it has one."""
        layout = self.layout
        pixel = self._simple(self.pixel + step * layout.rows)
        idle = layout.rows * layout.lanes < layout.threads
        with (
            when(self.is_own, layout.vectors % layout.lanes != 0),
            when(self.row < layout.rows, idle),
            when(pixel < self.shape.pixels, self.shape.pixels % layout.pixels != 0),
        ):
            yield pixel

    def _elements(self, operand: _Operand, into: tirx.Buffer, place: int, pixel: Expr) -> None:
        at = {**self.of_image, **split_index(pixel, self.gated.pixels, self.analyzer)}
        channel = self.gated.channel.var
        for first in range(0, operand.size, operand.vector):
            to = (into, place, operand.load, at, channel, self.channel)
            self._vectors(*to, operand.vector, first)

    def _vectors(
        self, into: tirx.Buffer, place: int, load: TensorLoad, at: dict[tirx.Var, Expr],
        along: tirx.Var, start: Expr, width: int, first: int = 0,
    ) -> None:  # fmt: skip
        """Load neighbours along an axis into registers."""
        with vector_of(width, self.index) as i:
            if isinstance(i, tirx.Var):
                self._bind(i, width)
            value = self._value(load, {**at, along: start + (i + first)})
            T.buffer_store(into, value, [place, i + first])

    def _value(self, expr: Expr, at: dict[tirx.Var, Expr], loads: Loaded = ()) -> Expr:
        """An expression at an element, with registers in place of loads."""

        def placed(load: TensorLoad) -> Expr:
            for own, register in loads:
                if same_load(own, load):
                    return register
            indices = [self._simple(self._value(index, at)) for index in load.indices]
            return load.source[tuple(indices)]

        def named(var: tirx.Var) -> Expr:
            return at.get(var, var)

        return tvm_ffi.structural_map(expr, [(TensorLoad, placed), (tirx.Var, named)], order="pre")

    def _bind(self, var: tirx.Var, extent: int) -> None:
        self.analyzer.bind(var, tvm.ir.Range(self._int(0), self._int(extent)))

    def _int(self, value: int) -> Expr:
        return tirx.const(value, self.index)

    def _simple(self, expr: Expr) -> Expr:
        return self.analyzer.simplify(expr)


def _distinct(expr: Expr) -> list[TensorLoad]:
    """The loads in an expression, each once."""
    found: list[TensorLoad] = []
    if guarded_loads(expr):
        raise Unfit("elements that are read under a condition")
    for load in loads_in(expr):
        if any(map(loads_in, load.indices)):
            raise Unfit("elements whose place is computed")
        if not any(same_load(load, other) for other in found):
            found.append(load)
    return found
