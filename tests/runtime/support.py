"""Building the stand-ins for CUDA, cuDNN and a kernel library, and running code against them."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

from convoy.ir.workload import Workload

ROOT = Path(__file__).resolve().parents[2]
FAKES = Path(__file__).parent / "fakes"
PRELUDE = """
import ctypes, json, sys
sys.path[:0] = {path!r}
import numpy as np, tvm_ffi
from convoy import errors
from convoy.runtime import create_module, load_runtime
from convoy.runtime.library import call_json, function, locations
from convoy.ir.epilogue import Epilogue
from convoy.ir.workload import Workload
from support import *
cuda = ctypes.CDLL(locations()["cudart"], mode=ctypes.RTLD_GLOBAL)
cuda.fake_cuda_log.restype = ctypes.c_char_p
def log():
    return cuda.fake_cuda_log().decode().splitlines()
"""


def compile_fake(folder: Path, source: str, name: str = "", *flags: str) -> Path:
    """One of the stand-ins as a shared object in ``folder``."""
    target = folder / (name or f"{Path(source).stem}.so")
    command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-w", f"-I{ROOT}/codegen/include"]
    subprocess.run([*command, *flags, "-o", target, FAKES / source, "-ldl"], check=True)
    return target


def blobs_of(library: Path) -> dict[str, bytes]:
    """A library by the hash of its content, as modules carry it."""
    content = library.read_bytes()
    return {hashlib.sha256(content).hexdigest(): content}


def saved_and_loaded(module: Any) -> Any:
    """What is loaded from the bytes that a module is saved as."""
    import tvm_ffi

    from convoy.runtime.library import function

    load = tvm_ffi.get_global_func("ffi.Module.load_from_bytes.convoy")
    return load(function("module.save")(module))


class Fakes:
    """Paths of the compiled stand-ins."""

    def __init__(self, folder: Path) -> None:
        versions = folder / "cudart.map"  # TVM's CUDA runtime asks for versioned symbols
        versions.write_text("libcudart.so.13 { global: *; };")
        flags = (f"-Wl,--version-script={versions}", "-Wl,-soname,libcudart.so.13")
        self.cuda = compile_fake(folder, "fake_cuda.cc", "libcudart.so.13", *flags)
        (folder / "driver").mkdir()
        self.driver = compile_fake(folder, "fake_driver.cc", "driver/libcuda.so.1")
        self.cudnn = compile_fake(folder, "fake_cudnn.cc", "libcudnn.so.9")
        self.kernel = compile_fake(folder, "fake_kernel.cc")
        self.cublaslt = compile_fake(folder, "fake_cublaslt.cc", "libcublasLt.so.13")

    @functools.cached_property
    def blobs(self) -> dict[str, bytes]:
        return blobs_of(self.kernel)

    def run_tvm(self, code: str, **environment: str) -> Any:
        """The same with TVM's CUDA runtime, which launches its kernels through a stand-in for the
        driver: ``tvm`` is there and ``tvm.cuda(0)`` a device. Kernels are compiled to nothing."""
        search = os.pathsep.join([str(self.driver.parent), os.environ.get("LD_LIBRARY_PATH", "")])
        return self.run(
            "load_runtime()\nimport tvm\n"
            "tvm_ffi.register_global_func('tvm_callback_cuda_compile', "
            "lambda code, *more: b'cubin', override=True)\n" + textwrap.dedent(code),
            LD_LIBRARY_PATH=search,
            **environment,
        )

    def run(self, code: str, **environment: str) -> Any:
        """Run Python code in a process of its own in which CUDA and cuDNN are the stand-ins.

        The code's last act is ``result(value)``; the value comes back through JSON.
        """
        paths = [str(ROOT / "python"), str(Path(__file__).parent)]
        program = PRELUDE.format(path=paths) + textwrap.dedent(code)
        env = {
            **os.environ,
            "CONVOY_CUDART": str(self.cuda),
            "CONVOY_CUDNN": str(self.cudnn),
            "CONVOY_CUBLASLT": str(self.cublaslt),
            "FAKE_KERNEL": str(self.kernel),
            **environment,
        }
        done = subprocess.run(
            [sys.executable, "-c", program], env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, f"rc {done.returncode}\n{done.stdout}\n{done.stderr[-4000:]}"
        return json.loads(done.stdout.splitlines()[-1])


def result(value: Any) -> None:
    """Hand a value from code under ``Fakes.run`` back to the test."""
    print("\n" + json.dumps(value), flush=True)


def kernel_blobs() -> dict[str, bytes]:
    return blobs_of(Path(os.environ["FAKE_KERNEL"]))


def kernel_entry(
    workload: Workload, blobs: dict[str, bytes], symbol: str = "f", arch: int = 90, **more: Any
) -> dict[str, Any]:
    """Entry of the module specification for the fake kernel library."""
    return {
        "symbol": symbol,
        "backend": "kernel",
        "arch": arch,
        "workload": workload.to_json(),
        "library": next(iter(blobs)),
        **more,
    }


def cudnn_entry(workload: Workload, engine: int, symbol: str = "f", **more: Any) -> dict[str, Any]:
    return {
        "symbol": symbol,
        "backend": "cudnn",
        "arch": 90,
        "workload": workload.to_json(),
        "engine": engine,
        "knobs": [[2, 5]],
        "cudnn_version": 91900,
        **more,
    }


def small(op: str = "fprop", **changes: Any) -> Workload:
    """A small float32 workload."""
    fields: dict[str, Any] = {"op": op, "n": 2, "h": 5, "w": 6, "c": 4, "k": 8, "r": 3, "s": 3}
    fields |= {"padding": (1, 1, 1, 1), "dtype": "float32", "out_dtype": "float32"}
    return Workload(**{**fields, **changes})


def host_arrays(workload: Workload, seed: int = 0) -> list[np.ndarray]:
    """Random operands in call order on the host, outputs NaN."""
    rng = np.random.default_rng(seed)
    shapes = workload.operand_shapes()
    arrays = [aligned(shape) for _, shape, _ in shapes]
    for array in arrays[: len(shapes) - workload.num_outputs]:
        array[...] = rng.uniform(-1, 1, array.shape)
    return arrays


def aligned(shape: tuple[int, ...]) -> np.ndarray:
    """A float32 array of NaN at an address that is a multiple of 256."""
    size = int(np.prod(shape)) * 4
    raw = np.zeros(size + 256, np.uint8)
    start = -raw.ctypes.data % 256
    array = raw[start : start + size].view(np.float32).reshape(shape)
    array[...] = np.nan
    return array


def device_arrays(workload: Workload, seed: int = 0) -> list[Any]:
    """Random operands on the (fake) GPU."""
    import tvm_ffi

    from convoy.runtime.library import function

    tensors = []
    for array in host_arrays(workload, seed):
        tensor = function("cuda.empty")(array.shape, "float32", 0)
        function("cuda.copy")(tvm_ffi.from_dlpack(array), tensor)
        tensors.append(tensor)
    return tensors


def to_host(tensor: Any) -> np.ndarray:
    import tvm_ffi

    from convoy.runtime.library import function

    array = aligned(tuple(tensor.shape))
    function("cuda.copy")(tensor, tvm_ffi.from_dlpack(array))
    return array


class FakeStreams:
    """Streams and captures of the CUDA library of this process, through ctypes."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._cuda = library

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._cuda, name)(*arguments)
        assert code == 0, f"{name} returned {code}"

    def create(self) -> int:
        stream = ctypes.c_void_p()
        self._call("cudaStreamCreateWithFlags", ctypes.byref(stream), 1)
        return int(stream.value or 0)

    def use(self, stream: int) -> None:
        from convoy.runtime.library import function

        function("cuda.set_stream")(0, stream)

    def begin(self, stream: int, mode: int = 0) -> None:
        self._call("cudaStreamBeginCapture", ctypes.c_void_p(stream), mode)

    def end(self, stream: int) -> int:
        """Ends the capture; the handle of an executable graph."""
        graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cudaStreamEndCapture", ctypes.c_void_p(stream), ctypes.byref(graph))
        self._call("cudaGraphInstantiate", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
        self._call("cudaGraphDestroy", graph)
        return int(executable.value or 0)

    def launch(self, executable: int, stream: int = 0) -> None:
        self._call("cudaGraphLaunch", ctypes.c_void_p(executable), ctypes.c_void_p(stream))

    def destroy(self, executable: int) -> None:
        self._call("cudaGraphExecDestroy", ctypes.c_void_p(executable))

    def order(self, before: int, after: int) -> None:
        """What is enqueued on ``after`` from now on waits for what is on ``before``."""
        event = ctypes.c_void_p()
        self._call("cudaEventCreateWithFlags", ctypes.byref(event), 2)
        self._call("cudaEventRecord", event, ctypes.c_void_p(before))
        self._call("cudaStreamWaitEvent", ctypes.c_void_p(after), event, 0)
