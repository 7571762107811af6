"""Generate code of scheduled functions in threads: the host's by LLVM, kernels by NVRTC.

TVM lowers and compiles a module as a whole, on one core. Here functions are lowered one by one, and
kernels are dealt out to programs of a few each, which become imports of the host's module.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import tvm
import tvm_ffi
from tvm import tirx
from tvm.tirx.build import codegen_build, split_host_device_mods

from ..progress import step
from ..threads import in_threads, workers

#: Kernels of a program, at least (where cores are free) and at most. Reading its headers takes
#: about as long as compiling two of them.
FEWEST, MOST = 2, 8
#: The attribute of functions that are launched; others are called by them.
_LAUNCHED = "tirx.kernel_launch_params"
#: TVM appends this to the name of a function for its kernels, and a number where that is taken.
_KERNEL = "_kernel"
#: The host's functions, and kernels by their target.
_Lowered = tuple[tvm.IRModule, dict[tvm.target.Target, tvm.IRModule]]


def build(
    functions: tvm.IRModule,
    target: tvm.target.Target,
    pipeline: str,
) -> tvm.runtime.Module:
    """Compile functions for a target, after TVM's pipeline of that name, into one module."""
    host = target.host or (target if target.kind.name == "llvm" else tvm.target.Target("llvm"))
    bound = tirx.transform.BindTarget(target.with_host(host))(functions)
    context = tvm.transform.PassContext.current()  # of this thread

    def lowered(part: tvm.IRModule) -> _Lowered:
        with target, context:
            return _lowered(part, pipeline)

    def compiled(job: tuple[tvm.IRModule, tvm.target.Target]) -> tvm.runtime.Module:
        with target, context:
            return _compiled(*job)

    parts = in_threads(lowered, portions(bound), functools.partial(step, "lower"))
    jobs = [(_joined([of_host for of_host, _ in parts]), host)]
    of_device = [item for _, found in parts for item in found.items()]
    for name, own in {str(own): own for own, _ in of_device}.items():  # equal ones differ in hash
        kernels = _joined([mod for at, mod in of_device if str(at) == name])
        jobs += [(program, own) for program in programs(kernels)]
    library, *imports = in_threads(compiled, jobs, functools.partial(step, "LLVM, NVRTC"))
    for program in imports:
        library.import_module(program)
    return library


def portions(functions: tvm.IRModule) -> list[tvm.IRModule]:
    """Deal functions out to modules of one each; those with many parameters, which take longest,
    come first. All stay together where one calls another, or where TVM might have to number kernels
    to tell them apart."""
    items = functions.functions_items()
    called: list[tvm.ir.GlobalVar] = []
    for _, func in items:
        tvm_ffi.structural_walk(func.body, [(tvm.ir.GlobalVar, called.append)])
    if called or not items or any(_KERNEL in var.name_hint for var, _ in items):
        return [functions]
    items.sort(key=lambda item: len(item[1].params), reverse=True)
    return [tvm.IRModule({var: func}, attrs=functions.attrs) for var, func in items]


def programs(kernels: tvm.IRModule) -> list[tvm.IRModule]:
    """Deal kernels out, neighbours apart: those of one operator take about the same time."""
    functions = kernels.functions_items()
    launched = [item for item in functions if _LAUNCHED in item[1].attrs]
    called = [item for item in functions if _LAUNCHED not in item[1].attrs]
    count = max(1, -(-len(launched) // MOST), min(workers(), len(launched) // FEWEST))
    return [
        tvm.IRModule(dict(called + launched[i::count]), attrs=kernels.attrs) for i in range(count)
    ]


def _lowered(functions: tvm.IRModule, pipeline: str) -> _Lowered:
    """Lower functions to those of the host and to kernels."""
    lower, finish_host, finish_device = tirx.get_tir_pipeline(pipeline)
    on_host, on_device = split_host_device_mods(lower(functions))
    finish = tvm.transform.Sequential([finish_device(), tirx.transform.SkipAssert()])
    return finish_host()(on_host), {own: finish(mod) for own, mod in on_device.items()}


def _joined(mods: Sequence[tvm.IRModule]) -> tvm.IRModule:
    """All functions of modules, whose names differ."""
    functions = {var: func for mod in mods for var, func in mod.functions_items()}
    return tvm.IRModule(functions, attrs=mods[0].attrs)


def _compiled(program: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Module:
    """The program as a module. LLVM's part and NVRTC's do not hold the GIL, TVM's of CUDA does."""
    if target.kind.name == "llvm":
        return codegen_build(program, target)
    compiler = tvm.get_global_func(f"target.build.{target.kind.name}")
    compiler.release_gil = False
    return compiler(program, target)
