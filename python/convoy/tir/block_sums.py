"""Sums over the threads of a block, in kernels that are written with the IR builder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tvm import tirx
from tvm.tirx import Expr
from tvm.tirx.script import builder as T

from .builder import when


@contextmanager
def threads(count: int) -> Iterator[Expr]:
    """Threads of a block; code after a nest of threads sees all of its stores."""
    with T.thread_binding(0, count, thread="threadIdx.x") as thread:
        yield thread


def turns(thread: Expr, size: int, block: int) -> Iterator[Expr]:
    """Yield the positions below ``size`` that one of the ``block`` threads of a block takes, in a
    guard where one may be missing."""
    for k in range(-(-size // block)):
        at = thread + k * block
        with when(at < size, (k + 1) * block > size):
            yield at


def clear(mine: tirx.Buffer) -> None:
    """Set the sums that a thread keeps, (2, groups), to zero."""
    for which in range(2):
        for group in range(int(mine.shape[1])):
            T.buffer_store(mine, tirx.const(0.0, "float32"), [which, group])


def add(buffer: tirx.Buffer, at: list[int], value: Expr) -> None:
    """Add a value to an element."""
    T.buffer_store(buffer, buffer[tuple(at)] + value, at)


def add_up(shared: tirx.Buffer, count: int, groups: int, block: int) -> None:
    """Add up ``shared`` (2, count, groups) along its middle axis, into place 0, with all ``block``
    threads of a block."""
    while count > 1:
        half = -(-count // 2)
        moved = (count - half) * groups
        with threads(block) as thread:
            for at in turns(thread, 2 * moved, block):
                which, place, group = at // moved, at % moved // groups, at % groups
                value = shared[which, place, group] + shared[which, place + half, group]
                T.buffer_store(shared, value, [which, place, group])
        count = half
