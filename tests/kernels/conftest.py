"""A stand-in for nvcc, so that cache and error handling are tested without a CUDA toolkit."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path

import pytest

from convoy.backends.kernels.cache import KernelCache
from convoy.backends.kernels.toolkit import Toolkit

SCRIPT = """\
#!/bin/sh
echo run >> "{log}"
for last; do :; done
if grep -q Silu "$last"; then
  echo "In file included from somewhere" >&2
  echo "{{$last}}(3): error: no such thing" >&2
  exit 2
fi
while [ "$1" != "-o" ]; do shift; done
cat "$last" > "$2"
"""


@dataclass
class FakeNvcc:
    toolkit: Toolkit
    log: Path

    @property
    def runs(self) -> int:
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


@pytest.fixture
def nvcc(tmp_path: Path) -> FakeNvcc:
    """Writes the source as the library; fails on silu kernels; counts its runs."""
    script, log = tmp_path / "nvcc", tmp_path / "runs"
    script.write_text(SCRIPT.format(log=log))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return FakeNvcc(
        Toolkit(script, "release 13.0", (), Path("libcudart.so.13"), tmp_path, "4.2.0.0"), log
    )


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    return KernelCache(tmp_path / "kernels")
