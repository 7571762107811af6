"""Generate code of scheduled functions: the host's by LLVM, kernels by NVRTC in threads.

TVM compiles the kernels of a module as one program, on one core. Here they are dealt out to
programs of a few kernels each, which become imports of the host's module.
"""

from __future__ import annotations

import functools

import tvm
from tvm import tirx
from tvm.tirx.build import codegen_build, split_host_device_mods

from ..progress import step
from ..threads import in_threads, workers

#: Kernels of a program, at least (where cores are free) and at most. Reading its headers takes
#: about as long as compiling two of them.
FEWEST, MOST = 2, 8
#: The attribute of functions that are launched; others are called by them.
_LAUNCHED = "tirx.kernel_launch_params"


def build(
    functions: tvm.IRModule,
    target: tvm.target.Target,
    pipeline: str,
) -> tvm.runtime.Module:
    """Compile functions for a target, after TVM's pipeline of that name, into one module."""
    host = target.host or (target if target.kind.name == "llvm" else tvm.target.Target("llvm"))
    lower, finish_host, finish_device = tirx.get_tir_pipeline(pipeline)
    bound = tirx.transform.BindTarget(target.with_host(host))(functions)
    on_host, on_device = split_host_device_mods(lower(bound))
    library = codegen_build(finish_host()(on_host), host)
    for own, kernels in on_device.items():
        parts = programs(tirx.transform.SkipAssert()(finish_device()(kernels)))
        compiled = functools.partial(_compiled, own)
        for program in in_threads(compiled, parts, functools.partial(step, "NVRTC")):
            library.import_module(program)
    return library


def programs(kernels: tvm.IRModule) -> list[tvm.IRModule]:
    """Deal kernels out, neighbours apart: those of one operator take about the same time."""
    functions = kernels.functions_items()
    launched = [item for item in functions if _LAUNCHED in item[1].attrs]
    called = [item for item in functions if _LAUNCHED not in item[1].attrs]
    count = max(1, -(-len(launched) // MOST), min(workers(), len(launched) // FEWEST))
    return [
        tvm.IRModule(dict(called + launched[i::count]), attrs=kernels.attrs) for i in range(count)
    ]


def _compiled(target: tvm.target.Target, program: tvm.IRModule) -> tvm.runtime.Module:
    """The program as a module. TVM's part holds the GIL, NVRTC's does not."""
    compiler = tvm.get_global_func(f"target.build.{target.kind.name}")
    compiler.release_gil = False
    with target:  # of this thread
        return compiler(program, target)
