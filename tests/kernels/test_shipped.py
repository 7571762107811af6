"""Archives of compiled kernels: what is found in them, what is not, and that none is stale."""

from __future__ import annotations

import dataclasses
import hashlib
import zipfile

import pytest

from convoy.backends.kernels import shipped
from convoy.backends.kernels.cache import Entry
from convoy.backends.kernels.compile import compile_kernel, is_compiled
from convoy.backends.kernels.cutlass.config import KernelConfig
from convoy.backends.kernels.sources import code_key
from convoy.errors import CorruptArtefact

KERNEL = KernelConfig("sm90_conv", (128, 128, 64), schedule="cooperative")
OTHER = dataclasses.replace(KERNEL, activation="relu")


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "sm90a.zip"
    entry = Entry(b"library", hashlib.sha256(b"library").hexdigest(), {})
    shipped.pack(path, "release 13.0", {KERNEL: entry}, {KERNEL: "cutlass"})
    return path


@pytest.fixture
def only(archive, monkeypatch):
    monkeypatch.setattr(shipped, "archives", lambda: (shipped.Archive.open(archive),))


def test_found_by_its_code(archive):
    found = shipped.Archive.open(archive)
    assert found.toolkit == "release 13.0"
    assert found.read(code_key(KERNEL)).library == b"library"
    assert found.read(code_key(OTHER)) is None


def test_needs_no_compiler(only, monkeypatch):
    monkeypatch.setenv("CONVOY_NVCC", "/nowhere")
    assert is_compiled(KERNEL) and not is_compiled(OTHER)
    assert compile_kernel(KERNEL).library == b"library"


def test_equal_libraries_give_equal_archives(archive, tmp_path):
    again = tmp_path / "again.zip"
    entry = shipped.Archive.open(archive).read(code_key(KERNEL))
    shipped.pack(again, "release 13.0", {KERNEL: entry}, {KERNEL: "cutlass"})
    assert again.read_bytes() == archive.read_bytes()


def test_a_damaged_library_is_not_taken(archive):
    found = shipped.Archive.open(archive)
    (name,) = (n for n in zipfile.ZipFile(archive).namelist() if n != shipped.MANIFEST)
    with zipfile.ZipFile(archive, "w") as damaged:
        damaged.writestr(name, b"other")
    assert found.read(code_key(KERNEL)) is None


@pytest.mark.parametrize("content", [b"", b"no zip", None])
def test_what_is_no_archive_is_one_error(tmp_path, content):
    path = tmp_path / "x.zip"
    if content is None:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(shipped.MANIFEST, '{"format": 1}')
    else:
        path.write_bytes(content)
    with pytest.raises(CorruptArtefact, match=r"x\.zip"):
        shipped.Archive.open(path)


@pytest.mark.parametrize("archive", shipped.archives(), ids=lambda a: a.path.name)
def test_no_shipped_kernel_is_stale(archive):
    """Where this fails, sources have changed: run tuning/ship_kernels.py on a machine with nvcc."""
    kernels = shipped.kernels(archive)
    assert not shipped.stale(archive, kernels)
    assert len(kernels) == len(archive.entries) > 100
    assert all(archive.read(key) is not None for key in list(archive.entries)[:5])
