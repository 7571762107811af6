"""Multi-tensor apply: one elementwise step for many tensors in one kernel.

A residual network has more than a hundred parameters, most of them vectors: with a kernel for
each, launch overhead would dominate. A block works on a run of one tensor, which it finds from its
index by a tree of comparisons.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
    """The shape of some tensors, and the dtypes of those read and of those written."""

    shape: tuple[int, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

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


#: (number of the item, its inputs, scalars) of one element, in float32, to its outputs.
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
            starts = [0]
            for item in items:
                starts.append(starts[-1] + item.blocks)
            with (
                T.thread_binding(0, starts[-1], thread="blockIdx.x") as block,
                T.thread_binding(0, THREADS, thread="threadIdx.x") as thread,
            ):

                def leaf(i: int) -> None:
                    item = items[i]
                    at = ((block - starts[i]) * THREADS + thread) * item.width
                    first = thread * item.width if starts[i + 1] == 1 else at  # of block 0 alone
                    # Declared here: scopes of all tensors nested would be too deep.
                    inputs = flat(item, item.inputs, read[i])
                    outputs = flat(item, item.outputs, written[i])
                    with when(at < item.elements, item.elements % (THREADS * item.width) != 0):
                        emit(i, item, inputs, outputs, first)

                choose(block, starts, leaf)
        return builder.get()


def choose(block: Expr, starts: Sequence[int], leaf: Callable[[int], None]) -> None:
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


def flat(item: Item, dtypes: Sequence[str], tensors: Sequence[tirx.Buffer]) -> list[tirx.Buffer]:
    """Tensors of an item as vectors."""
    pairs = zip(dtypes, tensors, strict=True)
    return [T.decl_buffer((item.elements,), dtype, data=tensor.data) for dtype, tensor in pairs]


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
                self._held[key] = T.sblock_alloc_buffer((4,), dtype, scope="local")
            found.append(self._held[key])
        return found

    def __call__(
        self,
        number: int,
        item: Item,
        inputs: Sequence[tirx.Buffer],
        outputs: Sequence[tirx.Buffer],
        at: Expr,
    ) -> None:
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
    """Indices of successive elements. A loop for each vector, as ``T.vectorized``, would add a
    variable to those that TVM's analyzer compares with one another: with hundreds of tensors most
    of the compile time of a training step."""
    return tirx.Ramp(start, 1, width) if width > 1 else start
