"""Faults while serving on a GPU: memory used up, a context that is lost, a killed process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import convoy
from convoy.errors import GpuLost, OutOfMemory

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.gpu

LOST = """
import sys, numpy as np, torch, convoy
session = convoy.load(sys.argv[1]).session()
x = np.ones((1, 3, 32, 32), "float16")
for _ in range(3):
    session(x)
try:
    torch.zeros(4, device="cuda")[torch.tensor([1 << 20], device="cuda")] += 1
except RuntimeError:  # an assertion on the device, which may be reported at once
    pass
for _ in range(3):
    try:
        session(x)
        session.synchronize()
    except convoy.errors.GpuLost as err:
        print("GpuLost", err)
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3, padding=1), torch.nn.ReLU()).half().eval()
    x = torch.randn(1, 3, 32, 32).half()
    path = tmp_path_factory.mktemp("served") / "net.so"
    convoy.compile(net.cuda(), (x.cuda(),), measure=False).export(path)
    with torch.no_grad():
        return path, x.numpy(), net.cuda()(x.cuda()).cpu().numpy()


def close(got, want):
    return np.linalg.norm(got.astype("f8") - want) < 5e-3 * np.linalg.norm(want)


@pytest.mark.skipif(
    int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1,
    reason="uses up the GPU's memory: run this file alone",
)
def test_memory_is_used_up_and_freed(served):
    path, x, want = served
    module = convoy.load(path)
    session = module.session()
    for _ in range(2):  # the second call captures
        assert close(session(x)[0], want)
    held, sessions = use_up_memory(), []
    try:
        with pytest.raises(OutOfMemory):
            for _ in range(400):  # a session is small, and CUDA keeps some memory in reserve
                sessions.append(module.session())
                sessions[-1](x)
        assert close(session(x)[0], want)
    finally:
        held.clear()
        sessions.clear()
        torch.cuda.empty_cache()
    assert close(module.session()(x)[0], want)


def use_up_memory():
    held, size = [], 1 << 34
    while size >= 1 << 16:
        try:
            held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        except torch.OutOfMemoryError:
            size //= 2
    return held


def test_a_lost_context_is_named(served):
    done = subprocess.run(
        [sys.executable, "-c", LOST, str(served[0])], capture_output=True, text=True, timeout=120
    )
    assert "GpuLost" in done.stdout, done.stdout + done.stderr[-2000:]


def test_a_session_is_made_anew(served):
    path, x, want = served
    with convoy.IsolatedSession(path) as session:
        assert close(session(x)[0], want)
        os.kill(session.pid, signal.SIGKILL)
        with pytest.raises(GpuLost):
            session(x)
        assert close(session(x)[0], want)
