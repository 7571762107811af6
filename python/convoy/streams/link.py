"""Lowered module and schedule -> executable."""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import relax
from tvm.relax import vm_build

from ..ir.schedule import Schedule
from ..lower.lowered import Lowered
from ..lower.passes import finish_passes
from .emit import emit
from .program import Program


def link(
    lowered: Lowered,
    program: Program,
    schedule: Schedule,
    extra: Sequence[tvm.runtime.Module] = (),
) -> relax.VMExecutable:
    """Make the executable of a schedule. ``extra`` modules become part of it."""
    on_gpu = lowered.target.kind.name == "cuda"
    with lowered.target:
        mod = emit(lowered.calls, program, schedule, cached=on_gpu)
        mod = tvm.transform.Sequential(finish_passes())(mod)
    builder = relax.ExecBuilder()
    vm_build._vmcodegen(builder, mod)
    libraries = [*lowered.libraries, *extra]
    return vm_build._vmlink(builder, lowered.target, None, ext_libs=libraries)
