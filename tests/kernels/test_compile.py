"""Compiling into the cache, with a script in place of nvcc."""

from __future__ import annotations

import dataclasses
import errno
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from convoy.backends.kernels import compile as compiling
from convoy.backends.kernels import sources
from convoy.backends.kernels.cache import KernelCache
from convoy.backends.kernels.compile import cache_key, compile_kernel, compile_many, default_jobs
from convoy.backends.kernels.cutlass.config import KernelConfig
from convoy.errors import CacheUnwritable, CompileFailed, InvalidOption

CONFIG = KernelConfig("sm90_conv", (64, 64, 64), schedule="pingpong")
OTHER = dataclasses.replace(CONFIG, activation="relu")
BROKEN = dataclasses.replace(CONFIG, activation="silu")


def test_second_time_comes_from_the_cache(nvcc, cache):
    first = compile_kernel(CONFIG, cache=cache, toolkit=nvcc.toolkit)
    second = compile_kernel(CONFIG, cache=cache, toolkit=nvcc.toolkit)
    assert nvcc.runs == 1
    assert first.sha256 == second.sha256
    assert b"Sm90Conv" in second.library
    assert second.about["kernel"] == CONFIG.to_json()


def test_who_wants_the_same_kernel_waits_for_the_first(nvcc, cache):
    """Threads stand for processes: a lock on a file is as strange to one as to the other."""
    slow = nvcc.toolkit.nvcc.read_text().replace("echo run", "sleep 0.3\necho run")
    nvcc.toolkit.nvcc.write_text(slow)

    def build(_):
        own = KernelCache(cache.folder)
        return compile_kernel(CONFIG, cache=own, toolkit=nvcc.toolkit).sha256

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(build, range(4)))) == 1
    assert nvcc.runs == 1
    assert not list(cache.folder.glob(".*"))


def test_without_locks_each_builds_for_itself(nvcc, cache, monkeypatch):
    def unsupported(*args, **options):
        raise NotImplementedError

    monkeypatch.setattr("filelock.FileLock.acquire", unsupported)
    assert compile_kernel(CONFIG, cache=cache, toolkit=nvcc.toolkit).library
    assert nvcc.runs == 1


def test_truncated_library_is_built_again(nvcc, cache):
    entry = compile_kernel(CONFIG, cache=cache, toolkit=nvcc.toolkit)
    entry.path.write_bytes(entry.library[:10])
    again = compile_kernel(CONFIG, cache=cache, toolkit=nvcc.toolkit)
    assert nvcc.runs == 2
    assert again.sha256 == entry.sha256
    assert len(again.library) > 10


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"sha256": 3}'])
def test_damaged_description_is_built_again(nvcc, cache, damage):
    compile_kernel(CONFIG, cache=cache, toolkit=nvcc.toolkit)
    (description,) = cache.folder.glob("*.json")
    description.write_text(damage)
    compile_kernel(CONFIG, cache=cache, toolkit=nvcc.toolkit)
    assert nvcc.runs == 2


def test_error_carries_command_and_the_compilers_words(nvcc, cache):
    with pytest.raises(CompileFailed) as caught:
        compile_kernel(BROKEN, cache=cache, toolkit=nvcc.toolkit)
    words = str(caught.value)
    assert "error: no such thing" in words
    assert "In file included" not in words
    assert "-DNDEBUG" in words and str(nvcc.toolkit.nvcc) in words
    assert not list(cache.folder.glob("*.so"))


def test_nvcc_that_cannot_be_started(nvcc, cache, tmp_path):
    toolkit = dataclasses.replace(nvcc.toolkit, nvcc=tmp_path / "nowhere")
    with pytest.raises(CompileFailed, match="nowhere"):
        compile_kernel(CONFIG, cache=cache, toolkit=toolkit)


def test_many_at_once_and_one_fails(nvcc, cache):
    seen = []
    results = compile_many(
        [CONFIG, OTHER, BROKEN, CONFIG],
        jobs=3,
        cache=cache,
        toolkit=nvcc.toolkit,
        progress=lambda done, total, config, seconds: seen.append((done, total, config)),
    )
    assert results.keys() == {CONFIG, OTHER, BROKEN}
    assert isinstance(results[BROKEN], CompileFailed)
    assert b"kRelu" in results[OTHER].library
    assert [(done, total) for done, total, _ in seen] == [(1, 3), (2, 3), (3, 3)]


def test_nothing_to_compile(nvcc, cache):
    assert compile_many([], cache=cache, toolkit=nvcc.toolkit) == {}


def test_folder_that_cannot_be_made(nvcc, tmp_path):
    (tmp_path / "file").write_text("")
    cache = compiling.KernelCache(tmp_path / "file" / "kernels")
    with pytest.raises(CacheUnwritable, match="CONVOY_CACHE_DIR"):
        compile_kernel(CONFIG, cache=cache, toolkit=nvcc.toolkit)
    assert nvcc.runs == 0, "found out before compiling"


def test_full_disk(nvcc, cache, monkeypatch):
    def full(source, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(CacheUnwritable, match="No space left"):
        compile_kernel(CONFIG, cache=cache, toolkit=nvcc.toolkit)
    assert not list(cache.folder.glob(".*")), "no half-written file stays behind"


def test_key_depends_on_everything_that_decides_the_code(nvcc, tmp_path, monkeypatch):
    base = cache_key(CONFIG, nvcc.toolkit)
    assert base == cache_key(CONFIG, nvcc.toolkit)
    keys = {
        base,
        cache_key(OTHER, nvcc.toolkit),
        cache_key(CONFIG, dataclasses.replace(nvcc.toolkit, version="release 13.1")),
        cache_key(CONFIG, dataclasses.replace(nvcc.toolkit, cutlass_version="4.3")),
    }
    monkeypatch.setattr(compiling.sources, "FLAGS", ("-O1",))
    keys.add(cache_key(CONFIG, nvcc.toolkit))
    monkeypatch.undo()
    monkeypatch.setattr(compiling.sources, "_code_once", lambda header: "other code")
    keys.add(cache_key(CONFIG, nvcc.toolkit))
    monkeypatch.undo()
    (tmp_path / "exports.map").write_text("{ local: *; };")
    monkeypatch.setattr(compiling.sources, "exports", lambda: tmp_path / "exports.map")
    keys.add(cache_key(CONFIG, nvcc.toolkit))
    assert len(keys) == 7


def test_all_that_a_kernel_includes_is_hashed():
    code = sources.code(sources.header(CONFIG))
    assert "class Sm90Conv" in code or "struct Sm90Conv" in code
    macros = ("EXPORT_KERNEL", "KERNEL_ABI_VERSION", "API")  # abi.cuh, kernel_abi.h, kernel_library
    assert all(f"# define CONVOY_{name} " in code for name in macros)


def test_jobs(monkeypatch):
    monkeypatch.delenv("CONVOY_BUILD_JOBS", raising=False)
    monkeypatch.setattr(compiling, "_free_memory", lambda: 11 << 30)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    assert default_jobs(5 << 30) == 2
    assert default_jobs(1 << 30) == 11
    monkeypatch.setattr(compiling, "_free_memory", lambda: 0)
    assert default_jobs(5 << 30) == 1
    monkeypatch.setenv("CONVOY_BUILD_JOBS", "7")
    assert default_jobs(5 << 30) == 7
    monkeypatch.setenv("CONVOY_BUILD_JOBS", "many")
    with pytest.raises(InvalidOption, match="CONVOY_BUILD_JOBS"):
        default_jobs(5 << 30)
