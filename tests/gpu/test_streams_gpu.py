"""Several streams on the GPU: random networks, failures, threads, and whole networks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import convoy
from convoy import relay
from convoy.relay.convert import to_relax

from ..helpers.errors import l2_error

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parents[2]
NETWORKS = int(os.environ.get("CONVOY_RANDOM_NETWORKS", "500"))
TEXT = """#[version = "0.0.5"]
def @main(%data: Tensor[(1, 16, 18, 18), float32], %w0: Tensor[(16, 16, 3, 3), float32],
          %w1: Tensor[(16, 16, 3, 3), float32], %w2: Tensor[(10, 48), float32]) {
  %0 = nn.relu(nn.conv2d(%data, %w0, padding=[1, 1, 1, 1], channels=16, kernel_size=[3, 3]));
  %1 = nn.conv2d(%data, %w1, padding=[1, 1, 1, 1], channels=16, kernel_size=[3, 3]);
  %2 = nn.max_pool2d(%data, pool_size=[3, 3], padding=[1, 1, 1, 1]);
  %3 = (%0, %1, %2);
  %4 = nn.batch_flatten(nn.global_avg_pool2d(concatenate(%3, axis=1)));
  (nn.softmax(nn.dense(%4, %w2, units=10)), %0)
}
"""


def test_random_networks() -> None:
    """Forks, joins, diamonds, long skips, several results: on one and on several streams, with and
    without graphs, storage and results poisoned, against numpy. In processes of their own."""
    workers = min(12, os.cpu_count() or 1)
    bounds = [NETWORKS * i // workers for i in range(workers + 1)]

    def work(index: int) -> list[dict]:
        command = [sys.executable, str(Path(__file__).parent / "random_networks.py")]
        command += [str(bounds[index]), str(bounds[index + 1])]
        search = [str(ROOT / "python"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(search)}
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
        assert done.returncode == 0, done.stderr[-4000:]
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        return [json.loads(line) for line in lines]

    with ThreadPoolExecutor(workers) as pool:
        found = [entry for entries in pool.map(work, range(workers)) for entry in entries]
    assert sum(entry.get("done", 0) for entry in found) == NETWORKS
    wrong = [entry for entry in found if "problems" in entry]
    print(f"{NETWORKS} networks, {len(wrong)} wrong")
    assert not wrong, wrong[:5]


@pytest.fixture(scope="module")
def network() -> tuple[relay.IRModule, dict[str, np.ndarray]]:
    module = relay.parse(TEXT)
    rng = np.random.default_rng(3)
    params = {}
    for var in module["main"].params[1:]:
        shape = tuple(int(d) for d in var.checked_type.shape)
        params[var.name_hint] = rng.uniform(-0.3, 0.3, shape).astype("float32")
    return module, params


def picture(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (1, 16, 18, 18)).astype("float32")


def error(got: list[np.ndarray], want: list[np.ndarray]) -> float:
    return max(l2_error(y, w) for y, w in zip(got, want, strict=True))


def build(network, records, **options):
    module, params = network
    options = {"backends": ("cudnn", "tvm"), "records": records, "most_measured": 3, **options}
    return convoy.build(to_relax(module, params), "cuda", **options)


@pytest.fixture(scope="module")
def reference(network):
    module, params = network
    session = convoy.build(to_relax(module, params), "llvm").session()
    return lambda x: session(x)


@pytest.mark.parametrize("cuda_graph", [True, False], ids=["graph", "eager"])
@pytest.mark.parametrize("streams", [1, 2, 4, "auto"])
def test_streams_and_graphs(network, records, reference, streams, cuda_graph: bool) -> None:
    built = build(network, records, streams=streams, cuda_graph=cuda_graph)
    assert built.schedule is not None
    if streams != "auto":
        assert built.schedule.streams <= streams
        assert built.schedule.decided_by == "requested"
    elif built.schedule.trial:
        assert (built.schedule.streams > 1) == built.schedule.trial.faster
    session = built.session()
    for seed in range(5):
        assert error(session(picture(seed)), reference(picture(seed))) < 5e-3


def test_sessions_in_threads(network, records, reference) -> None:
    """One instance in each thread, all capturing and replaying at the same time."""
    built = build(network, records, streams=3)
    assert built.schedule.streams > 1
    want = {seed: reference(picture(seed)) for seed in range(6)}
    errors: dict[int, float] = {}

    def work(seed: int) -> None:
        session = built.session()
        errors[seed] = max(error(session(picture(seed)), want[seed]) for _ in range(50))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in want]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 6 and max(errors.values()) < 5e-3


def test_bound_inputs_are_read_in_place(network, records, reference) -> None:
    import tvm

    built = build(network, records, streams=3)
    session = built.session()
    buffers = [tvm.runtime.tensor(picture(seed), tvm.cuda(0)) for seed in range(3)]
    for _ in range(3):
        for seed, buffer in enumerate(buffers):
            session.bind_input("data", buffer)
            session.run()
            got = [session.output(i).numpy() for i in range(2)]
            assert error(got, reference(picture(seed))) < 5e-3


def test_callers_stream(network, records, reference) -> None:
    """Runs enqueued on a stream of the caller, behind a copy on that stream."""
    import tvm
    import tvm_ffi

    built = build(network, records, streams=3)
    session = built.session()
    session(picture(0))
    device = tvm.cuda(0)
    stream = device.create_raw_stream()
    with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda:0"), stream):
        for seed in range(4):
            session.set_input("data", picture(seed))
            session.run()
            device.sync(stream)
            got = [session.output(i).numpy() for i in range(2)]
            assert error(got, reference(picture(seed))) < 5e-3


def test_exported_schedule(network, records, reference, tmp_path: Path) -> None:
    built = build(network, records, streams=3)
    built.export_library(tmp_path / "net.so")
    loaded = convoy.load(tmp_path / "net.so")
    assert loaded.schedule == built.schedule
    session = loaded.session()
    for seed in range(4):
        assert error(session(picture(seed)), reference(picture(seed))) < 5e-3
