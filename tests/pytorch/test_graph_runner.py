"""The runner of captured graphs, on the host: a session of NumPy and a CUDA of one stream."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest
import tvm
import tvm_ffi

torch = pytest.importorskip("torch", reason="needs torch")

from convoy.pytorch.runner import Batched, GraphRunner, Turns  # noqa: E402

NO_BATCH = Batched((False,), (False,))


class Session:
    """Writes twice its input to its output, and keeps the stream of each run."""

    def __init__(self) -> None:
        self.device = tvm.runtime.device("cuda", 0)
        self.meta = SimpleNamespace(inputs=[None])
        self.buffer = tvm.runtime.empty((2, 3), "float32")
        self.outputs = [tvm.runtime.empty((2, 3), "float32")]
        self.streams: list[int] = []
        self.is_captured = False

    def input(self, _position: int) -> Any:
        return self.buffer

    def run(self) -> None:
        self.outputs[0].copyfrom(2 * self.buffer.numpy())
        self.streams.append(tvm_ffi.get_raw_stream(self.device))

    def exchange(self, stream: int, *memory: int) -> bool:
        if self.is_captured:
            return False
        given, given_bytes, result, result_bytes = memory
        ctypes.memmove(torch.from_dlpack(self.buffer).data_ptr(), given, given_bytes)
        self.outputs[0].copyfrom(2 * self.buffer.numpy())
        ctypes.memmove(result, torch.from_dlpack(self.outputs[0]).data_ptr(), result_bytes)
        self.streams.append(stream)
        return True


@pytest.fixture
def current(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Torch's current stream, to be set."""
    state = SimpleNamespace(raw=7)
    stream = SimpleNamespace(record_event=lambda: None, wait_event=lambda event: None)
    device = SimpleNamespace(__enter__=lambda self: None, __exit__=lambda *_: None)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    monkeypatch.setattr(
        torch._C, "_cuda_getCurrentRawStream", lambda index: state.raw, raising=False
    )
    monkeypatch.setattr(torch.cuda, "current_stream", lambda index: stream)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "device", lambda index: type("D", (), vars(device))())
    return state


@pytest.mark.parametrize("captured", [False, True])
def test_results_outlive_the_next_call(current: SimpleNamespace, captured: bool) -> None:
    session = Session()
    session.is_captured = captured
    run = GraphRunner(session, Turns(), NO_BATCH)
    x = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    (first,) = run([x])
    (second,) = run([x + 1])
    torch.testing.assert_close(first, 2 * x)
    torch.testing.assert_close(second, 2 * x + 2)


def test_inputs_in_place_are_not_copied(current: SimpleNamespace) -> None:
    run = GraphRunner(Session(), Turns(), NO_BATCH)
    run.inputs[0].fill_(3)
    (result,) = run(run.inputs)
    assert result.unique().tolist() == [6]


@pytest.mark.parametrize("captured", [False, True])
def test_fewer_rows_and_other_strides(current: SimpleNamespace, captured: bool) -> None:
    session = Session()
    session.is_captured = captured
    run = GraphRunner(session, Turns(), Batched((True,), (True,)))
    (result,) = run([torch.arange(3.0).reshape(3, 1).T], rows=1)
    assert result.tolist() == [[0, 2, 4]]
    minus = torch.imag(torch.complex(torch.zeros(2, 3), torch.ones(2, 3)).conj())
    assert minus.is_neg()
    (result,) = run([minus], rows=2)
    assert result.unique().tolist() == [-2]


def test_replays_follow_torchs_current_stream(current: SimpleNamespace) -> None:
    session = Session()
    run = GraphRunner(session, Turns(), NO_BATCH)
    before = tvm_ffi.get_raw_stream(session.device)
    for raw in (7, 9, 9, 7):
        current.raw = raw
        run([torch.zeros(2, 3)])
    assert session.streams[-4:] == [7, 9, 9, 7]
    assert tvm_ffi.get_raw_stream(session.device) == before
