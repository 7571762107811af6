"""The evolutionary search and the example backend on a GPU."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

import convoy
from convoy.cost.model import CostModel
from convoy.ir.epilogue import Epilogue
from convoy.ir.measurement import Measurement
from convoy.ir.workload import Workload
from convoy.measure import protocol
from convoy.measure.problem import tolerance
from convoy.relay import testing
from convoy.relay.convert import to_relax
from convoy.runtime import current_device

from ..helpers.errors import l2_error

pytestmark = pytest.mark.gpu

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "example_backend"


@pytest.mark.parametrize("objective", ["graph", "stream", "sync"])
def test_the_search_never_takes_what_measured_worse_than_a_seed(
    tmp_path: Path, objective: str
) -> None:
    module = to_relax(*testing.squeezenet.get_workload(1))
    options = {"backends": ("cudnn", "tvm"), "most_measured": 2, "records": tmp_path / "r.jsonl"}
    placed = convoy.place(module, objective=objective, search="evolve", seconds=15, **options)
    assert placed.refined is not None
    seeds = [c for c in placed.refined.finalists if not c.evolved]
    assert all(c.measured_us for c in seeds), [c.failure for c in seeds]
    assert placed.refined.chosen.measured_us <= min(c.measured_us for c in seeds)
    built = convoy.build(module, "cuda", plan=placed.plan, cuda_graph=objective == "graph")
    session = built.session()
    _, shape, dtype = session.input_info[0]
    x = np.random.default_rng(0).uniform(-1, 1, shape).astype(dtype)
    (y,) = session(x)
    assert np.isfinite(y).all() and y.sum() == pytest.approx(1.0, abs=0.02)


class DearLaunches(CostModel):
    """Whatever saves a launch is chosen."""

    def measurements(self, workload, candidates):  # type: ignore[no-untyped-def]
        return [Measurement(50.0, 0.0, None, 2.0, 0.0, 60.0, 0.0, 1) for _ in candidates]


def branches() -> tvm.IRModule:
    """Three branches of 1x1 convolutions, two of them with another one behind, put together."""
    rng = np.random.default_rng(0)
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 32, 14, 14), "float32"))

    def conv(data: relax.Expr, k: int, r: int) -> relax.Expr:
        c = int(data.ty.shape.values[1])
        w = relax.const(rng.normal(0, (c * r * r) ** -0.5, (k, c, r, r)).astype("float32"))
        y = builder.emit(relax.op.nn.conv2d(data, w, padding=r // 2))
        return builder.emit(relax.op.nn.relu(y))

    with builder.function("main", [x]):
        with builder.dataflow():
            first, second, third = (conv(x, k, 1) for k in (64, 96, 16))
            parts = [first, conv(second, 128, 3), conv(third, 32, 5)]
            out = builder.emit_output(relax.op.concat(parts, axis=1))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize("streams", [1, 3])
def test_parallel_branches_as_one_convolution(streams: int) -> None:
    module = branches()
    options = {"backends": ("cudnn", "tvm"), "search": "exact", "costs": DearLaunches()}
    placed = convoy.place(module, **options)
    assert [s.split for s in placed.subgraphs if s.split] == [(64, 96, 16)]
    session = convoy.build(module, "cuda", plan=placed.plan, streams=streams).session()
    x = np.random.default_rng(1).uniform(-1, 1, (2, 32, 14, 14)).astype("float32")
    (expected,) = convoy.build(module, "llvm").session()(x)
    for _ in range(3):  # as it is, captured, replayed
        (y,) = session(x)
        assert l2_error(y, expected) < 5e-3


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(
    "epilogue",
    [
        Epilogue(),
        Epilogue(residual=True, bias=True),
        Epilogue(bias=True, activation="clip", clip_max=6.0),
    ],
    ids=lambda e: e.name or "plain",
)
def test_example_backend(monkeypatch: pytest.MonkeyPatch, dtype: str, epilogue: Epilogue) -> None:
    monkeypatch.setattr(sys, "path", [str(EXAMPLE), *sys.path])
    backend = importlib.import_module("convoy_direct.backend").DirectBackend()
    device = current_device()
    workload = Workload(
        "fprop", 3, 29, 31, 48, 48, 3, 3, stride=(2, 1), padding=(1, 1, 1, 1), groups=48,
        dtype=dtype, out_dtype=dtype, epilogue=epilogue,
    )  # fmt: skip
    (candidate,) = backend.propose(workload, device)
    binary = backend.build(workload, candidate, device)
    measured = protocol.measure(workload, candidate, binary, device)
    assert measured.ok, measured.failure
    assert measured.error <= tolerance(workload)
