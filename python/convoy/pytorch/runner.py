"""Running a session on torch tensors: on the host without copies, on a GPU by graph replay."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..runtime.session import Session

Tensors = Sequence[torch.Tensor]
#: Kernels read vectors of this many bytes, so inputs begin at a multiple of it.
ALIGNMENT = 64


@dataclass
class Turns:
    """Whose turn it is among runners that share memory: one thread at a time, and on a GPU each
    stream behind the last one."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    stream: Any = None

    #: Handle of the stream, which is alive.
    raw: int = -1

    def follow(self, index: int) -> int:
        """Order what comes on torch's current stream of this GPU behind what the last one was
        given; returns the stream's handle."""
        raw: int = torch._C._cuda_getCurrentRawStream(index)  # an object for it takes 2 us
        if raw != self.raw:
            stream = torch.cuda.current_stream(index)
            if self.stream is not None and not torch.cuda.is_current_stream_capturing():
                stream.wait_event(self.stream.record_event())
            self.stream, self.raw = stream, raw
        return raw


@dataclass(frozen=True)
class Batched:
    """Which inputs and results have the batch as their first dimension."""

    inputs: tuple[bool, ...]
    results: tuple[bool, ...]


class Runner:
    """A session as a function from tensors to tensors, in any thread.

    Inputs must have the session's shapes, dtypes and device; of batched ones there may be fewer
    ``rows``, which are padded with zeros.
    """

    def __init__(self, session: Session, turns: Turns, batched: Batched) -> None:
        self._function: Callable[..., Any] = session.function
        self._shapes = [info.shape for info in session.meta.inputs]
        self._turns, self._batched = turns, batched
        self._gpu = session.device.index if session.meta.target == "cuda" else None
        #: Positions of the results that are copied; None until the first call shows which.
        self._copied: Sequence[int] | None = None

    def __call__(self, inputs: Tensors, rows: int | None = None) -> Tensors:
        if rows is not None:
            pairs = zip(inputs, self._shapes, self._batched.inputs, strict=True)
            inputs = [_padded(x, shape) if batched else x for x, shape, batched in pairs]
        with self._turns.lock:
            if self._gpu is not None:
                self._turns.follow(self._gpu)
            given = [*map(_aligned, inputs)]
            results = self._results(given)
            if self._copied is None:
                self._copied = _not_new(results, self._results(given))
        for i in self._copied:
            results[i] = results[i].clone()
        if rows is None:
            return results
        return _cut(results, self._batched.results, rows)

    def _results(self, given: Tensors) -> list[torch.Tensor]:
        results = self._function(*given)
        if isinstance(results, torch.Tensor):
            return [results]
        if not given:  # without any tensor among the arguments the results are TVM's
            return [torch.from_dlpack(tensor) for tensor in results]
        return list(results)


def _not_new(results: Tensors, again: Tensors) -> list[int]:
    """The results that two calls have in the same memory, of an input or a constant, and those that
    are in the memory of an earlier result: a caller may write to each."""
    places = [result.data_ptr() for result in results]
    return [
        i
        for i, other in enumerate(again)
        if other.data_ptr() == places[i] or places[i] in places[:i]
    ]


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself where kernels can read it in place, otherwise a copy."""
    tensor = _plain(tensor)
    address = tensor.data_ptr()
    if address and address % ALIGNMENT == 0:
        return tensor
    return tensor.clone() if address else _empty(tensor)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself where its memory is its elements in order, otherwise a copy."""
    if tensor.is_contiguous() and not tensor.is_neg():
        return tensor
    return tensor.contiguous().resolve_neg()


def _empty(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor without elements, with the strides that kernels check: zero before an empty axis,
    where PyTorch has one."""
    shape = tensor.shape
    return tensor.as_strided(shape, [math.prod(shape[axis + 1 :]) for axis in range(len(shape))])


def _cut(tensors: Tensors, batched: Sequence[bool], rows: int) -> Tensors:
    return [t[:rows] if of_batch else t for t, of_batch in zip(tensors, batched, strict=True)]


def _padded(tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    padded = tensor.new_zeros(shape)
    padded[: len(tensor)] = tensor
    return padded


class GraphRunner:
    """A session for a GPU that replays a captured graph on torch's current stream.

    A replay reads and writes fixed addresses. Inputs are therefore copied on the device into the
    session's own tensors, unless they are those (:attr:`inputs`), and results out of them. Rows
    that a smaller batch leaves over keep what was in them.
    """

    def __init__(self, session: Session, turns: Turns, batched: Batched) -> None:
        import tvm_ffi

        self._session, self._turns, self._batched = session, turns, batched
        self._device, self._on_stream = session.device, tvm_ffi.use_raw_stream
        self._index: int = session.device.index
        self.inputs = [torch.from_dlpack(session.input(i)) for i in range(len(session.meta.inputs))]
        # A thread captures what it has called; a captured graph is replayed by any thread.
        with torch.cuda.device(self._index), turns.lock:
            raw = turns.follow(self._index)
            for _ in range(2):
                self._outputs = self._run(raw)

    def __call__(self, inputs: Tensors, rows: int | None = None) -> Tensors:
        if torch._C._cuda_getDevice() != self._index:
            with torch.cuda.device(self._index):
                return self(inputs, rows)
        with self._turns.lock:
            raw = self._turns.follow(self._index)
            outputs = self._outputs
            if rows is not None:
                outputs = _cut(outputs, self._batched.results, rows)
            given = [_plain(tensor) for tensor in inputs]
            results = [torch.empty_like(output) for output in outputs]
            memory = [n for one in (*given, *results) for n in (one.data_ptr(), one.nbytes)]
            if not self._session.exchange(raw, *memory):
                self._exchange(given, results, rows, raw)
            return results

    def _exchange(self, given: Tensors, results: Tensors, rows: int | None, raw: int) -> None:
        """Do what the session's exchange does while the stream is captured."""
        buffers: Tensors = self.inputs
        if rows is not None:
            buffers = _cut(buffers, self._batched.inputs, rows)
        for buffer, tensor in zip(buffers, given, strict=True):
            buffer.copy_(tensor)
        outputs = self._run(raw)
        if rows is not None:
            outputs = _cut(outputs, self._batched.results, rows)
        for result, output in zip(results, outputs, strict=True):
            result.copy_(output)

    def _run(self, raw: int) -> Tensors:
        """Run the session on a stream; returns its output tensors, as torch's."""
        with self._on_stream(self._device, raw):
            self._session.run()
        return [torch.from_dlpack(output) for output in self._session.outputs]
