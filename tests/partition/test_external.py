"""A rewritten graph is linked with an external module and survives export and reload."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax import op

from convoy.lower.executable import lower
from convoy.normalize.normal_form import normalize
from convoy.partition.rewrite import rewrite
from convoy.partition.subgraphs import find_subgraphs

from ..graph.nets import to_numpy


@pytest.fixture(scope="module")
def add_module(tmp_path_factory):
    """Factory of the C++ module in external.cc: (symbol, offset) -> module."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    library = tmp_path_factory.mktemp("external") / "libexternal.so"
    include = [tvm_ffi.libinfo.find_include_path(), tvm_ffi.libinfo.find_dlpack_include_path()]
    ffi = tvm_ffi.libinfo.find_libtvm_ffi()
    subprocess.run(
        [
            compiler, "-std=c++17", "-O1", "-shared", "-fPIC",
            str(Path(__file__).with_name("external.cc")), *[f"-I{path}" for path in include],
            "-o", str(library), ffi, f"-Wl,-rpath,{Path(ffi).parent}",
        ],
        check=True,
    )  # fmt: skip
    tvm_ffi.load_module(str(library), keep_module_alive=True)
    return tvm_ffi.get_global_func("convoy_test.add_module")


def product(n=4):
    """relu(x w + b): the stand-in replaces the bare product by x + w + offset."""
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((n, n), "float32"))
    w = relax.const(np.arange(n * n, dtype="float32").reshape(n, n))
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit(op.matmul(x, w))
            y = bb.emit_output(bb.emit(op.nn.relu(y)))
        bb.emit_func_output(y)
    return bb.get()


def test_external_module_is_linked_and_exported(add_module, tmp_path):
    mod = normalize(product(), dtype="float32")
    subgraph = find_subgraphs(mod)[-1]
    assert subgraph.workload.epilogue.name == ""
    rewritten = rewrite(mod, {subgraph.id: "convoy_0"}, add_module("convoy_0", 7))
    executable = lower(rewritten, "llvm")
    path = tmp_path / "net.so"
    executable.export_library(str(path))
    weights = np.arange(16, dtype="float32").reshape(4, 4).T
    for exe in (executable, tvm.runtime.load_module(str(path))):
        vm = relax.VirtualMachine(exe, tvm.cpu())
        for seed in range(2):
            x = np.random.default_rng(seed).standard_normal((4, 4)).astype("float32") - 10
            (got,) = to_numpy(vm["main"](tvm.runtime.tensor(x)))
            np.testing.assert_allclose(got, np.maximum(x + weights + 7, 0), rtol=1e-6)


def test_modules_add_up(add_module):
    """A second rewrite keeps the module that the first attached."""
    mod = normalize(product(), dtype="float32")
    subgraph = find_subgraphs(mod)[-1]
    mod = mod.with_attr("external_mods", [add_module("another", 0)])
    rewritten = rewrite(mod, {subgraph.id: "convoy_0"}, add_module("convoy_0", 1))
    assert len(rewritten.attrs["external_mods"]) == 2


def test_missing_symbol_is_reported_when_the_machine_starts():
    mod = normalize(product(), dtype="float32")
    subgraph = find_subgraphs(mod)[-1]
    executable = lower(rewrite(mod, {subgraph.id: "convoy_nowhere"}), "llvm")
    with pytest.raises(Exception, match="convoy_nowhere"):
        relax.VirtualMachine(executable, tvm.cpu())
