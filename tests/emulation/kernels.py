"""CUDA that TVM generates, compiled for the host with ``cuda.h`` beside this file."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import tirx

from convoy.backends.kernels.toolkit import Toolkit, find_toolkit
from convoy.errors import LibraryMissing
from convoy.lower import codegen
from convoy.lower.compile import build_kernels

_HERE = Path(__file__).parent
_HOOKS = ("target.build.cuda", "tvm_callback_cuda_compile")
_PROGRAMMATIC = re.compile(r'asm volatile\("griddepcontrol\.\w+;"[^;]*;')
_DYNAMIC_SHARED = re.compile(r"extern __shared__[^;]*\b(\w+)\[\];")
_HEADER = "precompiled.h"
_MEETS = re.compile(r"__sync|__shfl")

#: Read by cuda.h at each launch.
_BACKWARDS = "CONVOY_EMULATE_BACKWARDS"
#: Launch parameters of a kernel, in the order in which they follow its arguments.
Tags = Sequence[str]


@contextlib.contextmanager
def emulated() -> Iterator[None]:
    """Have TVM compile CUDA for the host, where its kernels then take tensors of the CPU.

    Skips the test without CUDA's headers.
    """
    _precompiled()
    build, compile_ptx = map(tvm_ffi.get_global_func, _HOOKS)

    def compile_module(mod: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Module:
        launches = {
            str(func.attrs["global_symbol"]): list(
                map(str, func.attrs["tirx.kernel_launch_params"])
            )
            for _, func in mod.functions_items()
        }
        return compile_source(build(mod, target).inspect_source(), launches)

    register = functools.partial(tvm_ffi.register_global_func, override=True)
    register(_HOOKS[0], compile_module)
    register(_HOOKS[1], lambda *_: b"//")  # nvcc is not needed for the source
    if tvm_ffi.get_global_func("device_api.cuda", allow_missing=True) is None:
        register("device_api.cuda", device)
    whole = 1 << 16  # kernels of a program: here each one costs a run of g++
    try:
        with mock.patch.multiple(codegen, FEWEST=whole, MOST=whole):
            yield
    finally:
        register(_HOOKS[0], build)
        register(_HOOKS[1], compile_ptx)


@contextlib.contextmanager
def turns(backwards: bool) -> Iterator[None]:
    """Have blocks and threads take turns in the order of their numbers, or ``backwards``: a kernel
    whose result depends on it lacks a barrier, or writes what another block writes."""
    with mock.patch.dict(os.environ, {_BACKWARDS: "1"} if backwards else {}):
        yield


def emulate(
    func: tirx.PrimFunc, target: tvm.target.Target, *arrays: np.ndarray, backwards: bool = False
) -> list[np.ndarray]:
    """Arrays behind a run of a scheduled kernel on copies of them."""
    return call(compile_kernels({"kernel": func}, target)["kernel"], *arrays, backwards=backwards)


def compile_kernels(
    functions: Mapping[str, tirx.PrimFunc], target: tvm.target.Target
) -> tvm.runtime.Module:
    """Compile scheduled kernels by name. Many take little longer than one: most of the time goes
    into CUDA's headers."""
    named = {name: func.with_attr("global_symbol", name) for name, func in functions.items()}
    with emulated():
        return build_kernels(tvm.IRModule(named), target)


def call(
    kernel: Callable[..., object], *arrays: np.ndarray, backwards: bool = False
) -> list[np.ndarray]:
    """Arrays behind a call of a kernel with copies of them."""
    tensors = [tvm.runtime.tensor(np.asarray(array, order="C")) for array in arrays]
    with turns(backwards):
        kernel(*tensors)
    return [tensor.numpy() for tensor in tensors]


def compile_source(source: str, launches: Mapping[str, Tags]) -> tvm.runtime.Module:
    """Compile kernels of a CUDA source into functions as those of TVM's CUDA modules."""
    source = _PROGRAMMATIC.sub("", source)
    source = _DYNAMIC_SHARED.sub(r"auto* \1 = emulator::dynamic_shared;", source)
    entries = "\n".join(_entry(name, tags, source) for name, tags in launches.items())
    with tempfile.TemporaryDirectory(prefix="convoy-emulation-") as folder:
        path = Path(folder) / "kernels.cc"
        path.write_text(f'#include "{_HEADER}"\n{source}{entries}')
        return tvm_ffi.load_module(str(_library(path, Path(folder))))


@functools.cache
def device() -> ctypes.c_void_p:
    """Return what TVM knows as its CUDA device, for the workspaces of functions."""
    with tempfile.TemporaryDirectory(prefix="convoy-emulation-") as folder:
        library = ctypes.CDLL(str(_library(_HERE / "device.cc", Path(folder))))
    library.emulated_device.restype = ctypes.c_void_p
    return ctypes.c_void_p(library.emulated_device())


def _library(source: Path, folder: Path) -> Path:
    """Compile a C++ source that may include the headers of CUDA and TVM."""
    library, headers = folder / "library.so", _precompiled()
    _compile(f"-I{headers.name}", "-shared", "-o", str(library), str(source))
    return library


@functools.cache
def _precompiled() -> tempfile.TemporaryDirectory[str]:
    """Compile ``cuda.h`` once: CUDA's headers take longer than most kernels."""
    folder = tempfile.TemporaryDirectory(prefix="convoy-emulation-")
    header = Path(folder.name, _HEADER)
    header.write_text('#include "cuda.h"\n')
    _compile("-x", "c++-header", "-o", f"{header}.gch", str(header))
    return folder


def _compile(*arguments: str) -> None:
    cuda = toolkit()
    major, minor = re.findall(r"\d+", cuda.version)[:2]
    includes = [
        *(_HERE, _HERE.parent / "helpers", *cuda.includes, cuda.cudart.parents[1] / "include"),
        *(Path(tvm.__file__).parent / "include", *tvm_ffi.libinfo.include_paths()),
    ]
    command = [
        *("g++", "-std=c++17", "-O1", "-fPIC", "-w", "-fno-gnu-unique", "-fno-strict-aliasing"),
        # As nvcc has it: sources ask for its version.
        *("-D__NVCC__", f"-D__CUDACC_VER_MAJOR__={major}", f"-D__CUDACC_VER_MINOR__={minor}"),
        *arguments,
        *(f"-I{path}" for path in includes),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:4000]


def _entry(name: str, tags: Tags, source: str) -> str:
    """What TVM calls: the kernel's arguments and launch parameters, unpacked."""
    start = source.rindex(f" {name}(")
    body = source[start : source.index("\n}\n", start)]
    sizes = [
        tags.index(tag) if (tag := f"{index}.{axis}") in tags else -1
        for index in ("blockIdx", "threadIdx")
        for axis in "xyz"
    ]
    meets = str(_MEETS.search(body) is not None).lower()
    return f"""
extern "C" int __tvm_ffi_{name}(void*, const TVMFFIAny* args, int32_t count, TVMFFIAny*) {{
  return emulator::call({name}, args, {{{", ".join(map(str, sizes))}}}, {meets});
}}
"""


@functools.cache
def toolkit() -> Toolkit:
    try:
        return find_toolkit()
    except LibraryMissing as missing:
        pytest.skip(f"no CUDA headers: {missing.got}")
