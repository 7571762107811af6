"""Finding nvcc: the right one, or an error that says what was found instead."""

from __future__ import annotations

import stat

import pytest

from convoy.backends.kernels import toolkit as finding
from convoy.backends.kernels.toolkit import find_toolkit
from convoy.errors import LibraryMissing


def make_nvcc(root, release="release 13.0, V13.0.88", headers="13000"):
    """A toolkit folder whose nvcc answers --version and --dryrun."""
    for folder in ("bin", "include/cccl", "lib64"):
        (root / folder).mkdir(parents=True)
    nvcc = root / "bin/nvcc"
    nvcc.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo "Cuda compilation tools, {release}"\n'
        f'echo "#$ TOP={root}/bin/.." >&2\n'
    )
    nvcc.chmod(nvcc.stat().st_mode | stat.S_IXUSR)
    (root / "include/cuda_runtime.h").write_text("")
    (root / "include/cuda_runtime_api.h").write_text(f"#define CUDART_VERSION  {headers}\n")
    (root / "lib64/libcudart.so.13").write_text("")
    return nvcc


@pytest.fixture(autouse=True)
def only_what_the_test_offers(monkeypatch, tmp_path):
    for name in ("CONVOY_NVCC", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(finding.paths, "nvidia_wheels", list)
    monkeypatch.setattr(finding, "_find_cutlass", lambda: (tmp_path, "4.2.0.0"))
    finding._find.cache_clear()
    yield
    finding._find.cache_clear()


def test_explicit_choice(monkeypatch, tmp_path):
    nvcc = make_nvcc(tmp_path / "cuda")
    monkeypatch.setenv("CONVOY_NVCC", str(nvcc))
    found = find_toolkit()
    assert found.nvcc == nvcc
    assert found.version == "release 13.0, V13.0.88"
    assert found.cudart == tmp_path / "cuda/lib64/libcudart.so.13"
    assert found.includes == (tmp_path / "cuda/include/cccl",)


def test_behind_a_script(monkeypatch, tmp_path):
    nvcc = make_nvcc(tmp_path / "cuda")
    (tmp_path / "nvcc").write_text(f'#!/bin/sh\nexec {nvcc} "$@"\n')
    (tmp_path / "nvcc").chmod(0o755)
    monkeypatch.setenv("CONVOY_NVCC", str(tmp_path / "nvcc"))
    assert find_toolkit().cudart == tmp_path / "cuda/lib64/libcudart.so.13"


def test_old_nvcc_is_named(monkeypatch, tmp_path):
    nvcc = make_nvcc(tmp_path / "cuda", release="release 12.9, V12.9.86")
    monkeypatch.setenv("CONVOY_NVCC", str(nvcc))
    with pytest.raises(LibraryMissing, match=r"release 12\.9.*expected the compiler of CUDA 13"):
        find_toolkit()


def test_headers_of_another_version_are_named(monkeypatch, tmp_path):
    nvcc = make_nvcc(tmp_path / "cuda", headers="13050")
    monkeypatch.setenv("CONVOY_NVCC", str(nvcc))
    with pytest.raises(LibraryMissing, match=r"headers .* are of 13\.5"):
        find_toolkit()


def test_next_one_is_taken_when_the_first_does_not_run(monkeypatch, tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "nvcc").write_text("not a program")
    (broken / "nvcc").chmod(0o755)
    good = make_nvcc(tmp_path / "cuda")
    monkeypatch.setenv("PATH", f"{broken}:/usr/bin:/bin")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    assert find_toolkit().nvcc == good


def test_no_nvcc(monkeypatch, tmp_path):
    monkeypatch.setenv("CONVOY_NVCC", str(tmp_path / "nowhere/nvcc"))
    with pytest.raises(LibraryMissing, match=r"pip install .*\[nvcc\]"):
        find_toolkit()


def test_no_runtime_library(monkeypatch, tmp_path):
    nvcc = make_nvcc(tmp_path / "cuda")
    (tmp_path / "cuda/lib64/libcudart.so.13").unlink()
    monkeypatch.setenv("CONVOY_NVCC", str(nvcc))
    with pytest.raises(LibraryMissing, match=r"no libcudart\.so\.13"):
        find_toolkit()
