"""Programmatic dependent launch of the kernels that TVM generates.

A kernel lets its successor start at once, and waits for its predecessor before it accesses memory.
Its operands may be written while it is already running. They must therefore not be loaded through
the read-only cache, which may hold stale data of the same address.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import tirx
from tvm.backend.cuda.op import cuda_func_call
from tvm.tirx import compilation_pipeline

from .. import programmatic

#: The passes over a module, over its host functions and over its device functions.
Pipeline = tuple[
    tvm.transform.Pass, Callable[[], tvm.transform.Pass], Callable[[], tvm.transform.Pass]
]
_PIPELINE = "convoy.programmatic"
#: Among the launch parameters of a kernel: it is launched with the attribute.
_TAG = "tirx.use_programtic_dependent_launch"
_DYNAMIC_SHARED = "tirx.use_dyn_shared_memory"
_WAIT = "convoy_wait"
#: The empty statements make the compiler assume that the wait writes to the parameters' memory.
_WAIT_SOURCE = """
template <class T>
__forceinline__ __device__ void convoy_written(T* pointer) {
  asm volatile("" : : "l"(pointer) : "memory");
}
template <class... Ts>
__forceinline__ __device__ void convoy_wait(Ts*... pointers) {
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" : : : "memory");
  (convoy_written(pointers), ...);
}
"""


def pipeline(target: tvm.target.Target) -> str:
    """TVM's pipeline for a target: with programmatic launches where the GPU has them (sm_90) and
    they are wanted."""
    arch = str(target.attrs.get("arch", "")) if target.kind.name == "cuda" else ""
    number = arch.removeprefix("sm_").rstrip("af")
    if not number.isdigit() or not programmatic.available(int(number)):
        return "default"
    compilation_pipeline.register_tir_pipeline(_PIPELINE, _programmatic_pipeline)
    return _PIPELINE


def _programmatic_pipeline() -> Pipeline:
    lower, finish_host, finish_device = compilation_pipeline.get_tir_pipeline("default")
    early = tirx.transform.prim_func_pass(_start_early, opt_level=0)
    return lower, finish_host, lambda: tvm.transform.Sequential([early, finish_device()])


def _start_early(
    func: tirx.PrimFunc, mod: tvm.IRModule, context: tvm.transform.PassContext
) -> tirx.PrimFunc:
    """Launch a kernel with the attribute; runs after SplitHostDevice."""
    tags = [str(tag) for tag in func.attrs["tirx.kernel_launch_params"]]
    last = tags[-1:] == [_DYNAMIC_SHARED]  # must remain last
    tags.insert(len(tags) - last, _TAG)
    pointers = [p for p in func.params if isinstance(p.ty, tvm.ir.PointerType)]
    wait = cuda_func_call(_WAIT, *pointers, source_code=_WAIT_SOURCE, return_type="void")
    func = func.with_body(tirx.SeqStmt([tirx.Evaluate(wait), func.body]))
    return func.with_attr("tirx.kernel_launch_params", tags)
