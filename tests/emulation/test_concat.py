"""Concatenations of a computed tensor with itself, as scheduled for an H200, against NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from convoy.ir.device import Device
from convoy.pipeline import place

from ..helpers.evaluate import evaluate
from .network import Emulation

SHAPE = (2, 5, 6, 24)
#: What stands side by side: a computed tensor, several times, or with what is computed of it.
PARTS: dict[str, Callable] = {
    "twice": lambda emit, x, y: [y, y],
    "thrice": lambda emit, x, y: [y, y, y],
    "behind another": lambda emit, x, y: [x, y, y],
    "beside what follows": lambda emit, x, y: [y, emit(op.tanh(y))],
}


@pytest.mark.parametrize("pad", [False, True], ids=["computed", "padded"])
@pytest.mark.parametrize("parts", PARTS)
def test_a_tensor_beside_itself(parts: str, pad: bool) -> None:
    x, bias = (
        relax.Var(n, relax.TensorType(s, "float16")) for n, s in (("x", SHAPE), ("b", (24,)))
    )
    builder = relax.BlockBuilder()
    with builder.function("main", [x, bias]):
        with builder.dataflow():
            if pad:
                y = builder.emit(op.nn.pad(x, [0, 0, 0, 0, 0, 0, 8, 16]))
            else:
                y = builder.emit(op.nn.leakyrelu(builder.emit(op.add(x, bias))))
            wide = builder.emit(op.concat(PARTS[parts](builder.emit, x, y), axis=3))
            output = builder.emit_output(wide)
        builder.emit_func_output(output)
    mod, rng = builder.get(), np.random.default_rng(0)
    given = [rng.uniform(-1, 1, shape).astype("float16") for shape in (SHAPE, (24,))]
    emulation = Emulation(place(mod, precision="float16", device=Device(), measure=False), 1)
    (got,), (want,) = emulation(*given), evaluate(mod, given)
    np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-3)
