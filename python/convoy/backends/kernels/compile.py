"""Compiles kernels with nvcc into the cache: one, or many at once."""

from __future__ import annotations

import concurrent.futures
import hashlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from ... import paths
from ...errors import CompileFailed, ConvoyError, InvalidOption
from . import sources
from .cache import Entry, KernelCache
from .emit import emit
from .kernel import KernelConfig
from .toolkit import Toolkit, find_toolkit

#: Peak memory of one nvcc run in bytes (measured: sm80 0.6 GB, sm90 3.1 to 4.6 GB).
MEMORY_OF_A_BUILD = {True: 5 << 30, False: 1 << 30}
NVCC_TIMEOUT_S = 1800

#: Called after each kernel: how many are done, of how many, which one, seconds (0 from the cache).
Progress = Callable[[int, int, KernelConfig, float], None]


def flags(config: KernelConfig) -> list[str]:
    """Compiler flags that decide the code of a kernel.

    NDEBUG is not optional: device-side asserts make ptxas serialise the tensor core pipeline.
    """
    arch = "90a" if config.arch == 90 else str(config.arch)
    return [
        f"-gencode=arch=compute_{arch},code=sm_{arch}",
        "-O3",
        "-DNDEBUG",
        "-std=c++17",
        "--expt-relaxed-constexpr",
        "-Xcompiler=-fPIC,-fvisibility=hidden",
    ]


def source_files(config: KernelConfig) -> list[Path]:
    """The files besides CUTLASS's and CUDA's that a kernel is made of."""
    folder = paths.codegen_dir() / "cutlass"
    return [*sources.closure(folder / f"{config.family}.cuh"), folder / "exports.map"]


def cache_key(config: KernelConfig, toolkit: Toolkit) -> str:
    """Hash of everything that the compiled bytes depend on."""
    digest = hashlib.sha256()
    parts = [emit(config), toolkit.version, toolkit.cutlass_version, *flags(config)]
    parts += [path.name + "\n" + path.read_text() for path in source_files(config)]
    for part in parts:
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()


def compile_kernel(
    config: KernelConfig, *, cache: KernelCache | None = None, toolkit: Toolkit | None = None
) -> Entry:
    """The compiled library of one kernel, from the cache where it is there and whole.

    Raises LibraryMissing (no nvcc, CUTLASS or CUDA runtime), CompileFailed, CacheUnwritable.
    """
    cache = cache or KernelCache()
    toolkit = toolkit or find_toolkit()
    key = cache_key(config, toolkit)
    if (entry := cache.get(key)) is not None:
        return entry
    cache.check_writable()
    with cache.being_built(key, NVCC_TIMEOUT_S):
        if (entry := cache.get(key)) is not None:
            return entry  # another process was first
        started = time.monotonic()
        library = _run_nvcc(config, toolkit)
        about = {
            "name": config.name,
            "kernel": config.to_json(),
            "nvcc": toolkit.version,
            "cutlass": toolkit.cutlass_version,
            "seconds": round(time.monotonic() - started, 1),
        }
        return cache.put(key, library, about)


def compile_many(
    configs: Iterable[KernelConfig],
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
    cache: KernelCache | None = None,
    toolkit: Toolkit | None = None,
) -> dict[KernelConfig, Entry | ConvoyError]:
    """Compiles distinct kernels in parallel, the slow sm90 ones first.

    ``jobs`` defaults to :func:`default_jobs`. A kernel that fails has its error as its value and
    does not stop the others. Raises LibraryMissing and CacheUnwritable, which concern all.
    """
    cache = cache or KernelCache()
    toolkit = toolkit or find_toolkit()
    pending = sorted(set(configs), key=lambda c: (not c.is_sm90, c.name))
    if not pending:
        return {}
    jobs = jobs or default_jobs(any(c.is_sm90 for c in pending))
    done: dict[KernelConfig, Entry | ConvoyError] = {}

    def one(config: KernelConfig) -> tuple[Entry | ConvoyError, float]:
        started = time.monotonic()
        try:
            return compile_kernel(config, cache=cache, toolkit=toolkit), time.monotonic() - started
        except CompileFailed as error:
            return error, time.monotonic() - started

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(one, config): config for config in pending}
        try:
            for future in concurrent.futures.as_completed(futures):
                config = futures[future]
                done[config], seconds = future.result()
                if progress:
                    progress(len(done), len(pending), config, seconds)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return done


def default_jobs(sm90: bool) -> int:
    """Builds to run at once: CONVOY_BUILD_JOBS, otherwise as many as cores and memory allow."""
    if text := os.environ.get("CONVOY_BUILD_JOBS"):
        if not text.isdigit() or int(text) < 1:
            raise InvalidOption(f"CONVOY_BUILD_JOBS={text}", "a positive number")
        return int(text)
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores, _free_memory() // MEMORY_OF_A_BUILD[sm90]))


def _free_memory() -> int:
    """Bytes that may still be allocated: the machine's, or less where a cgroup limits them."""
    free = 4 << 30
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) * 1024
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        if limit != "max":
            free = min(free, int(limit) - used)
    except (OSError, ValueError):
        pass
    return free


def _run_nvcc(config: KernelConfig, toolkit: Toolkit) -> bytes:
    with tempfile.TemporaryDirectory(prefix="convoy-nvcc-") as folder:
        source, library = Path(folder) / f"{config.family}.cu", Path(folder) / "kernel.so"
        source.write_text(emit(config))
        own = paths.codegen_dir() / "cutlass"
        includes = [own, paths.include_dir(), toolkit.cutlass / "include"]
        includes += [toolkit.cutlass / "tools/util/include", *toolkit.includes]
        command = [str(toolkit.nvcc), *flags(config), *(f"-I{path}" for path in includes)]
        # Linked by path: the wheel has libcudart.so.13 but no libcudart.so.
        command += ["-shared", "-cudart=none", f"-Xlinker={toolkit.cudart}"]
        command += [f"-Xlinker=--version-script={own / 'exports.map'}"]
        command += ["-o", str(library), str(source)]
        try:
            result = subprocess.run(
                command, capture_output=True, text=True, timeout=NVCC_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise _failure(config, command, f"no result after {NVCC_TIMEOUT_S} s") from None
        except OSError as error:
            raise _failure(config, command, str(error)) from None
        if result.returncode != 0 or not library.is_file() or library.stat().st_size == 0:
            words = (result.stderr + result.stdout).splitlines()
            raise _failure(config, command, "\n".join(_first_errors(words, result.returncode)))
        return library.read_bytes()


def _first_errors(lines: list[str], returncode: int, limit: int = 8) -> list[str]:
    errors = [line for line in lines if "error" in line.lower() or "fatal" in line.lower()]
    chosen = errors or [line for line in lines if line.strip()]
    return chosen[:limit] or [f"no output, exit status {returncode}"]


def _failure(config: KernelConfig, command: list[str], words: str) -> CompileFailed:
    return CompileFailed(
        f"an error from nvcc for kernel {config.name}:\n{words}\ncommand: {' '.join(command)}",
        "a kernel library",
        "If nvcc was killed, lower CONVOY_BUILD_JOBS (an sm90 kernel takes up to 5 GB)",
    )
