"""Compiles kernels of ``codegen/hopper`` with nvcc into the cache of kernel libraries."""

from __future__ import annotations

import concurrent.futures
import hashlib
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from .... import paths
from ....errors import CompileFailed
from .. import sources
from ..cache import Entry, KernelCache
from ..compile import default_jobs
from ..toolkit import Toolkit, find_toolkit
from .kernels import HopperKernel

NVCC_TIMEOUT_S = 600

#: The code of wgmma, setmaxnreg and the copy engine exists for sm_90a alone. NDEBUG as elsewhere.
FLAGS = (
    "-gencode=arch=compute_90a,code=sm_90a",
    "-O3",
    "-DNDEBUG",
    "-std=c++17",
    "-Xcompiler=-fPIC,-fvisibility=hidden",
)


def source_dir() -> Path:
    return paths.codegen_dir() / "hopper"


def cache_key(kernel: HopperKernel, toolkit: Toolkit) -> str:
    """Hash of everything that the compiled bytes depend on."""
    headers = sources.closure(source_dir() / f"{kernel.family}_library.cuh")
    digest = hashlib.sha256()
    parts = ["hopper", kernel.source, toolkit.version, *FLAGS]
    parts += [path.name + "\n" + path.read_text() for path in headers]
    for part in parts:
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()


def compile_kernel(
    kernel: HopperKernel, *, cache: KernelCache | None = None, toolkit: Toolkit | None = None
) -> Entry:
    """The compiled library of one kernel (some 3 s), from the cache where it is there and whole.

    Raises LibraryMissing (no nvcc or CUDA runtime), CompileFailed, CacheUnwritable.
    """
    cache = cache or KernelCache()
    toolkit = toolkit or find_toolkit()
    key = cache_key(kernel, toolkit)
    if (entry := cache.get(key)) is not None:
        return entry
    cache.check_writable()
    with tempfile.TemporaryDirectory(prefix="convoy-nvcc-") as folder:
        library = Path(folder) / "kernel.so"
        compile_to(kernel, library, toolkit)
        about = {"name": kernel.name, "kernel": kernel.to_json(), "nvcc": toolkit.version}
        return cache.put(key, library.read_bytes(), about)


def compile_many(
    kernels: Iterable[HopperKernel], *, jobs: int | None = None
) -> dict[HopperKernel, Entry | CompileFailed]:
    """Compiles distinct kernels in parallel; one that fails has its error as its value.

    Raises LibraryMissing and CacheUnwritable, which concern all.
    """
    pending = sorted(set(kernels), key=lambda kernel: kernel.name)
    if not pending:
        return {}
    toolkit = find_toolkit()

    def one(kernel: HopperKernel) -> Entry | CompileFailed:
        try:
            return compile_kernel(kernel, toolkit=toolkit)
        except CompileFailed as error:
            return error

    with concurrent.futures.ThreadPoolExecutor(jobs or default_jobs(sm90=False)) as pool:
        return dict(zip(pending, pool.map(one, pending), strict=True))


def compile_to(
    kernel: HopperKernel, library: Path, toolkit: Toolkit, extra_flags: Iterable[str] = ()
) -> str:
    """Runs nvcc; returns its messages. ``extra_flags`` such as ``-Xptxas=-v``."""
    includes = [source_dir(), paths.include_dir(), *toolkit.includes]
    with tempfile.TemporaryDirectory(prefix="convoy-nvcc-") as folder:
        source = Path(folder) / f"{kernel.family}.cu"
        source.write_text(kernel.source)
        command = [str(toolkit.nvcc), *FLAGS, *extra_flags, *(f"-I{path}" for path in includes)]
        # Linked by path: the wheel has libcudart.so.13 but no libcudart.so.
        command += ["-shared", "-cudart=none", f"-Xlinker={toolkit.cudart}"]
        command += ["-o", str(library), str(source)]
        try:
            result = subprocess.run(
                command, capture_output=True, text=True, timeout=NVCC_TIMEOUT_S, check=False
            )
        except (subprocess.TimeoutExpired, OSError) as error:
            raise _failure(kernel, command, str(error)) from None
    words = result.stderr + result.stdout
    if result.returncode != 0 or not library.is_file():
        errors = [line for line in words.splitlines() if "error" in line.lower()]
        detail = "\n".join(errors[:8]) or words[-2000:] or f"exit status {result.returncode}"
        raise _failure(kernel, command, detail)
    return words


def _failure(kernel: HopperKernel, command: list[str], words: str) -> CompileFailed:
    return CompileFailed(
        f"an error from nvcc for kernel {kernel.name}:\n{words}\ncommand: {' '.join(command)}",
        "a kernel library",
    )
