"""Compile kernels with nvcc into the cache: one, or many at once."""

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
from ...errors import CompileFailed, InvalidOption, LibraryMissing
from ...threads import in_threads
from . import shipped, sources
from .cache import Entry, KernelCache
from .kernel import K, Kernel
from .toolkit import Toolkit, find_toolkit

NVCC_TIMEOUT_S = 1800

#: Called after each kernel: how many are done, of how many, which one, seconds (0 from the cache).
Progress = Callable[[int, int, Kernel, float], None]


def cache_key(kernel: Kernel, toolkit: Toolkit) -> str:
    """Hash of everything that the compiled bytes depend on."""
    parts = [sources.code_key(kernel), toolkit.version]
    parts += [toolkit.cutlass_version] if kernel.uses_cutlass else []
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def compile_kernel(
    kernel: Kernel, *, cache: KernelCache | None = None, toolkit: Toolkit | None = None
) -> Entry:
    """Return the compiled library of one kernel: shipped with the package, from the cache, or
    compiled now. With a ``toolkit`` it is compiled by that compiler, not taken from the package.

    Raises LibraryMissing (no nvcc, CUTLASS or CUDA runtime), CompileFailed, CacheUnwritable.
    """
    if toolkit is None and (entry := shipped.find(kernel)) is not None:
        return entry
    cache = cache or KernelCache()
    toolkit = toolkit or find_toolkit()
    key = cache_key(kernel, toolkit)
    if (entry := cache.get(key)) is not None:
        return entry
    cache.check_writable()
    with cache.being_built(key, NVCC_TIMEOUT_S):
        if (entry := cache.get(key)) is not None:
            return entry  # another process was first
        started = time.monotonic()
        about: dict[str, object] = {
            "name": kernel.name,
            "kernel": kernel.to_json(),
            "nvcc": toolkit.version,
            **({"cutlass": toolkit.cutlass_version} if kernel.uses_cutlass else {}),
        }
        with tempfile.TemporaryDirectory(prefix="convoy-nvcc-") as folder:
            library = Path(folder) / "kernel.so"
            compile_to(kernel, library, toolkit)
            about["seconds"] = round(time.monotonic() - started, 1)
            return cache.put(key, library.read_bytes(), about)


def is_compiled(kernel: Kernel) -> bool:
    """Return whether :func:`compile_kernel` would need no compiler."""
    if shipped.has(kernel):
        return True
    try:
        return cache_key(kernel, find_toolkit()) in KernelCache()
    except LibraryMissing:
        return False


def compile_many(
    kernels: Iterable[K],
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
    cache: KernelCache | None = None,
    toolkit: Toolkit | None = None,
) -> dict[K, Entry | CompileFailed]:
    """Compile distinct kernels in parallel, those that take most memory (and time) first.

    ``jobs`` defaults to :func:`default_jobs`. A kernel that fails has its error as its value and
    does not stop the others. Raises LibraryMissing and CacheUnwritable, which concern all.
    """
    done: dict[K, Entry | CompileFailed] = {}
    if toolkit is None:
        kernels = sorted(set(kernels), key=lambda k: k.name)
        found = zip(kernels, in_threads(shipped.find, kernels), strict=True)
        done.update({kernel: entry for kernel, entry in found if entry is not None})
    pending = sorted(set(kernels) - done.keys(), key=lambda k: (-k.build_bytes, k.name))
    if not pending:
        return done
    came = len(done)
    cache = cache or KernelCache()
    toolkit = toolkit or find_toolkit()
    jobs = jobs or default_jobs(max(kernel.build_bytes for kernel in pending))

    def one(kernel: K) -> tuple[Entry | CompileFailed, float]:
        started = time.monotonic()
        try:
            return compile_kernel(kernel, cache=cache, toolkit=toolkit), time.monotonic() - started
        except CompileFailed as error:
            return error, time.monotonic() - started

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(one, kernel): kernel for kernel in pending}
        try:
            for future in concurrent.futures.as_completed(futures):
                kernel = futures[future]
                done[kernel], seconds = future.result()
                if progress:
                    progress(len(done) - came, len(pending), kernel, seconds)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return done


def default_jobs(build_bytes: int = 5 << 30) -> int:
    """Builds to run at once: CONVOY_BUILD_JOBS, otherwise as many as cores and memory allow when
    each takes ``build_bytes``, by default those of CUTLASS's largest kernels."""
    if text := os.environ.get("CONVOY_BUILD_JOBS"):
        if not text.isdigit() or int(text) < 1:
            raise InvalidOption(f"CONVOY_BUILD_JOBS={text}", "a positive number")
        return int(text)
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores, _free_memory() // build_bytes))


def _free_memory() -> int:
    """Bytes that may still be allocated: the machine's, or less if a cgroup limits them."""
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


def compile_to(
    kernel: Kernel, library: Path, toolkit: Toolkit, extra_flags: Iterable[str] = ()
) -> str:
    """Run nvcc; returns its messages. ``extra_flags`` such as ``-Xptxas=-v``."""
    with tempfile.TemporaryDirectory(prefix="convoy-nvcc-") as folder:
        source = Path(folder) / f"{sources.header(kernel).stem}.cu"
        source.write_text(kernel.source)
        command = _command(kernel, toolkit, [*extra_flags, "-o", str(library), str(source)])
        try:
            result = subprocess.run(
                command, capture_output=True, text=True, timeout=NVCC_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise _failure(kernel, command, f"no result after {NVCC_TIMEOUT_S} s") from None
        except OSError as error:
            raise _failure(kernel, command, str(error)) from None
    messages = result.stderr + result.stdout
    if result.returncode != 0 or not library.is_file() or library.stat().st_size == 0:
        errors = _first_errors(messages.splitlines(), result.returncode)
        raise _failure(kernel, command, "\n".join(errors))
    return messages


def _command(kernel: Kernel, toolkit: Toolkit, rest: list[str]) -> list[str]:
    includes = [sources.header(kernel).parent, paths.include_dir()]
    if kernel.uses_cutlass:
        includes += [toolkit.cutlass / "include", toolkit.cutlass / "tools/util/include"]
    command = [str(toolkit.nvcc), *kernel.flags, *sources.FLAGS]
    command += [f"-I{path}" for path in (*includes, *toolkit.includes)]
    # Linked by path: the wheel has libcudart.so.13 but no libcudart.so.
    command += ["-shared", "-cudart=none", f"-Xlinker={toolkit.cudart}"]
    return [*command, f"-Xlinker=--version-script={sources.exports()}", *rest]


def _first_errors(lines: list[str], returncode: int) -> list[str]:
    errors = [line for line in lines if "error" in line.lower() or "fatal" in line.lower()]
    chosen = errors or [line for line in lines if line.strip()]
    return chosen[:8] or [f"no output, exit status {returncode}"]


def _failure(kernel: Kernel, command: list[str], words: str) -> CompileFailed:
    return CompileFailed(
        f"an error from nvcc for kernel {kernel.name}:\n{words}\ncommand: {' '.join(command)}",
        "a kernel library",
        "If nvcc was killed, lower CONVOY_BUILD_JOBS (an sm90 kernel takes up to 5 GB)",
    )
