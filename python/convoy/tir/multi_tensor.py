"""Multi-tensor apply: one elementwise step for many tensors in one kernel.

A residual network has more than a hundred parameters, most of them vectors: with a kernel for
each, launch overhead would dominate. A block works on a run of one tensor, which it finds from its
index by a tree of comparisons. Tensors of equal dtypes share the code behind that: with a copy for
each, compiling the kernel took longer than all others of a training step together.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tvm
from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx import Expr
from tvm.tirx.script import builder as T

from .builder import IN_PLACE_KERNEL, when
from .loads import vector_width

THREADS = 256

#: Pointers that a launch may carry: 4 KB of them, less the scalar and some room.
POINTERS = 480


@dataclass(frozen=True)
class Item:
    """The shape of some tensors, and the dtypes of those read and of those written.

    Items of one ``kind`` and equal dtypes are computed by the same step.
    """

    shape: tuple[int, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    kind: str = ""

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def width(self) -> int:
        """Elements of a thread."""
        return vector_width(self.elements, "float32")

    @property
    def blocks(self) -> int:
        return -(-self.elements // (THREADS * self.width))

    @property
    def pointers(self) -> int:
        return len(self.inputs) + len(self.outputs)


#: (number of an item of the kind, the inputs of one element in float32, scalars) to its outputs.
Step = Callable[[int, Sequence[Expr], Sequence[Expr]], Sequence[Expr]]


def groups(items: Sequence[Item]) -> list[range]:
    """Split items into runs that fit the parameters of one launch."""
    found, start, pointers = [], 0, 0
    for i, item in enumerate(items):
        if pointers + item.pointers > POINTERS:
            found.append(range(start, i))
            start, pointers = i, 0
        pointers += item.pointers
    return [*found, range(start, len(items))]


def kernel(name: str, items: Sequence[Item], step: Step, scalars: int = 0) -> tirx.PrimFunc:
    """Return a kernel of (first inputs..., second inputs..., ..., [scalars], first outputs...,
    ...).

    Items have any number of inputs and outputs; ``scalars`` is the length of a vector of float32
    that all of them read. Outputs may be in the memory of inputs.
    """
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name(name)
            T.func_attr(IN_PLACE_KERNEL)

            read = arguments("x", items, [item.inputs for item in items])
            shared = [T.arg("scalars", T.buffer((scalars,), "float32"))] if scalars else []
            written = arguments("y", items, [item.outputs for item in items])
            emit = _Run(step, [vector[k] for vector in shared for k in range(scalars)])
            tensors = [[*x, *y] for x, y in zip(read, written, strict=True)]
            runs = Runs(items, tensors, [item.blocks for item in items])
            with (
                T.thread_binding(0, runs.blocks, thread="blockIdx.x") as block,
                T.thread_binding(0, THREADS, thread="threadIdx.x") as thread,
            ):

                def work(i: int, found: Found) -> None:
                    at = (found.run * THREADS + thread) * items[i].width
                    with when(at < found.elements):
                        emit(i, items[i], found.tensors, at)

                runs.each(block, work)
        return builder.get()


@dataclass(frozen=True)
class Found:
    """What a block works on: tensors as vectors, their length, and which run of theirs it has."""

    tensors: Sequence[tirx.Buffer]
    elements: Expr
    run: Expr


class Runs:
    """The runs of all items, of a block each.

    Args:
        tensors: Of each item, those read and those written.
        blocks: Of each item.
    """

    def __init__(
        self,
        items: Sequence[Item],
        tensors: Sequence[Sequence[tirx.Buffer]],
        blocks: Sequence[int],
    ) -> None:
        self._items, self._tensors = items, tensors
        alike: dict[tuple[object, ...], list[int]] = {}
        for i, item in enumerate(items):
            alike.setdefault((item.inputs, item.outputs, item.width, item.kind), []).append(i)
        self._alike = [*alike.values()]
        order = [i for members in self._alike for i in members]
        self._starts = [*itertools.accumulate((blocks[i] for i in order), initial=0)]
        self._pointers = local(max(map(len, tensors)), "uint64")
        self._sizes = local(2, "int32")

    @property
    def blocks(self) -> int:
        return self._starts[-1]

    def each(self, block: Expr, work: Callable[[int, Found], None]) -> None:
        """Emit ``work`` for the first item of each kind, with what ``block`` finds."""
        firsts = [0, *itertools.accumulate(map(len, self._alike))]

        def one_kind(kind: int) -> None:
            members, first = self._alike[kind], firsts[kind]
            starts = self._starts[first : firsts[kind + 1] + 1]
            _choose(block, starts, lambda k: self._select(members[k], starts[k]))
            found = Found(self._flat(members), self._sizes[0], block - self._sizes[1])
            work(members[0], found)

        _choose(block, [self._starts[first] for first in firsts], one_kind)

    def _select(self, i: int, start: int) -> None:
        T.buffer_store(self._sizes, tirx.const(self._items[i].elements, "int32"), [0])
        T.buffer_store(self._sizes, tirx.const(start, "int32"), [1])
        for k, tensor in enumerate(self._tensors[i]):
            T.buffer_store(self._pointers, tirx.op.reinterpret("uint64", tensor.data), [k])

    def _flat(self, members: Sequence[int]) -> list[tirx.Buffer]:
        """The tensors that the pointers select, as vectors as long as the longest of them."""
        elements = max(self._items[i].elements for i in members)
        item, found = self._items[members[0]], []
        for k, dtype in enumerate([*item.inputs, *item.outputs]):
            pointer = tvm.ir.PointerType(tvm.ir.PrimType(dtype), "global")
            data = T.Bind(
                tirx.op.reinterpret(pointer, self._pointers[k]), var=tirx.Var(f"tensor{k}", pointer)
            )
            found.append(T.decl_buffer((elements,), dtype, data=data))
        return found


def _choose(block: Expr, starts: Sequence[int], leaf: Callable[[int], None]) -> None:
    """Emit ``leaf(i)`` for the i with starts[i] <= block < starts[i + 1]."""

    def between(low: int, high: int) -> None:
        if high - low == 1:
            leaf(low)
            return
        middle = (low + high) // 2
        with T.If(block < starts[middle]):
            with T.Then():
                between(low, middle)
            with T.Else():
                between(middle, high)

    between(0, len(starts) - 1)


def arguments(
    prefix: str, items: Sequence[Item], dtypes: Sequence[tuple[str, ...]]
) -> list[list[tirx.Buffer]]:
    """Arguments by item, declared column by column."""
    found: list[list[tirx.Buffer]] = [[] for _ in items]
    for column in range(max(map(len, dtypes))):
        for i, item in enumerate(items):
            if column < len(dtypes[i]):
                buffer = T.buffer(item.shape, dtypes[i][column])
                found[i].append(T.arg(f"{prefix}{column}_{i}", buffer))
    return found


def local(size: int, dtype: str) -> tirx.Buffer:
    """Declare registers of a thread."""
    return T.sblock_alloc_buffer((size,), dtype, scope="local")


class _Run:
    """The elements of one thread: all loads, arithmetic, all stores."""

    def __init__(self, step: Step, scalars: Sequence[Expr]) -> None:
        self._step, self._scalars = step, scalars
        self._held: dict[tuple[str, int, str], tirx.Buffer] = {}

    def _registers(self, what: str, dtypes: Sequence[str]) -> list[tirx.Buffer]:
        """Local buffers, shared by all tensors."""
        found = []
        for i, dtype in enumerate(dtypes):
            key = (what, i, dtype)
            if key not in self._held:
                self._held[key] = local(4, dtype)
            found.append(self._held[key])
        return found

    def __call__(
        self,
        number: int,
        item: Item,
        tensors: Sequence[tirx.Buffer],
        at: Expr,
    ) -> None:
        inputs, outputs = tensors[: len(item.inputs)], tensors[len(item.inputs) :]
        old, new = self._registers("old", item.inputs), self._registers("new", item.outputs)
        own, there = _vector(0, item.width), _vector(at, item.width)
        for buffer, source in zip(old, inputs, strict=True):
            T.buffer_store(buffer, source[there], [own])
        for k in range(item.width):
            values = [buffer[k].astype("float32") for buffer in old]
            results = self._step(number, values, self._scalars)
            for buffer, dtype, result in zip(new, item.outputs, results, strict=True):
                T.buffer_store(buffer, result.astype(dtype), [k])
        for buffer, out in zip(new, outputs, strict=True):
            T.buffer_store(out, buffer[own], [there])


def _vector(start: Expr | int, width: int) -> Expr | int:
    """Indices of successive elements."""
    return tirx.Ramp(start, 1, width) if width > 1 else start
