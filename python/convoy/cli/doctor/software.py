"""Python, TVM, convoy's own library, records and cache."""

from __future__ import annotations

import collections
import platform
import shutil
import sys
import tempfile
import warnings

from ... import paths
from ...errors import ConvoyError
from ...records.store import RecordStore
from .check import Check, ProbeDied, ask

LEAST_FREE_BYTES = 1 << 30

_TVM = """
import json, tvm
print(json.dumps(tvm.__version__))
"""
_RUNTIME = """
import json, sys, tvm_ffi
module = tvm_ffi.load_module(sys.argv[1])
print(json.dumps("loads"))
"""
# TVM drops the reason why its CUDA library does not load, so the probe loads it once more.
_TVM_CUDA = """
import ctypes, json, pathlib
for name in ("convoy.runtime",):
    try:
        __import__(name)
    except Exception:
        pass
import tvm.base
reason = ""
if "tvm_runtime_cuda" not in tvm.base._LOADED_LIBS:
    folder = pathlib.Path(tvm.base._LOADED_LIBS["tvm_runtime"]._name).resolve().parent
    try:
        ctypes.CDLL(str(folder / "libtvm_runtime_cuda.so"))
        reason = "it loads now, but did not when TVM was imported"
    except OSError as err:
        reason = str(err)
print(json.dumps(reason))
"""


def python() -> Check:
    version = platform.python_version()
    detail = f"{version} at {sys.executable}"
    if not (3, 10) <= sys.version_info[:2] < (3, 14):
        return Check("Python", "problem", detail, "use Python 3.10 to 3.13")
    return Check("Python", "found", detail)


def tvm() -> Check:
    remedy = 'pip install "apache-tvm==0.27.*"'
    try:
        version = str(ask(_TVM))
    except ProbeDied as err:
        status = "missing" if "No module named 'tvm'" in str(err) else "problem"
        return Check("TVM", status, str(err), remedy)  # type: ignore[arg-type]
    if not version.startswith("0.27."):
        return Check("TVM", "problem", f"{version}, 0.27 is needed", remedy)
    return Check("TVM", "found", version)


def tvm_cuda() -> Check:
    """TVM's CUDA runtime is a library that may fail to load without a message."""
    try:
        reason = str(ask(_TVM_CUDA))
    except ProbeDied as err:
        reason = str(err)
    if not reason:
        return Check("TVM's CUDA runtime", "found", "loaded", need="gpu")
    if "libcudart" in reason:
        remedy = 'pip install "nvidia-cuda-runtime>=13,<14"'
    elif "libcuda.so" in reason:
        remedy = "install the NVIDIA driver"
    else:
        remedy = "see the detail"
    return Check("TVM's CUDA runtime", "missing", reason, remedy, need="gpu")


def runtime_library() -> Check:
    """The C++ library that every compiled module needs at run time."""
    remedy = paths.install_command()
    try:
        path = paths.runtime_library()
        ask(_RUNTIME, str(path))
    except ConvoyError as err:
        return Check("convoy runtime library", "missing", err.got, remedy)
    except ProbeDied as err:
        return Check("convoy runtime library", "problem", f"{path}: {err}", remedy)
    return Check("convoy runtime library", "found", str(path))


def records() -> Check:
    """Shipped and own measurements: without any, nothing can be placed without a GPU."""
    store = RecordStore.default()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            by_gpu = collections.Counter(record.environment.gpu for record in store)
    except ConvoyError as err:
        return Check("records", "problem", err.got, err.remedy)
    if not by_gpu:
        where = f"{paths.records_dir()} and {paths.user_records_file()}"
        remedy = "run `convoy place MODEL` on a machine with a GPU, which measures"
        return Check("records", "missing", f"none in {where}", remedy, need="advice")
    counts = ", ".join(f"{gpu} {count}" for gpu, count in by_gpu.most_common())
    detail = f"{counts} in {len(store.files)} files"
    if store.skipped:
        detail += f"; {len(store.skipped)} lines unreadable, the first: {store.skipped[0]}"
        remedy = f"convoy records prune {store.skipped[0].path}"
        return Check("records", "problem", detail, remedy, need="advice")
    return Check("records", "found", detail)


def cache() -> Check:
    """Compiled kernels and own records go here."""
    folder = paths.cache_dir()
    remedy = "set CONVOY_CACHE_DIR to a writable folder with a gigabyte to spare"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as stream:
            stream.write(b"x")
        free = shutil.disk_usage(folder).free
    except OSError as err:
        return Check("cache folder", "problem", f"{folder}: {err.strerror or err}", remedy)
    detail = f"{folder}, {free / 1e9:.1f} GB free"
    if free < LEAST_FREE_BYTES:
        return Check("cache folder", "problem", detail, remedy)
    return Check("cache folder", "found", detail)
