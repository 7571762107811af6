"""The runtime on a real GPU: every kind of cuDNN engine against float64, captures, streams,
threads, other versions. Runs in some minutes; `-s` shows the times."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import json
import threading
import time
from typing import Any

import numpy as np
import pytest

from convoy import errors
from convoy.backends.cudnn import CudnnBackend
from convoy.backends.cudnn_device import device_properties
from convoy.ir.activation import ACTIVATIONS, WITH_ALPHA
from convoy.ir.candidate import Candidate, Decline
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload
from convoy.measure import dtypes, protocol
from convoy.measure.problem import as_tensor, make_problem, tolerance
from convoy.runtime import create_module, current_device
from convoy.runtime.library import call_json, function, locations

from ..helpers.errors import l2_error
from ..runtime.support import FakeStreams as Streams

pytestmark = pytest.mark.gpu

RELU = Epilogue(bias=True, activation="relu")
RESIDUAL_RELU = Epilogue(residual=True, bias=True, activation="relu")


def conv(op: str = "fprop", **changes: Any) -> Workload:
    fields: dict = {"op": op, "n": 8, "h": 14, "w": 14, "c": 256, "k": 256, "r": 3, "s": 3}
    fields |= {"padding": (1, 1, 1, 1), **changes}
    if "dtype" in changes:
        fields.setdefault("out_dtype", changes["dtype"])
    return Workload(**fields)


WORKLOADS = [
    conv(),
    conv(epilogue=RELU),
    conv(epilogue=RESIDUAL_RELU),
    conv(epilogue=Epilogue(residual=True, bias=True)),
    conv(epilogue=Epilogue(bias=True, activation="clip", clip_max=0.5)),
    *(
        conv(epilogue=Epilogue(bias=True, activation=name, alpha=0.3 * (name in WITH_ALPHA)))
        for name in ACTIVATIONS[3:]
    ),
    conv(epilogue=Epilogue(True, True, "silu", residual_last=True)),
    conv(epilogue=Epilogue(activation="relu")),
    conv(epilogue=Epilogue(residual=True, activation="relu")),
    conv(stride=(2, 2), padding=(0, 0, 1, 1)),
    conv(padding=(2, 0, 1, 3)),
    conv(dilation=(2, 2), padding=(2, 2, 2, 2)),
    conv(h=224, w=224, c=3, k=64, r=7, s=7, stride=(2, 2), padding=(3, 3, 3, 3), epilogue=RELU),
    conv(c=33, k=36),
    conv(groups=32),
    conv(groups=256),
    conv("dgrad"),
    conv("dgrad", stride=(2, 2)),
    conv("dgrad", groups=32),
    conv("wgrad"),
    conv("wgrad", stride=(2, 2)),
    conv(dtype="bfloat16", epilogue=RELU),
    conv(dtype="float32"),
    conv(dtype="float32", math="tf32"),
    conv("dgrad", dtype="float32", math="tf32"),
    conv("wgrad", dtype="float32"),
    conv(
        "matmul",
        n=64,
        h=1,
        w=1,
        c=2048,
        k=1000,
        r=1,
        s=1,
        padding=(0,) * 4,
        epilogue=Epilogue(bias=True),
    ),
]


@pytest.fixture(scope="module")
def device() -> Device:
    return current_device()


@pytest.fixture(scope="module")
def streams() -> Streams:
    return Streams(ctypes.CDLL(locations()["cudart"] or "libcudart.so.13"))


def one_of_each_engine(candidates: list[Candidate]) -> list[Candidate]:
    """The first configuration of each engine number."""
    chosen: dict[int, Candidate] = {}
    for candidate in candidates:
        chosen.setdefault(candidate.options()["engine"], candidate)
    return list(chosen.values())


def propose(workload: Workload, device: Device) -> list[Candidate]:
    answer = CudnnBackend().propose(workload, device)
    if isinstance(answer, Decline):
        pytest.skip(f"declined: {answer.reason}")
    return list(answer)


def module_of(workload: Workload, candidate: Candidate, device: Device, **changes: Any) -> Any:
    entry = CudnnBackend().build(workload, candidate, device).entry
    return create_module([{**entry, "symbol": "f", **changes}], {})


class Case:
    """A workload with tensors on the GPU, its first engine, and what its output should be."""

    def __init__(self, workload: Workload, device: Device, seed: int = 1, **changes: Any) -> None:
        self.problem = make_problem(workload, np.random.default_rng(seed))
        self.module = module_of(workload, propose(workload, device)[0], device, **changes)
        self.run = self.module["f"]
        self.tensors = self.problem.tensors
        self.limit = tolerance(workload)

    def call(self) -> None:
        self.run(*self.tensors)

    def poison(self) -> None:
        for output in self.problem.outputs.values():
            function("cuda.fill")(output, 0xFF)

    def error(self) -> float:
        """Relative L2 error of what lies in the outputs now."""
        function("cuda.synchronize")(0)
        (expected,) = self.problem.expected
        dtype = self.problem.workload.out_dtype
        stored = np.empty(expected.values.shape, dtypes.STORAGE[dtype])
        starts = as_tensor(expected.starts.astype(np.int64))
        output = self.problem.outputs[expected.name]
        function("cuda.gather")(output, starts, expected.run, as_tensor(stored))
        got = dtypes.decode(stored, dtype)
        return l2_error(got, expected.values)

    def right(self) -> bool:
        return self.error() < self.limit


def test_device_is_described(device: Device) -> None:
    real = json.loads(function("cudnn.device_properties")())
    ours = device_properties(device)
    print(json.dumps(real))
    assert device.sm_count > 0 and device.memory_bytes > 1 << 30
    for name in ("multiProcessorCount", "deviceVer", "maxSharedMemoryPerBlockOptin", "l2CacheSize"):
        assert real[name] == ours[name], name


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w.key)
def test_each_engine_is_right(workload: Workload, device: Device) -> None:
    candidates = one_of_each_engine(propose(workload, device))
    wrong = {}
    for candidate in candidates:
        binary = CudnnBackend().build(workload, candidate, device)
        measured = protocol.measure(workload, candidate, binary, device)
        print(
            f"{candidate.kernel:52s} kernel {measured.kernel_us} cold {measured.cold_us} "
            f"enqueue {measured.enqueue_us} e2e {measured.e2e_us} error {measured.error} "
            f"{measured.failure}"
        )
        if not measured.ok:
            wrong[candidate.kernel] = measured.failure
    assert len(wrong) < len(candidates), wrong
    unexpected = {k: why for k, why in wrong.items() if "relative L2 error" not in why}
    assert not unexpected


def test_figures_make_sense(device: Device) -> None:
    workload = conv(n=64)
    candidate = propose(workload, device)[0]
    binary = CudnnBackend().build(workload, candidate, device)
    started = time.perf_counter()
    measured = protocol.measure(workload, candidate, binary, device)
    print(measured, f"{time.perf_counter() - started:.2f} s in all")
    assert measured.ok, measured.failure
    assert measured.kernel_us is not None and measured.e2e_us is not None
    assert measured.cold_us is not None and measured.enqueue_us is not None
    teraflops = workload.flops / measured.kernel_us / 1e6
    assert 20 < teraflops < 2000
    assert measured.e2e_us > measured.kernel_us
    assert measured.cold_us > 0.9 * measured.kernel_us
    again = protocol.measure(workload, candidate, binary, device)
    assert again.kernel_us == pytest.approx(measured.kernel_us, rel=0.15)


@pytest.mark.parametrize("mode", [0, 1, 2], ids=["global", "thread_local", "relaxed"])
@pytest.mark.parametrize("workload", [conv(), conv(c=33, k=36), conv("wgrad")], ids=lambda w: w.key)
def test_capture_on_a_new_stream(
    workload: Workload, mode: int, device: Device, streams: Streams
) -> None:
    """One eager call, then a capture on a new stream, whose workspace is allocated while it is
    under way; replays see new inputs."""
    case = Case(workload, device)
    case.call()
    assert case.right()
    stream = streams.create()
    streams.use(stream)
    try:
        streams.begin(stream, mode)
        case.call()
        graph = streams.end(stream)
    finally:
        streams.use(0)
    for _ in range(3):
        case.poison()
        streams.launch(graph)
        assert case.right()
    streams.destroy(graph)


def test_workspace_comes_back_with_the_graph(device: Device, streams: Streams) -> None:
    case = Case(conv(c=33, k=36), device)
    case.call()
    allocated = []
    for _ in range(10):
        stream = streams.create()
        streams.use(stream)
        streams.begin(stream)
        case.call()
        graph = streams.end(stream)
        streams.use(0)
        streams.launch(graph)
        function("cuda.synchronize")(0)
        streams.destroy(graph)
        time.sleep(0.05)  # the driver releases from a thread of its own
        allocated.append(call_json("cuda.workspace_info")["allocated"])
    print(allocated)
    assert allocated[-1] == allocated[1]


def test_fork_and_join_in_a_graph(device: Device, streams: Streams) -> None:
    one, two = Case(conv(), device, 1), Case(conv(), device, 2)
    origin, side = streams.create(), streams.create()

    def both() -> None:
        streams.order(origin, side)
        streams.use(origin)
        one.call()
        streams.use(side)
        two.call()
        streams.order(side, origin)
        streams.use(0)

    both()
    function("cuda.synchronize")(0)
    streams.begin(origin)
    both()
    graph = streams.end(origin)
    for _ in range(20):
        one.poison()
        two.poison()
        streams.launch(graph)
        assert one.right() and two.right()


def test_two_streams_at_once(device: Device, streams: Streams) -> None:
    """An engine with a workspace on two streams, many times over; a shared workspace would mix
    the results up."""
    workload = conv(c=33, k=36, n=64)
    cases = [Case(workload, device, seed) for seed in (1, 2)]
    handles = [streams.create() for _ in cases]
    for _ in range(200):
        for case, handle in zip(cases, handles, strict=True):
            streams.use(handle)
            case.call()
    streams.use(0)
    assert all(case.right() for case in cases)


@pytest.mark.parametrize("shared_stream", [False, True], ids=["own_streams", "one_stream"])
def test_threads(shared_stream: bool, device: Device, streams: Streams) -> None:
    workload = conv(c=33, k=36)
    cases = [Case(workload, device, seed) for seed in range(4)]
    run = cases[0].run
    shared = streams.create()
    failures: list[BaseException] = []

    def work(case: Case) -> None:
        try:
            stream = shared if shared_stream else streams.create()
            streams.use(stream)
            for _ in range(200):
                run(*case.tensors)
        except BaseException as err:
            failures.append(err)

    threads = [threading.Thread(target=work, args=(case,)) for case in cases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert all(case.right() for case in cases)


def test_hot_path_in_microseconds(device: Device) -> None:
    case = Case(conv(n=1), device)
    times = list(function("measure.enqueue_us")(case.run, case.tensors, 0, 20, 50, 1e6))
    print(f"enqueue: median {np.median(times):.2f} us")
    assert np.median(times) < 20


def test_engine_of_another_version(device: Device) -> None:
    """Numbers of another version: rebuilt where they mean something, refused clearly otherwise."""
    workload = conv()
    kept = Case(workload, device, cudnn_version=90100)
    kept.call()
    assert kept.right()
    broken = Case(workload, device, cudnn_version=90100, engine=9999)
    with pytest.raises(errors.LibraryVersionMismatch, match=r"engine 9999 of cuDNN 9\.1\.0"):
        broken.call()


def test_artefact_for_another_gpu(device: Device) -> None:
    case = Case(conv(), device, arch=device.arch - 1)
    with pytest.raises(errors.WrongDevice):
        case.call()


def test_compiled_engine_is_restored_from_json(device: Device) -> None:
    workload = conv(epilogue=Epilogue(bias=True, activation="silu"))
    compiled = [c for c in propose(workload, device) if "runtime_compilation" in c.notes]
    if not compiled:
        pytest.skip("no engine compiled at run time for this workload")
    started = time.perf_counter()
    entry = CudnnBackend().build(workload, compiled[0], device).entry
    built = time.perf_counter() - started
    problem = make_problem(workload, np.random.default_rng(1))
    seconds = {}
    for name, changes in {"json": {}, "engine": {"plan_json": "", "workspace": 0}}.items():
        module = create_module([{**entry, **changes, "symbol": "f"}], {})
        started = time.perf_counter()
        module["f"](*problem.tensors)
        function("cuda.synchronize")(0)
        seconds[name] = time.perf_counter() - started
    damaged = create_module([{**entry, "plan_json": "{}", "symbol": "f"}], {})
    damaged["f"](*problem.tensors)
    print(f"build {built:.2f} s, first call {seconds}")
    assert seconds["json"] < 1


def test_device_less_plans_run_here(device: Device) -> None:
    """What is proposed and built from a description of this GPU is what the GPU itself takes."""
    workload = conv(epilogue=RELU)
    described = dataclasses.replace(device, name=device.name + " described")
    away = {c.kernel for c in propose(workload, described)}
    here = {c.kernel for c in propose(workload, device)}
    print(f"{len(away)} described, {len(here)} here, {len(away & here)} common")
    assert len(away & here) >= 0.8 * len(here)


def test_relax_vm_with_cuda_graph(device: Device) -> None:
    tvm = pytest.importorskip("tvm")
    from tvm import relax
    from tvm.relax.backend.cuda import pipeline

    workload = conv(epilogue=RELU)
    candidate = propose(workload, device)[0]
    entry = CudnnBackend().build(workload, candidate, device).entry
    external = create_module([{**entry, "symbol": "convoy_0"}], {})
    shapes = {name: shape for name, shape, _ in workload.operand_shapes()}
    builder = relax.BlockBuilder()
    params = [relax.Var(n, relax.TensorType(shapes[n], "float16")) for n in ("x", "w", "bias")]
    with builder.function("main", params, attrs={"num_input": 1}):
        with builder.dataflow():
            x, w, bias = params
            value: Any = x
            for _ in range(4):  # the second and third stand inside the captured region
                value = builder.emit(
                    relax.op.call_dps_packed(
                        "convoy_0",
                        relax.Tuple([value, w, bias]),
                        relax.TensorType(shapes["y"], "float16"),
                    )
                )
            output = builder.emit_output(value)
        builder.emit_func_output(output)
    mod = builder.get().with_attr("external_mods", [external])
    target = tvm.target.Target({"kind": "cuda", "arch": f"sm_{device.arch}"})
    results = {}
    arrays = [
        np.random.default_rng(i).uniform(-1, 1, shapes[n]) * scale
        for i, (n, scale) in enumerate((("x", 1.0), ("w", 0.05), ("bias", 0.1)))
    ]
    for graph in (False, True):
        config = {"relax.backend.use_cuda_graph": graph}
        with tvm.transform.PassContext(config=config), target:
            lowered = tvm.transform.Sequential(
                [
                    *pipeline.legalize_passes(target),
                    *pipeline.dataflow_lower_passes(target),
                    *pipeline.finalize_passes(target),
                ]
            )(mod)
            executable = tvm.compile(lowered, target, relax_pipeline=None)
        machine = relax.VirtualMachine(executable, tvm.cuda(0))
        tensors = [tvm.runtime.tensor(a.astype("float16"), tvm.cuda(0)) for a in arrays]
        for _ in range(4):
            results[graph] = machine["main"](*tensors).numpy()
        del machine
        gc.collect()
    assert np.isfinite(results[True]).all() and results[True].std() > 0
    np.testing.assert_array_equal(results[True], results[False])
