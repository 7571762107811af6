"""The example package of docs/example_backend: installed, found by its entry points, and run."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from convoy.backends.base import Backend
from convoy.cost.model import CostModel
from convoy.ir.candidate import Candidate, Decline
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.measurement import Measurement
from convoy.ir.workload import Workload
from convoy.lower.executable import lower
from convoy.measure import reference
from convoy.normalize.forms import normal_forms
from convoy.partition.patterns import register, unregister
from convoy.partition.rewrite import rewrite
from convoy.partition.subgraphs import find_subgraphs
from convoy.runtime import create_module

from ..helpers.placer import Placer

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "example_backend"
HOST = Device(name="host", arch=0)

INSTALLED = """
import json
from convoy.backends import registry
from convoy.partition import patterns
print(json.dumps([registry.names(), registry.get("direct").name,
                  [pattern.name for pattern in patterns.registered()]]))
"""


@pytest.fixture(scope="module")
def package() -> Iterator[None]:
    sys.path.insert(0, str(EXAMPLE))
    yield
    sys.path.remove(str(EXAMPLE))


@pytest.fixture(scope="module")
def direct(package: None) -> Backend:
    return importlib.import_module("convoy_direct.backend").DirectBackend()


@pytest.fixture
def pool_pattern(package: None) -> Iterator[str]:
    pattern = importlib.import_module("convoy_direct.pattern").AveragePool()
    register(pattern)
    yield pattern.name
    unregister(pattern.name)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVOY_CACHE_DIR", str(tmp_path))


def depthwise(**more: Any) -> Workload:
    sizes = {"n": 2, "h": 9, "w": 7, "c": 6, "k": 6, "r": 3, "s": 3, "groups": 6}
    options = {"padding": (1, 1, 1, 1), "dtype": "float32", "out_dtype": "float32"}
    return Workload("fprop", **{**sizes, **options, **more})


def install(site: Path) -> None:
    """Leaves in a folder what pip leaves of the package, without a build tool from the network."""
    tomllib = pytest.importorskip("tomllib")  # Python 3.11
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    shutil.copytree(EXAMPLE / "convoy_direct", site / "convoy_direct")
    about = site / f"convoy_direct-{project['version']}.dist-info"
    about.mkdir()
    name = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (about / "METADATA").write_text(name)
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")


def test_entry_points_of_the_installed_package(tmp_path: Path) -> None:
    install(tmp_path)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", INSTALLED],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    names, backend, patterns = json.loads(done.stdout)
    assert "direct" in names and backend == "direct"
    assert patterns == [
        *("epilogue", "branches", "attention", "stem", "expand_depthwise", "bottleneck"),
        *("squeeze_excite", "average_pool"),
    ]


@pytest.mark.parametrize(
    "changed",
    [
        {"op": "dgrad"},
        {"groups": 1},
        {"dtype": "bfloat16", "out_dtype": "bfloat16"},
        {"acc_dtype": "float16"},
        {"epilogue": Epilogue(affine_relu=True)},
        {"epilogue": Epilogue(activation="silu")},
    ],
    ids=str,
)
def test_declines_with_the_reason(direct: Backend, changed: dict[str, Any]) -> None:
    assert direct.accepts(depthwise(), HOST) is None
    op = changed.pop("op", "fprop")
    workload = Workload.from_json({**depthwise(**changed).to_json(), "op": op})
    answer = direct.propose(workload, HOST)
    assert isinstance(answer, Decline) and answer.reason and answer.remedy


@settings(max_examples=25)
@given(data=st.data())
def test_computes_what_the_workload_says(direct: Backend, data: st.DataObject) -> None:
    channels, times = data.draw(st.integers(2, 5)), data.draw(st.integers(1, 2))
    r, s = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    activation = data.draw(st.sampled_from(["none", "relu", "clip"]))
    clip = (-0.25, 0.5) if activation == "clip" else (0.0, 0.0)
    epilogue = Epilogue(
        residual=data.draw(st.booleans()),
        bias=data.draw(st.booleans()),
        activation=activation,
        clip_min=clip[0],
        clip_max=clip[1],
    )
    workload = depthwise(
        c=channels,
        k=channels * times,
        groups=channels,
        r=r,
        s=s,
        stride=(data.draw(st.integers(1, 2)), data.draw(st.integers(1, 3))),
        padding=tuple(data.draw(st.integers(0, 2)) for _ in range(4)),
        epilogue=epilogue,
    )
    (candidate,) = direct.propose(workload, HOST)
    binary = direct.build(workload, Candidate.from_json(candidate.to_json()), HOST)
    module = create_module([{**binary.entry, "symbol": "f"}], binary.blobs, arch=0)
    rng = np.random.default_rng(0)
    arrays = {n: rng.uniform(-1, 1, shape).astype(d) for n, shape, d in workload.operand_shapes()}
    arrays["y"].fill(np.nan)
    module["f"](*map(tvm_ffi.from_dlpack, arrays.values()))
    (expected,) = reference.full(workload, arrays)
    np.testing.assert_allclose(arrays["y"], expected, rtol=1e-4, atol=1e-5)


def separable() -> tvm.IRModule:
    """A depthwise convolution with bias and relu, an average pool, and a 1x1 convolution."""
    rng = np.random.default_rng(3)
    x = relax.Var("x", relax.TensorType((1, 16, 14, 14), "float32"))
    builder = relax.BlockBuilder()

    def weights(*shape: int) -> relax.Expr:
        return relax.const(rng.uniform(-1, 1, shape).astype("float32"))

    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.nn.conv2d(x, weights(16, 1, 3, 3), padding=1, groups=16))
            y = builder.emit(relax.op.nn.relu(relax.op.add(y, weights(1, 16, 1, 1))))
            y = builder.emit(relax.op.nn.avg_pool2d(y, 3, padding=1, count_include_pad=True))
            out = builder.emit_output(relax.op.nn.conv2d(y, weights(8, 16, 1, 1)))
        builder.emit_func_output(out)
    return builder.get()


class Flat(CostModel):
    """Every candidate takes as long as every other."""

    def __init__(self, kernel_us: float) -> None:
        self._figure = Measurement(kernel_us=kernel_us, enqueue_us=kernel_us, e2e_us=kernel_us)

    def measurements(
        self, workload: Workload, candidates: Sequence[Candidate]
    ) -> list[Measurement | None]:
        return [self._figure] * len(candidates)


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("search", ["greedy", "exact"])
def test_placed_and_run_in_a_network(direct: Backend, pool_pattern: str, search: str) -> None:
    forms = list(normal_forms(separable(), None, "float32"))
    placed = Placer(forms, [direct], HOST, Flat(0.5)).place("graph", search)
    subgraphs = {subgraph.id: subgraph for subgraph in placed.subgraphs}
    names = [subgraphs[choice.subgraph].workload.epilogue.name for choice in placed.plan.choices]
    assert names == ["bias_relu", ""]
    assert pool_pattern in placed.plan.choices[1].subgraph
    assert [native.workload.groups for native in placed.native] == [1]  # the 1x1 convolution

    entries, blobs, symbols = [], {}, {}
    for i, choice in enumerate(placed.plan.choices):
        binary = direct.build(choice.workload, choice.chosen.candidate, HOST)
        symbols[choice.subgraph] = f"direct_{i}"
        entries.append({**binary.entry, "symbol": symbols[choice.subgraph]})
        blobs.update(binary.blobs)
    external = create_module(entries, blobs, arch=0)
    rewritten = rewrite(placed.module, symbols, external)
    values = np.random.default_rng(5).uniform(-1, 1, (1, 16, 14, 14)).astype("float32")
    results = []
    for module in (rewritten, placed.module):
        machine = relax.VirtualMachine(lower(module, "llvm", cuda_graph=False), tvm.cpu())
        results.append(machine["main"](tvm.runtime.tensor(values)).numpy())
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-5)


def test_a_pool_is_left_to_tvm_unless_it_pays(direct: Backend, pool_pattern: str) -> None:
    """One of 50 us is far above what TVM's own pool is estimated to take."""
    forms = list(normal_forms(separable(), None, "float32"))
    assert any(pool_pattern in subgraph.id for subgraph in find_subgraphs(forms[0]))
    for search in ("greedy", "exact"):
        placed = Placer(forms, [direct], HOST, Flat(50.0)).place("graph", search)
        assert not any(pool_pattern in choice.subgraph for choice in placed.plan.choices)
