"""One network at several batch sizes in one module, where the scheduler declines it."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

import convoy
from convoy.ir.device import Device
from convoy.pipeline.executable import compile_placements
from convoy.placement.placement import Placement
from convoy.runtime.compiled import CompiledModule

SIZES = (1, 2, 5)
RNG = np.random.default_rng(3)
WEIGHT, SQUARE = (RNG.uniform(-1, 1, shape).astype("float32") for shape in ((8, 12), (12, 12)))


def unschedulable(rows: int) -> tvm.IRModule:
    """Products around a builtin of the virtual machine, whose effects are unknown."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((rows, 8), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(op.nn.relu(op.matmul(x, relax.const(WEIGHT))))
            y = builder.emit(relax.call_pure_packed("vm.builtin.copy", y, ty_args=y.ty))
            for _ in range(3):
                y = builder.emit(op.matmul(y, relax.const(SQUARE)))
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    return builder.get()


@pytest.fixture(scope="module")
def placements() -> list[Placement]:
    return [
        convoy.place(
            unschedulable(rows),
            precision="float32",
            backends=("tvm",),
            device=Device(),
            measure=False,
        )
        for rows in SIZES
    ]


def compiled(placements: list[Placement], target: str) -> CompiledModule:
    with pytest.warns(UserWarning, match="compiled for one stream: .*vm.builtin.copy") as seen:
        module = compile_placements(placements, target, "float32", backends=("tvm",))
    assert len(seen) == 1
    return module


def test_each_size_runs(placements: list[Placement]) -> None:
    for rows, session in zip(SIZES, compiled(placements, "llvm").sessions(), strict=True):
        x = RNG.uniform(-1, 1, (rows, 8)).astype("float32")
        want = np.maximum(x @ WEIGHT, 0) @ SQUARE @ SQUARE @ SQUARE
        np.testing.assert_allclose(session(x)[0], want, rtol=1e-4, atol=1e-4)


def test_each_size_has_a_captured_graph_of_its_own(placements: list[Placement]) -> None:
    """The virtual machine finds a captured graph by its number."""
    module = compiled(placements, "cuda")
    text = module.module.as_text()
    numbers = re.findall(r"run_or_capture in: .*?f\[(\w+)_cuda_graph_capture\].*, i(\d+) dst", text)
    assert [function for function, _ in numbers] == [f"main{end}" for end in ("", "_1", "_2")]
    assert len({number for _, number in numbers}) == len(SIZES)
