"""Scheduled GPU kernels run on the CPU: thread loops become ordinary loops.

Schedule primitives keep the meaning of the loop nest read one iteration after the other, so a
kernel whose thread loops are made serial and whose memory scopes are dropped must compute the same
values. (Synchronization and vector instructions are not tested by this; the GPU tests do that.)
"""

from __future__ import annotations

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx

from convoy.tir.keep_nan import selected


def serialize(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func`` with thread-bound loops made serial, all buffers in plain memory, and maxima that
    are CUDA C++ as comparisons."""

    def loop(node: tirx.For) -> tirx.For:
        if node.kind != tirx.ForKind.THREAD_BINDING:
            return node
        return tirx.For(node.loop_var, node.min, node.extent, tirx.ForKind.SERIAL, node.body)

    def call(node: tvm.ir.Call) -> tvm.ir.Call | tirx.Select:
        if getattr(node.op, "name", "") != "tirx.cuda.func_call":
            return node
        function, a, b, _ = node.args
        return selected("max" if "_max_" in function.value else "min", a, b)

    return func.with_body(
        tvm_ffi.structural_map(func.body, [(tirx.For, loop), (tvm.ir.Call, call)])
    )


def run_serial(func: tirx.PrimFunc, inputs: list[np.ndarray], out: np.ndarray) -> np.ndarray:
    """Result of a scheduled kernel with one output, computed on the CPU."""
    plain = serialize(func).without_attr("tirx.is_scheduled")
    lib = tvm.compile(tvm.IRModule({"main": plain.with_attr("global_symbol", "main")}), "llvm")
    result = tvm.runtime.tensor(np.full_like(out, 77))
    lib["main"](*[tvm.runtime.tensor(i) for i in inputs], result)
    return result.numpy()
