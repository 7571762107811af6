"""A session in a child process that is restarted after a fault.

After an illegal access or a hang a process cannot use its GPU any more. A server keeps running when
the process that fails is another one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection, Pipe
from typing import TYPE_CHECKING

import numpy as np

from .. import errors
from ..child_process import START_TIMEOUT_S, python_module
from ..errors import ConvoyError, GpuLost
from .values import host_value

if TYPE_CHECKING:
    import tvm

    from .values import Value


class IsolatedSession:
    """Run an exported module in a child process. Not thread-safe.

    A GPU fault, a crash or a timeout ends the child and raises GpuLost; the next call starts a new
    one. Other errors (a wrong shape, OutOfMemory) leave it running.

    Args:
        path: File written by ``CompiledModule.export_library``.
        device: Index of the GPU.
        timeout: Seconds after which a call without an answer fails.
        trusted: As in :func:`convoy.load`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        device: int = 0,
        timeout: float = 60.0,
        trusted: Sequence[str | os.PathLike[str]] | None = None,
    ) -> None:
        self._path, self._device, self._timeout = os.fspath(path), device, timeout
        self._trusted = None if trusted is None else [os.fspath(key) for key in trusted]
        self._child: tuple[subprocess.Popen[bytes], Connection] | None = None
        #: Children started until now.
        self.starts = 0
        self._start()

    def __call__(self, *inputs: Value) -> list[np.ndarray]:
        """Run once with all inputs in order and return the outputs, like ``Session``.

        Raises:
            GpuLost: The child failed; the next call starts a new one.
            ConvoyError: The errors of ``convoy.load`` and of calling a session.
        """
        if self._child is None:
            self._start()
        return self._ask(list(map(host_value, inputs)), self._timeout)

    @property
    def pid(self) -> int | None:
        """Process id of the child; None after a fault until the next call."""
        return self._child[0].pid if self._child else None

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            process, connection = self._child
            self._child = None
            connection.close()
            process.kill()
            process.wait()

    def __enter__(self) -> IsolatedSession:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_child", None) is not None:
            self.close()

    def _start(self) -> None:
        ours, theirs = Pipe()
        command = python_module("convoy.runtime.isolated", str(theirs.fileno()))
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        theirs.close()
        self._child = process, ours
        self.starts += 1
        try:
            self._ask([self._path, self._device, self._trusted], START_TIMEOUT_S)
        except ConvoyError:
            self.close()
            raise

    def _ask(self, message: list[object], timeout: float) -> list[np.ndarray]:
        assert self._child is not None
        process, connection = self._child
        try:
            connection.send(message)
            if not connection.poll(timeout):
                reason = f"no answer in {timeout:g} s"
            else:
                answer = connection.recv()
                if not isinstance(answer, tuple):
                    return list(answer)
                reason = self._raise_unless_lost(*answer)
        except (OSError, EOFError):
            process.wait()
            code = process.returncode
            ended = signal.Signals(-code).name if code < 0 else f"exit status {code}"
            reason = f"its process ended by {ended}"
        self.close()
        raise GpuLost(
            f"a session that failed ({reason})", "an answer", "Call it again: it is made anew."
        )

    def _raise_unless_lost(self, kind: str, got: str, expected: str, remedy: str) -> str:
        """Raise the child's error; return the message of an error that ends the child."""
        if kind == "GpuLost":
            return got
        raise getattr(errors, kind, ConvoyError)(got, expected, remedy)


def _serve(descriptor: int) -> None:
    """The child: load a module, then answer inputs with outputs until the parent is gone."""
    import convoy

    connection, session = Connection(descriptor), None
    while True:
        try:
            message = connection.recv()
        except EOFError:
            return
        try:
            if session is None:
                path, device, trusted = message
                module = convoy.load(path, trusted=trusted)
                session = module.session(_device(module.meta.target, device))
                connection.send([])
            else:
                connection.send(session(*message))
        except ConvoyError as error:
            connection.send((type(error).__name__, error.got, error.expected, error.remedy))
        except Exception as error:
            connection.send(("ConvoyError", f"{type(error).__name__}: {error}", "", ""))


def _device(target: str, index: int) -> tvm.runtime.Device:
    import tvm

    return tvm.cuda(index) if target == "cuda" else tvm.cpu()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
