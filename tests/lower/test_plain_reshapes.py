"""Scans on a GPU are scheduled like other kernels."""

from __future__ import annotations

import pytest
from tvm import relax
from tvm.relax import op

from convoy.ir.device import Device
from convoy.lower.executable import lower_calls
from convoy.lower.target import cuda_target
from convoy.streams.program import read


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_scan_between_kernels_is_scheduled(axis: int) -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3, 40, 200), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(op.cumsum(builder.emit(op.exp(x)), axis))
            out = builder.emit_output(op.tanh(y))
        builder.emit_func_output(out)
    lowered = lower_calls(builder.get(), cuda_target(Device()))
    ops = read(lowered, Device()).ops
    assert "vm.builtin.reshape" not in str(lowered["main"])
    assert len(ops) >= 2 and all(o.depends for o in ops[1:])
