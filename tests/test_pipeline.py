"""From a network to an artefact and back, on the CPU: results, damage, refusals."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import convoy
from convoy import errors, relay
from convoy.ir.sealed_file import read_sealed
from convoy.relay.batch import with_batch
from convoy.relay.convert import to_relax
from convoy.runtime import create_module, load_runtime

TEXT = """#[version = "0.0.5"]
def @main(%data: Tensor[(1, 3, 18, 18), float32], %w0: Tensor[(16, 3, 3, 3), float32],
          %gamma: Tensor[(16), float32], %beta: Tensor[(16), float32],
          %mean: Tensor[(16), float32], %var: Tensor[(16), float32],
          %w1: Tensor[(16, 16, 3, 3), float32], %w2: Tensor[(10, 16), float32]) {
  %0 = nn.conv2d(%data, %w0, strides=[2, 2], padding=[1, 1, 1, 1], channels=16, kernel_size=[3, 3]);
  %1 = nn.batch_norm(%0, %gamma, %beta, %mean, %var);
  %2 = nn.relu(%1.0);
  %3 = nn.conv2d(%2, %w1, padding=[1, 1, 1, 1], channels=16, kernel_size=[3, 3]);
  %4 = nn.relu(add(%3, %2));
  %5 = nn.batch_flatten(nn.global_avg_pool2d(%4));
  nn.softmax(nn.dense(%5, %w2, units=10))
}
"""


@pytest.fixture(scope="module")
def network() -> tuple[object, dict[str, np.ndarray]]:
    module = relay.parse(TEXT)
    rng = np.random.default_rng(3)
    params = {}
    for var in module["main"].params[1:]:
        shape = tuple(int(d) for d in var.checked_type.shape)
        low = 0.5 if var.name_hint in ("gamma", "var") else -0.5
        params[var.name_hint] = rng.uniform(low, 1.0, shape).astype("float32")
    return module, params


@pytest.fixture(scope="module")
def compiled(network: tuple[object, dict[str, np.ndarray]]) -> convoy.CompiledModule:
    module, params = network
    return convoy.build(to_relax(module, params), "llvm")


@pytest.fixture(scope="module")
def artefact(compiled: convoy.CompiledModule, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("artefact") / "net.so"
    compiled.export_library(path)
    return path


def expected(module: object, params: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """The network by stock TVM, neither normalized nor partitioned."""
    import tvm

    from .helpers.stock import machine

    return machine(to_relax(module, params))["main"](tvm.runtime.tensor(x)).numpy()


def sample(batch: int = 1) -> np.ndarray:
    return np.random.default_rng(5).uniform(-1, 1, (batch, 3, 18, 18)).astype("float32")


def test_result_through_the_artefact(network, compiled, artefact) -> None:
    module, params = network
    x = sample()
    want = expected(module, params, x)
    loaded = convoy.load(artefact)
    assert loaded.meta == compiled.meta
    assert [t.name for t in loaded.meta.inputs] == ["data"]
    for part in (compiled, loaded):
        (y,) = part.session()(x)
        assert np.linalg.norm(y - want) <= 1e-5 * np.linalg.norm(want)


def test_batch_is_replaced(network) -> None:
    module, params = network
    x = sample(3)
    (y,) = convoy.build(to_relax(with_batch(module, 3), params), "llvm").session()(x)
    for i in range(3):
        assert np.allclose(y[i : i + 1], expected(module, params, x[i : i + 1]), atol=1e-5)


def test_weights_that_are_inputs_can_be_swapped(network) -> None:
    module, params = network
    free = {name: value for name, value in params.items() if name != "w1"}
    session = convoy.build(to_relax(module, free), "llvm").session()
    assert [name for name, _, _ in session.input_info] == ["data", "w1"]
    x = sample()
    for scale in (1.0, -0.5):
        weights = params["w1"] * np.float32(scale)
        session.set_input("w1", weights)
        session.set_input("data", x)
        session.run()
        want = expected(module, {**params, "w1": weights}, x)
        assert np.allclose(session.output(0).numpy(), want, atol=1e-5)


def test_fresh_process_without_the_compiler(artefact, tmp_path) -> None:
    np.savez(tmp_path / "x.npz", data=sample())
    command = [sys.executable, "-m", "convoy", "run", str(artefact), "--json"]
    command += ["--inputs", str(tmp_path / "x.npz"), "--outputs", str(tmp_path / "y.npz")]
    environment = {**os.environ, "TVM_USE_RUNTIME_LIB": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report == {"output_0": [1, 10]}
    assert "Scope" not in done.stderr
    (y,) = convoy.load(artefact).session()(sample())
    assert np.array_equal(np.load(tmp_path / "y.npz")["output_0"], y)


@pytest.mark.parametrize("keep", [0, 10, 4096, -1, -20, -100])
def test_truncated_artefacts_are_refused(artefact, tmp_path, keep: int) -> None:
    damaged = tmp_path / "net.so"
    damaged.write_bytes(artefact.read_bytes()[:keep] if keep else b"")
    with pytest.raises(errors.CorruptArtefact, match="Export it again"):
        convoy.load(damaged)


@pytest.mark.parametrize("where", [0.01, 0.3, 0.6, 0.99])
def test_changed_bytes_are_refused(artefact, tmp_path, where: float) -> None:
    data = bytearray(artefact.read_bytes())
    data[int(where * len(data))] ^= 0x40
    damaged = tmp_path / "net.so"
    damaged.write_bytes(bytes(data))
    with pytest.raises(errors.CorruptArtefact):
        convoy.load(damaged)


def test_other_files_are_refused(tmp_path) -> None:
    for name, content in (("a.so", b"not a module" * 20), ("b.so", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(errors.CorruptArtefact):
            convoy.load(tmp_path / name)
    with pytest.raises(errors.InvalidOption, match="does not exist"):
        convoy.load(tmp_path / "absent.so")


def _times(factor: int) -> convoy.CompiledModule:
    text = (
        f'#[version = "0.0.5"]\ndef @main(%x: Tensor[(4), float32]) {{ multiply(%x, {factor}f) }}'
    )
    return convoy.build(relay.to_relax(relay.parse(text), {}), "llvm")


@pytest.mark.parametrize("in_place", [False, True])
def test_what_is_loaded_is_what_the_file_holds_now(tmp_path, in_place: bool) -> None:
    path, other, kept = tmp_path / "net.so", tmp_path / "other.so", []
    before = len(list(Path(tempfile.gettempdir()).glob("convoy-load-*")))
    for factor in (2, 3, 5):
        if in_place and path.exists():
            _times(factor).export_library(other)
            with path.open("wb") as file:  # the same file, other content
                file.write(other.read_bytes())
        else:
            _times(factor).export_library(path)
        kept.append((factor, convoy.load(path).session()))
        for expected, session in kept:
            np.testing.assert_array_equal(session(np.ones(4, "float32"))[0], expected)
    path.write_bytes(b"")
    for expected, session in kept:
        np.testing.assert_array_equal(session(np.ones(4, "float32"))[0], expected)
    assert len(list(Path(tempfile.gettempdir()).glob("convoy-load-*"))) <= before


def test_export_leaves_nothing_behind_where_it_fails(compiled, tmp_path) -> None:
    with pytest.raises(errors.CacheUnwritable, match="there is no folder"):
        compiled.export_library(tmp_path / "no such folder" / "net.so")
    with pytest.raises(errors.CacheUnwritable, match="it is a folder"):
        compiled.export_library(tmp_path)
    assert not list(tmp_path.iterdir())


def test_export_replaces_a_file_whole(compiled, tmp_path) -> None:
    target = tmp_path / "net.so"
    target.write_bytes(b"old")
    compiled.export_library(target)
    read_sealed(target)
    assert [p.name for p in tmp_path.iterdir()] == ["net.so"]


def test_gpu_module_without_a_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from convoy.ir.artifact import Meta
    from convoy.runtime import device as devices
    from convoy.runtime.compiled import CompiledModule

    monkeypatch.setattr(
        devices, "_describe", lambda index: (_ for _ in ()).throw(errors.LibraryMissing("no CUDA"))
    )
    meta = Meta((), (), "cuda", "float16", {"device": {"arch": 90}})
    load_runtime()
    with pytest.raises(errors.NoGpu):
        CompiledModule(create_module([], {}, meta.dumps()), meta).session()


def test_module_for_another_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from convoy.ir.artifact import Meta
    from convoy.ir.device import Device
    from convoy.runtime import device as devices
    from convoy.runtime.compiled import CompiledModule

    monkeypatch.setattr(devices, "_describe", lambda index: Device(name="NVIDIA A100", arch=80))
    meta = Meta((), (), "cuda", "float16", {"device": {"arch": 90}})
    load_runtime()
    with pytest.raises(errors.WrongDevice, match=r"8\.0"):
        CompiledModule(create_module([], {}, meta.dumps()), meta).session()


def test_session_refuses_wrong_inputs(compiled) -> None:
    session = compiled.session()
    with pytest.raises(errors.InvalidOption, match="run\\(\\) first"):
        session.output(0)
    with pytest.raises(errors.InvalidOption, match="one of data"):
        session.set_input("picture", sample())
    with pytest.raises(errors.InvalidOption, match="18"):
        session.set_input("data", sample(2))
    with pytest.raises(errors.InvalidOption, match="float32"):
        session.set_input("data", sample().astype("complex64"))
    with pytest.raises(errors.InvalidOption, match="2 inputs"):
        session(sample(), sample())
    session.run({"data": sample()})
    with pytest.raises(errors.InvalidOption, match="output 1"):
        session.output(1)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"target": "opencl"}, errors.InvalidOption),
        ({"target": "llvm", "precision": "int4"}, errors.InvalidOption),
        ({"target": "cuda", "streams": 1.5}, errors.InvalidOption),
    ],
)
def test_wrong_options(network, options, error) -> None:
    module, params = network
    with pytest.raises(error):
        convoy.build(to_relax(module, params), **options)


@pytest.mark.parametrize("target", ["llvm", "cuda"])
def test_options_that_there_are_not_are_refused(network, target: str) -> None:
    module, params = network
    with pytest.raises(TypeError, match="objectiv"):
        convoy.build(to_relax(module, params), target, objectiv="graph")


@pytest.mark.parametrize("target", ["llvm", "cuda"])
def test_what_is_no_relax_module_is_refused(network, target: str) -> None:
    module, _ = network
    for wrong, name in ((module, r"convoy\.relay"), ("net.relay", "str"), (None, "NoneType")):
        with pytest.raises(errors.InvalidOption, match=f"{name}.*a Relax module"):
            convoy.build(wrong, target)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"objective": "speed"}, "graph, stream, sync"),
        ({"precision": "float8"}, "float16"),
        ({"backends": ["onednn"]}, "cudnn"),
        ({"backends": "cutlass"}, r"several, such as \('cutlass', 'tvm'\)"),
        ({"backends": None}, r"several, such as \('cudnn', 'tvm'\)"),
        ({"plan": "plan.json"}, "Plan.loads"),
        ({"device": "H200"}, "device 'H200'; expected a convoy.Device"),
        ({"params": [1.0]}, "params of type list; expected values by name"),
    ],
)
def test_wrong_placement_options(network, options, match) -> None:
    module, params = network
    with pytest.raises(errors.InvalidOption, match=match):
        convoy.place(to_relax(module, params), **options)


def test_measuring_needs_a_gpu(network, monkeypatch: pytest.MonkeyPatch) -> None:
    module, params = network
    monkeypatch.setattr(sys.modules["convoy.pipeline.network"], "present_device", lambda: None)
    with pytest.raises(errors.NoGpu, match="records"):
        convoy.place(to_relax(module, params), measure=True)


def test_chosen_kernels_are_prepared_together_before_they_are_built(network) -> None:
    from convoy.backends.base import Backend, Binary
    from convoy.backends.entries import build_entries
    from convoy.ir.candidate import Candidate

    calls: list[str] = []

    class Recorder(Backend):
        name = "recorder"

        def accepts(self, workload, device):
            return None

        def propose(self, workload, device):
            return [Candidate(self.name, "only")]

        def build(self, workload, candidate, device):
            calls.append("build")
            return Binary({"workload": workload.to_json()}, {})

        def prepare(self, jobs, device):
            calls.append(f"prepare {len(jobs)}")

    module, params = network
    backends = (Recorder(),)
    placed = convoy.place(to_relax(module, params), backends=backends, measure=False)
    entries = build_entries(placed.plan, {"recorder": backends[0]}).entries
    count = len(placed.plan.choices)
    assert count == 2 and {entry["symbol"] for entry in entries} == set(placed.plan.functions())
    assert calls == [f"prepare {count}"] + ["build"] * count


def test_dynamic_shapes_are_refused() -> None:
    import tvm
    from tvm import relax, tirx

    n = tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType((n, 3, 8, 8), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(relax.op.nn.relu(x))
        builder.emit_func_output(y)
    assert isinstance(builder.get(), tvm.IRModule)
    with pytest.raises(errors.DynamicShape, match="static"):
        convoy.build(builder.get(), "llvm")


def test_a_module_for_an_absent_gpu(network, tmp_path, monkeypatch) -> None:
    """TVM's default without a GPU is sm_50, for which bfloat16 is taken apart into integers; and
    its runtime library by itself does not read what holds kernels for one."""
    module, params = network
    options = {"precision": "bfloat16", "backends": ("tvm",), "measure": False, "streams": 1}
    built = convoy.build(to_relax(module, params), "cuda", **options)
    sources = [
        part.inspect_source("cuda") for part in _parts(built.module.mod) if part.kind == "cuda"
    ]
    assert sources and all("nv_bfloat16" in source for source in sources)
    built.export_library(tmp_path / "linked.so", cc="g++")
    monkeypatch.setenv("PATH", str(tmp_path))  # no linker is needed
    built.export_library(tmp_path / "net.so")
    assert _data(tmp_path / "net.so") == _data(tmp_path / "linked.so")
    script = "import convoy, sys; print(convoy.load(sys.argv[1]).meta.precision)"
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "net.so")], capture_output=True, text=True,
        env={**os.environ, "TVM_USE_RUNTIME_LIB": "1"}, check=False,
    )  # fmt: skip
    if "libcuda.so.1" in done.stderr:  # no driver: TVM's CUDA runtime was tried and is named
        assert "LibraryMissing" in done.stderr
    else:
        assert done.stdout.strip() == "bfloat16", done.stderr


def _data(path: Path) -> bytes:
    """Return what TVM's loader reads of a shared object."""
    library = ctypes.CDLL(str(path))
    size = ctypes.c_uint64.in_dll(library, "__tvm_ffi__library_bin").value
    return bytes((ctypes.c_uint8 * size).in_dll(library, "__tvm_ffi__library_bin"))


def _parts(module):
    yield module
    for part in module.imports:
        yield from _parts(part)
