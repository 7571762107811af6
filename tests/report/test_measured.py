"""The observer of a measured timeline on the real virtual machine, with a scheduled network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.runtime.vm import VirtualMachine

from convoy.errors import InvalidOption
from convoy.ir.artifact import Meta
from convoy.ir.device import Device
from convoy.lower.lowered import Lowered
from convoy.report.measured import Calls, measure
from convoy.runtime import load_runtime
from convoy.runtime.compiled import CompiledModule
from convoy.streams.link import Part, link
from convoy.streams.planner import multi_stream
from convoy.streams.program import read


def branches() -> tvm.IRModule:
    """Three chains of matrix products from one input, added up."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((16, 16), "float32"))
    rng = np.random.default_rng(0)
    with builder.function("main", [x]):
        with builder.dataflow():
            ends = []
            for length in (1, 2, 3):
                y: Any = x
                for _ in range(length):
                    w = relax.const(rng.normal(0, 0.25, (16, 16)).astype("float32"))
                    y = builder.emit(relax.op.matmul(y, w))
                ends.append(y)
            total = builder.emit(relax.op.add(relax.op.add(ends[0], ends[1]), ends[2]))
            result = builder.emit_output(total)
        builder.emit_func_output(result)
    return builder.get()


def test_observer_sees_every_op_of_a_schedule_in_its_order() -> None:
    load_runtime()
    lowered = Lowered.of(branches(), "llvm")
    program = read(lowered.calls, Device())
    schedule = multi_stream(program.ops, program.buffers, 3)
    assert schedule.streams > 1
    vm = VirtualMachine(link([Part(lowered, program, schedule)]), tvm.cpu())
    seen: list[str] = []
    calls = Calls(schedule, lambda op: seen.append(schedule.ops[op].name))
    vm.set_instrument(tvm_ffi.convert(calls.watch))
    x = tvm.runtime.tensor(np.ones((16, 16), "float32"))
    for _ in range(2):
        calls.start()
        vm["main"](x)
    assert seen == 2 * [op.name for op in schedule.ops]


def test_module_without_a_schedule_is_refused() -> None:
    compiled = CompiledModule(None, Meta((), (), "llvm", "float32"))
    with pytest.raises(InvalidOption, match="schedule"):
        measure(compiled)
