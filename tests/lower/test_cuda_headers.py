"""Headers for NVRTC from a toolkit or from NVIDIA's wheels."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from convoy.lower import cuda_headers

VARIABLES = ("CUDA_PATH", "TVM_CUDA_NVRTC_EXTRA_OPTS")


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of wheels on a machine without toolkit."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "nvidia wheels"
    with_headers(folder / "cu13/include")
    monkeypatch.setattr(cuda_headers, "nvidia_wheels", lambda: [folder])
    monkeypatch.setattr(cuda_headers, "find_cuda_path", _find)
    cuda_headers._variables.cache_clear()
    return folder / "cu13"


def with_headers(folder: Path) -> None:
    (folder / "cccl").mkdir(parents=True)
    (folder / "cuda_runtime.h").touch()


def _find() -> str:
    if found := os.environ.get("CUDA_PATH"):
        return found
    raise RuntimeError("Cannot find CUDA path")


def seen() -> list[str | None]:
    return [os.environ.get(name) for name in VARIABLES]


def test_without_toolkit(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVM_CUDA_NVRTC_EXTRA_OPTS", "--ftz=false")
    with cuda_headers.visible():
        root, options = seen()
        assert root == str(wheels)
        assert shlex.split(options or "") == ["--ftz=false", f"-I{wheels}/include/cccl"]
    assert seen() == [None, "--ftz=false"]


def test_wheels_as_cuda_path(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_PATH", str(wheels))
    with pytest.raises(KeyError), cuda_headers.visible():
        assert shlex.split(seen()[1] or "") == [f"-I{wheels}/include/cccl"]
        raise KeyError
    assert seen() == [str(wheels), None]


def test_a_toolkit_needs_nothing(
    wheels: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with_headers(tmp_path / "cuda/targets/x86_64-linux/include")
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "cuda"))
    with cuda_headers.visible():
        assert seen() == [str(tmp_path / "cuda"), None]


def test_nvcc_that_is_a_script_elsewhere(
    wheels: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """TVM takes the folder above the script's for a toolkit."""
    (tmp_path / "usr/include").mkdir(parents=True)
    monkeypatch.setattr(cuda_headers, "find_cuda_path", lambda: str(tmp_path / "usr"))
    with cuda_headers.visible():
        assert seen()[0] == str(wheels)


def test_nothing_is_found(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TVM's own error follows."""
    monkeypatch.setattr(cuda_headers, "nvidia_wheels", list)
    with cuda_headers.visible():
        assert seen() == [None, None]
