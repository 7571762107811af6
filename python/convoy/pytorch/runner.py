"""Running a session on torch tensors: on the host without copies, on a GPU by graph replay."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..runtime.session import Session

Tensors = Sequence[torch.Tensor]
#: Kernels read vectors of this many bytes, so inputs begin at a multiple of it.
ALIGNMENT = 64


class Runner:
    """A session as a function from tensors to tensors, in any thread, one at a time.

    Inputs must have the session's shapes, dtypes and device.
    """

    def __init__(self, session: Session) -> None:
        self._function: Callable[..., Any] = session.function
        self._lock = threading.Lock()

    def __call__(self, inputs: Tensors) -> Tensors:
        with self._lock:
            result = self._function(*map(compact, inputs))
        if isinstance(result, torch.Tensor):
            return (result,)
        # Without any tensor among the arguments the results are TVM's.
        return result if inputs else [torch.from_dlpack(tensor) for tensor in result]


def compact(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself where kernels can read it in place, otherwise a copy."""
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone()


class GraphRunner:
    """A session for a GPU that replays a captured graph on torch's current stream.

    A replay reads and writes fixed addresses. Inputs are therefore copied on the device into the
    session's own tensors, unless they are those (:attr:`inputs`), and results are cloned.
    """

    def __init__(self, session: Session, index: int) -> None:
        self._session, self._index = session, index
        self.inputs = tuple(
            torch.from_dlpack(session.input(i)) for i in range(len(session.meta.inputs))
        )
        self._addresses = [(buffer, buffer.data_ptr()) for buffer in self.inputs]
        self._outputs: tuple[Any, Tensors] = (None, ())  # of the session, and as torch's
        self._stream: torch.cuda.Stream | None = None
        self._lock = threading.Lock()

    def __call__(self, inputs: Tensors) -> Tensors:
        import tvm_ffi

        stream = torch.cuda.current_stream(self._index)
        with self._lock:
            if stream != self._stream:
                self._follow(stream)
            for (buffer, address), given in zip(self._addresses, inputs, strict=True):
                if given.data_ptr() != address:
                    buffer.copy_(given, non_blocking=True)
            with tvm_ffi.use_raw_stream(self._session.device, stream.cuda_stream):
                self._session.run()
            return [result.clone() for result in self._results()]

    def _follow(self, stream: torch.cuda.Stream) -> None:
        """Order this stream behind the work of the last one, which uses the same tensors."""
        if self._stream is not None and not torch.cuda.is_current_stream_capturing():
            stream.wait_event(self._stream.record_event())
        self._stream = stream

    def _results(self) -> Tensors:
        """The session's output tensors, as torch's; the list is another one only after a run that
        was not a replay of the same graph."""
        outputs = self._session.outputs
        if self._outputs[0] is not outputs:
            self._outputs = (outputs, [torch.from_dlpack(output) for output in outputs])
        return self._outputs[1]
