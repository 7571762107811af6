"""Networks whose concatenations and slices are no kernels, with the kernels that ship."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import convoy
from convoy.ir.device import Device
from convoy.pipeline import place, predict_schedule


def cross_stage(channels: int = 128, shows: int | None = None) -> tvm.IRModule:
    """A block of YOLO: halves of a convolution's result, and convolutions one behind the other of
    the last half, all side by side; and the part of number ``shows`` as a second result."""
    x = relax.Var("x", relax.TensorType((8, channels, 40, 40), "float16"))
    builder, rng = relax.BlockBuilder(), np.random.default_rng(0)

    def conv(value: relax.Expr, made: int, width: int) -> relax.Var:
        shape = (made, int(value.ty.shape[1]), width, width)
        weight = relax.const(rng.uniform(-0.1, 0.1, shape).astype("float16"))
        result = builder.emit(op.nn.conv2d(value, weight, padding=width // 2))
        return builder.emit(op.nn.relu(result))

    with builder.function("main", [x]):
        with builder.dataflow():
            both = builder.emit(op.split(conv(x, channels, 1), 2, axis=1))
            parts = [builder.emit(relax.TupleGetItem(both, i)) for i in range(2)]
            for _ in range(2):
                parts.append(conv(parts[-1], channels // 2, 3))
            wide = builder.emit(op.concat(parts, axis=1))
            results = [conv(wide, channels, 1), *([] if shows is None else [parts[shows]])]
            output = builder.emit_output(relax.Tuple(results) if results[1:] else results[0])
        builder.emit_func_output(output)
    return builder.get()


def test_a_block_of_convolutions_has_no_kernels_but_theirs() -> None:
    placement = place(cross_stage(), precision="float16", device=Device(), measure=False)
    schedule = predict_schedule(placement)
    kinds = [operation.kind for operation in schedule.ops]
    assert kinds == ["native", *["offloaded"] * 4, "native"], "between two changes of the layout"
    (wide,) = (b for b in schedule.memory.buffers if len(b.writers) == 3)
    assert wide.size == 2 * 8 * 40 * 40 * 256, "halves of one, and both of the others"


def test_copied_where_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVOY_IN_PLACE", "0")
    placement = place(cross_stage(), precision="float16", device=Device(), measure=False)
    assert any("concat" in operation.symbol for operation in predict_schedule(placement).ops)


def test_a_part_that_is_a_result_is_copied() -> None:
    built = convoy.build(cross_stage(shows=2), "cuda", measure=False, cache=False)
    assert built.schedule is not None
    assert not any("concat" in operation.symbol for operation in built.schedule.ops)
    assert any("copy" in operation.symbol for operation in built.schedule.ops)
