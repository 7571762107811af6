"""What is read from scheduled TIR: launches, bytes, what is written and what waits for it."""

from __future__ import annotations

import pytest
import tvm
from tvm.script import tirx as T

from convoy.cost.native import ELEMENTWISE_EFFICIENCY, SMALLEST_KERNEL_US
from convoy.ir.device import Device
from convoy.lower.executable import lower_calls
from convoy.normalize.normal_form import normalize
from convoy.partition.rewrite import rewrite
from convoy.partition.subgraphs import find_subgraphs
from convoy.streams.dependence import Dependences
from convoy.streams.kernels import inspect
from convoy.streams.program import read
from convoy.training import Sgd, small_resnet

from ..helpers.longest import longest

TARGET = tvm.target.Target("nvidia/nvidia-h100", host="llvm")


@T.prim_func(s_tir=True)
def update(x: T.Buffer((4, 8), "float32"), g: T.Buffer((32,), "float16")):
    """x -= g, without blocks and through views."""
    T.func_attr({"tirx.is_scheduled": True})
    for block in T.thread_binding(2, thread="blockIdx.x"):
        for thread in T.thread_binding(16, thread="threadIdx.x"):
            flat = x.view(32)
            again = flat.view(2, 16)
            again[block, thread] = flat[block * 16 + thread] - T.Cast(
                "float32", g[block * 16 + thread]
            )


@T.prim_func(s_tir=True)
def two_sums(x: T.Buffer((16, 8), "float32"), y: T.Buffer((16,), "float32")):
    """Row sums into memory of the function's own, then their squares: two launches."""
    T.func_attr({"tirx.is_scheduled": True})
    middle = T.sblock_alloc_buffer((16,))
    for row in T.thread_binding(16, thread="blockIdx.x"):
        for k in range(8):
            with T.sblock("sum"):
                i, j = T.axis.remap("SR", [row, k])
                T.reads(x[i, j])
                T.writes(middle[i])
                with T.init():
                    middle[i] = T.float32(0)
                middle[i] = middle[i] + x[i, j]
    for row in T.thread_binding(16, thread="blockIdx.x"):
        with T.sblock("square"):
            i = T.axis.spatial(16, row)
            T.reads(middle[i])
            T.writes(y[i])
            y[i] = middle[i] * middle[i]


def test_views_are_seen_through() -> None:
    found = inspect(update, Device())
    assert found.written == {0} and found.launches == 1
    assert found.occupancy.blocks == 2 and found.occupancy.threads == 16
    assert found.moved == 2 * 4 * 32 + 2 * 32, "x is read and written, g is read"


def test_each_launch_moves_its_own_tensors() -> None:
    found = inspect(two_sums, Device())
    assert found.written == {1} and found.launches == 2 and found.host_workspace
    first, second = 4 * 16 * 8 + 4 * 16, 4 * 16 + 4 * 16
    assert found.moved == first + second, "a sum that is built up is not read"
    slow = inspect(two_sums, Device(memory_bandwidth=1e6))  # a byte a microsecond
    moving = (first + second) / ELEMENTWISE_EFFICIENCY
    assert slow.duration_us == pytest.approx(2 * SMALLEST_KERNEL_US + moving)


@T.prim_func(s_tir=True)
def alone(x: T.Buffer((1 << 16,), "float32"), y: T.Buffer((1,), "float32")):
    """A sum by one thread."""
    T.func_attr({"tirx.is_scheduled": True})
    for row in T.thread_binding(1, thread="blockIdx.x"):
        for k in range(1 << 16):
            with T.sblock("sum"):
                i, j = T.axis.remap("SR", [row, k])
                T.reads(x[j])
                T.writes(y[i])
                with T.init():
                    y[i] = T.float32(0)
                y[i] = y[i] + x[j]


def test_serial_work_takes_time_whatever_the_bytes() -> None:
    found = inspect(alone, Device())
    assert found.duration_us > 100.0
    faster = Device(memory_bandwidth=1e15)
    assert inspect(alone, faster).duration_us == found.duration_us


@T.prim_func(s_tir=True)
def rows_by_blocks(x: T.Buffer((32768, 64), "float32"), y: T.Buffer((32768,), "float32")):
    """A sum of each row by a block of 256 threads, in memory that is declared for all blocks."""
    T.func_attr({"tirx.is_scheduled": True})
    total = T.sblock_alloc_buffer((32768,), scope="shared")
    for row in T.thread_binding(32768, thread="blockIdx.x"):
        for k in T.thread_binding(256, thread="threadIdx.x"):
            with T.sblock("sum"):
                T.where(k < 64)
                i, j = T.axis.remap("SR", [row, k])
                T.reads(x[i, j])
                T.writes(total[i])
                with T.init():
                    total[i] = T.float32(0)
                total[i] = total[i] + x[i, j]
        for k in T.thread_binding(256, thread="threadIdx.x"):
            with T.sblock("store"):
                T.where(k < 1)
                i = T.axis.spatial(32768, row + k)
                T.reads(total[i])
                T.writes(y[i])
                y[i] = total[i]


def test_blocks_that_wait_take_turns() -> None:
    found = inspect(rows_by_blocks, Device())
    assert found.occupancy.shared_bytes == 4 and found.occupancy.waves > 30
    assert found.duration_us > 20.0, "8 MB move in 4 us"


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_state_is_updated_behind_all_that_reads_it(dtype: str) -> None:
    step = small_resnet(4, image=6, channels=3, widths=(8, 12)).step(Sgd(0.9, 1e-3))
    normal = normalize(step.module, dtype=dtype)
    chosen = longest(find_subgraphs(normal), lambda w: w.op != "matmul")
    mod = lower_calls(rewrite(normal, {r.id: r.id for r in chosen}), TARGET)
    program = read(mod, Device())
    ancestors = Dependences([op.depends for op in program.ops]).ancestors
    updates = [i for i, op in enumerate(program.ops) if op.name.startswith("optimizer_update")]
    assert updates
    carried = set(program.func.params[-len(step.state) :])
    waited = 0
    for update_op in updates:
        state = carried & set(program.calls[update_op].args)
        for earlier in range(update_op):
            if state & set(program.calls[earlier].args):
                assert ancestors[update_op] >> earlier & 1, program.ops[earlier].name
                waited += 1
    assert waited > len(updates), "some kernels read what is updated"
