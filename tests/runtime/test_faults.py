"""Faults of a GPU: which errors they become, and sessions that are made anew."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

import convoy
from convoy.errors import CorruptArtefact, GpuLost, InvalidOption, OutOfMemory
from convoy.runtime.faults import raise_fault

X = np.arange(6, dtype="float32").reshape(2, 3)


@pytest.fixture(scope="module")
def module() -> convoy.CompiledModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_output(op.multiply(x, x))
        builder.emit_func_output(y)
    return convoy.build(builder.get(), "llvm")


@pytest.fixture(scope="module")
def isolated(
    module: convoy.CompiledModule, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[convoy.IsolatedSession]:
    path = tmp_path_factory.mktemp("module") / "net.so"
    module.export_library(path)
    with convoy.IsolatedSession(path, timeout=20) as session:
        yield session


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Check failed: (e == cudaSuccess) is false: CUDA: out of memory", OutOfMemory),
        ("cudaMalloc of 4096 bytes: cudaErrorMemoryAllocation", OutOfMemory),
        ("CUDA: an illegal memory access was encountered", GpuLost),
        ("first line\nCUDAError: device-side assert triggered\nlast", GpuLost),
        ("cudaStreamSynchronize: misaligned address", GpuLost),
    ],
)
def test_errors_of_cuda_are_told_apart(text: str, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        raise_fault(RuntimeError(text))


def test_other_errors_stay_as_they_are() -> None:
    raise_fault(RuntimeError("Check failed: shapes differ"))
    raise_fault(InvalidOption("out of memory as the name of an input"))


@pytest.mark.parametrize("where", ["run", "synchronize", "call"])
def test_a_session_says_what_happened(
    module: convoy.CompiledModule, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = module.session()

    def failing(*_: object) -> None:
        raise RuntimeError("CUDA: an illegal memory access was encountered")

    class Device:
        sync = staticmethod(failing)

    monkeypatch.setattr(session, "device", Device())
    monkeypatch.setattr(session, "_main", failing)
    call = {"run": session.run, "synchronize": session.synchronize, "call": lambda: session(X)}
    with pytest.raises(GpuLost, match="illegal memory access"):
        call[where]()


def test_a_killed_process_is_made_anew(isolated: convoy.IsolatedSession) -> None:
    np.testing.assert_array_equal(isolated(X)[0], X * X)
    starts = isolated.starts
    assert isolated.pid is not None
    os.kill(isolated.pid, signal.SIGKILL)
    with pytest.raises(GpuLost, match="SIGKILL"):
        isolated(X)
    np.testing.assert_array_equal(isolated(X + 1)[0], (X + 1) ** 2)
    assert isolated.starts == starts + 1


def test_a_hang_ends(isolated: convoy.IsolatedSession, monkeypatch: pytest.MonkeyPatch) -> None:
    isolated(X)
    assert isolated.pid is not None
    os.kill(isolated.pid, signal.SIGSTOP)
    monkeypatch.setattr(isolated, "_timeout", 0.2)
    with pytest.raises(GpuLost, match="no answer"):
        isolated(X)
    monkeypatch.undo()
    np.testing.assert_array_equal(isolated(X)[0], X * X)


def test_a_mistake_harms_nothing(isolated: convoy.IsolatedSession) -> None:
    isolated(X)
    pid = isolated.pid
    with pytest.raises(InvalidOption, match=r"shape \(3,\)"):
        isolated(np.zeros(3, "float32"))
    np.testing.assert_array_equal(isolated(X)[0], X * X)
    assert isolated.pid == pid


def test_a_damaged_module_is_refused(tmp_path: Path) -> None:
    (tmp_path / "net.so").write_bytes(b"nothing")
    with pytest.raises(CorruptArtefact):
        convoy.IsolatedSession(tmp_path / "net.so")
