"""Programmatic launches of the kernels that TVM generates.

A kernel lets its successor start at once, and waits for its predecessor before it touches memory.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.script import tirx as script
from tvm.tirx import compilation_pipeline

from .. import programmatic

_PIPELINE = "convoy.programmatic"
#: Among the launch parameters of a kernel: it is launched with the attribute.
_TAG = "tirx.use_programtic_dependent_launch"
_DYNAMIC_SHARED = "tirx.use_dyn_shared_memory"


def pipeline(target: tvm.target.Target) -> str:
    """TVM's pipeline for a target: with programmatic launches where the GPU has them (sm_90) and
    they are wanted."""
    arch = str(target.attrs.get("arch", "")) if target.kind.name == "cuda" else ""
    number = arch.removeprefix("sm_").rstrip("af")
    if not programmatic.wanted() or not number.isdigit() or int(number) < 90:
        return "default"
    compilation_pipeline.register_tir_pipeline(_PIPELINE, _programmatic_pipeline)
    return _PIPELINE


def _programmatic_pipeline() -> tuple[Any, Any, Any]:
    lower, finish_host, finish_device = compilation_pipeline.get_tir_pipeline("default")
    early = tirx.transform.prim_func_pass(_start_early, opt_level=0)
    return lower, finish_host, lambda: tvm.transform.Sequential([early, finish_device()])


def _start_early(
    func: tirx.PrimFunc, mod: tvm.IRModule, context: tvm.transform.PassContext
) -> tirx.PrimFunc:
    """A kernel behind SplitHostDevice that is launched with the attribute."""
    tags = [str(tag) for tag in func.attrs["tirx.kernel_launch_params"]]
    last = tags[-1:] == [_DYNAMIC_SHARED]  # has to stay last
    tags.insert(len(tags) - last, _TAG)
    control = script.ptx.griddepcontrol
    first = [tirx.Evaluate(call()) for call in (control.launch_dependents, control.wait)]
    func = func.with_body(tirx.SeqStmt([*first, func.body]))
    return func.with_attr("tirx.kernel_launch_params", tags)
