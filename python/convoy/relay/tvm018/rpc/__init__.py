"""`tvm.rpc`: the session on this machine; others are those of the installed TVM."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tvm

from convoy.errors import InvalidOption
from convoy.relay.tvm018.modules import forward
from convoy.relay.tvm018.runtime import load_module


class LocalSession:
    """Run on this machine what a script uploads to a device."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="convoy-rpc-")

    def _path(self, name: str) -> Path:
        return Path(self._folder.name) / Path(name).name

    def upload(self, data: str | bytes | bytearray, target: str | None = None) -> None:
        """Keep a file, or the bytes of one.

        Args:
            data: The path of the file, or its content.
            target: The name to keep it under; needed for bytes.
        """
        if isinstance(data, (bytes, bytearray)):
            if target is None:
                raise InvalidOption("bytes without a name", "upload(data, target)")
            self._path(target).write_bytes(data)
        else:
            shutil.copy(data, self._path(target or data))

    def download(self, path: str) -> bytearray:
        """Return the bytes of a file that was uploaded."""
        return bytearray(self._path(path).read_bytes())

    def remove(self, path: str) -> None:
        """Remove a file that was uploaded."""
        self._path(path).unlink(missing_ok=True)

    def load_module(self, path: str) -> Any:
        """Load a module that was uploaded."""
        return load_module(self._path(path))

    def device(self, dev_type: str, dev_id: int = 0) -> Any:
        """Return a device of this machine."""
        return tvm.device(dev_type, dev_id)

    def cpu(self, dev_id: int = 0) -> Any:
        """Return the CPU."""
        return tvm.cpu(dev_id)

    def cuda(self, dev_id: int = 0) -> Any:
        """Return a GPU."""
        return tvm.cuda(dev_id)

    gpu = cuda


__getattr__ = forward("tvm.rpc")
