"""Kernels whose results a CUDA compiler gets wrong, because they read what they write.

TVM declares all pointers of a kernel ``__restrict__``. CUDA's compilers then make one load of
constant memory of a choice between an element of a result and one of an input, and move it in front
of the stores to the result: ``m[i] = p[j] < m[i] ? m[i] : p[j]`` loses values (CUDA 13.0, nvcc and
NVRTC; right without ``__restrict__`` and without optimisation). A maximum with its place that is
kept in device memory is such a kernel; kept in registers it is none.
"""

from __future__ import annotations

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import Call, TensorLoad

from .loads import is_select


def chooses_from_results(body: tirx.Stmt) -> bool:
    """Return whether a kernel chooses between values one of which it loads from a tensor in device
    memory that it stores to."""
    return any(map(_chooses, _kernels(body)))


def _chooses(kernel: tirx.Stmt) -> bool:
    stored: set[tirx.Var] = set()
    chosen: set[tirx.Var] = set()

    def store(node: tirx.BufferStore) -> None:
        stored.add(node.buffer)

    def select(node: tirx.Select) -> None:
        collect(node.true_value)
        collect(node.false_value)

    def call(node: Call) -> None:
        if is_select(node):
            collect(node.args[1])
            collect(node.args[2])

    def collect(value: tirx.Expr) -> None:
        tvm_ffi.structural_walk(value, [(TensorLoad, lambda load: chosen.add(load.source))])

    tvm_ffi.structural_walk(
        kernel, [(tirx.BufferStore, store), (tirx.Select, select), (Call, call)]
    )
    return any(buffer.scope() == "global" for buffer in stored & chosen)


def _kernels(body: tirx.Stmt) -> list[tirx.Stmt]:
    """Return the outermost statements of a function, each of which becomes a kernel."""
    if isinstance(body, s_tir.SBlockRealize):
        return _kernels(body.block.body)
    if isinstance(body, tirx.SeqStmt):
        return [kernel for part in body.seq for kernel in _kernels(part)]
    return [body]
