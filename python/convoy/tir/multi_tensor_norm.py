"""The squares of many tensors, summed by the blocks of one kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from .builder import KERNEL, when
from .multi_tensor import THREADS, Found, Item, Runs, arguments, local

#: Vectors of a thread: a block has a run of one tensor.
_STEPS = 8


def blocks(item: Item) -> int:
    return -(-item.elements // (THREADS * item.width * _STEPS))


def kernel(name: str, items: Sequence[Item]) -> tirx.PrimFunc:
    """Return a kernel of (tensors..., partial sums of float32, one of each block)."""
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            T.func_name(name)
            T.func_attr(KERNEL)
            read = arguments("x", items, [item.inputs for item in items])
            runs = Runs(items, read, [*map(blocks, items)])
            partial = T.arg("partial", T.buffer((runs.blocks,), "float32"))
            shared = T.sblock_alloc_buffer((THREADS,), "float32", scope="shared")
            total = local(1, "float32")
            held = {
                dtype: local(4, dtype) for dtype in dict.fromkeys(item.inputs[0] for item in items)
            }
            with T.thread_binding(0, runs.blocks, thread="blockIdx.x") as block:
                with _threads() as thread:

                    def work(i: int, found: Found) -> None:
                        T.buffer_store(total, tirx.const(0.0, "float32"), [0])
                        with T.serial(0, _STEPS) as step:
                            vector = (found.run * _STEPS + step) * THREADS + thread
                            _add_squares(items[i], found, held[items[i].inputs[0]], total, vector)
                        T.buffer_store(shared, total[0], [thread])

                    runs.each(block, work)
                stride = THREADS // 2
                while stride:
                    with _threads() as thread, when(thread < stride):
                        T.buffer_store(shared, shared[thread] + shared[thread + stride], [thread])
                    stride //= 2
                with _threads() as thread, when(thread < 1):
                    T.buffer_store(partial, shared[0], [block])
        return builder.get()


@contextmanager
def _threads() -> Iterator[tirx.Var]:
    """Bind the threads of a block, which see what all threads stored before."""
    with T.thread_binding(0, THREADS, thread="threadIdx.x") as thread:
        yield thread


def _add_squares(
    item: Item, found: Found, values: tirx.Buffer, total: tirx.Buffer, vector: tirx.Expr
) -> None:
    (source,) = found.tensors
    at = vector * item.width
    with when(at < found.elements):
        with T.vectorized(0, item.width) as i:
            T.buffer_store(values, source[at + i], [i])
        for k in range(item.width):
            value = values[k].astype("float32")
            T.buffer_store(total, total[0] + value * value, [0])
