"""Generate code of scheduled functions in threads: kernels by NVRTC, functions of a CPU by LLVM.

TVM lowers and compiles a module as a whole, on one core. Here functions are lowered one by one, and
kernels are dealt out to programs of a few each, which become imports of one module.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import tirx
from tvm.tirx.build import codegen_build, split_host_device_mods

from ..progress import step
from ..threads import in_threads, workers
from . import launches
from .unguarded_loads import unguarded_loads

#: Kernels of a program, at least (where cores are free) and at most. Reading its headers takes
#: about as long as compiling two of them.
FEWEST, MOST = 2, 8
#: The attribute of functions that are launched; others are called by them.
_LAUNCHED = "tirx.kernel_launch_params"
#: TVM appends this to the name of a function for its kernels, and a number where that is taken.
_KERNEL = "_kernel"


@dataclass(frozen=True)
class Lowered:
    """Lowered functions: kernels, and what the host does, as launches or as code."""

    kernels: tvm.IRModule
    tables: dict[str, launches.Table]
    host: tvm.IRModule


def build(
    functions: tvm.IRModule,
    target: tvm.target.Target,
    pipeline: str,
) -> tvm.runtime.Module:
    """Compile functions for a target, after TVM's pipeline of that name, into one module."""
    host = target.host or (target if target.kind.name == "llvm" else tvm.target.Target("llvm"))
    bound = tirx.transform.BindTarget(target.with_host(host))(functions)
    context = tvm.transform.PassContext.current()  # of this thread

    def lowered(part: tvm.IRModule) -> Lowered:
        with target, context:
            return _lowered(part, target, pipeline)

    def compiled(job: tuple[tvm.IRModule, tvm.target.Target]) -> tvm.runtime.Module:
        with target, context:
            return _compiled(*job)

    parts = in_threads(lowered, portions(bound), functools.partial(step, "lower"))
    kernels = programs(_joined([part.kernels for part in parts]))
    tables = {name: table for part in parts for name, table in part.tables.items()}
    coded = [part.host for part in parts if part.host.functions or not tables]
    # One module, however large: an exported file cannot hold two of LLVM's.
    jobs = [(_joined(coded), host)] if coded else []
    jobs += [(mod, target) for mod in kernels]
    modules = in_threads(compiled, jobs, functools.partial(step, "compile"))
    libraries = [launches.module_of(tables)] if tables else []
    if coded:
        libraries.append(modules.pop(0))
    for outer, inner in itertools.pairwise(libraries):
        outer.import_module(inner)
    for one in modules:
        libraries[-1].import_module(one)
    return libraries[0]


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
    count = max(-(-len(launched) // MOST), min(workers(), len(launched) // FEWEST))
    return [
        tvm.IRModule(dict(called + launched[i::count]), attrs=kernels.attrs) for i in range(count)
    ]


def _lowered(functions: tvm.IRModule, target: tvm.target.Target, pipeline: str) -> Lowered:
    lower, finish_host, finish_device = tirx.get_tir_pipeline(pipeline)
    tables: dict[str, launches.Table] = {}
    host, kernels = tvm.IRModule(), tvm.IRModule()
    if target.kind.name != "llvm":
        tables, kernels = launches.split(functions, lower)
    if not tables:
        host, on_device = split_host_device_mods(lower(functions))
        host, kernels = finish_host()(host), _joined([*on_device.values()])
    finish = tvm.transform.Sequential(
        [unguarded_loads, finish_device(), tirx.transform.SkipAssert()]
    )
    return Lowered(finish(kernels), tables, host)


def _joined(mods: Sequence[tvm.IRModule]) -> tvm.IRModule:
    """All functions of modules, whose names differ."""
    functions = {var: func for mod in mods for var, func in mod.functions_items()}
    return tvm.IRModule(functions, attrs=mods[0].attrs if mods else None)


def _compiled(program: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Module:
    """The program as a module. LLVM's part and NVRTC's do not hold the GIL, TVM's of CUDA does."""
    if target.kind.name == "llvm":
        return codegen_build(program, target)
    compiler = tvm.get_global_func(f"target.build.{target.kind.name}")
    compiler.release_gil = False
    return compiler(program, target)
