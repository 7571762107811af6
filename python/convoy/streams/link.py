"""Link lowered modules and their schedules into an executable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.relax import vm_build

from ..graph.rename import rename_main
from ..ir.schedule import Schedule
from ..lower.lowered import Lowered
from ..lower.passes import finish_passes
from .emit import emit
from .program import Program


@dataclass(frozen=True)
class Part:
    """A function of an executable; ``name`` is its symbol."""

    lowered: Lowered
    program: Program
    schedule: Schedule
    name: str = "main"


def link(parts: Sequence[Part], extra: Sequence[tvm.runtime.Module] = ()) -> relax.VMExecutable:
    """Make one executable of functions, which holds equal constants once.

    ``extra`` modules become part of it.
    """
    builder, target = relax.ExecBuilder(), parts[0].lowered.target
    libraries: list[tvm.runtime.Module] = []
    for number, part in enumerate(parts):
        with target:
            cached = target.kind.name == "cuda"
            mod = emit(part.lowered.calls, part.program, part.schedule, cached, number)
            if number:
                mod = rename_main(mod, part.name)
            mod = tvm.transform.Sequential(finish_passes())(mod)
        vm_build._vmcodegen(builder, mod)
        libraries += [m for m in part.lowered.libraries if all(m is not k for k in libraries)]
    # TVM would put a C source between the executable and its libraries, which has to be linked by
    # the system's compiler before the executable runs.
    executable = vm_build._vmlink(builder, target)
    executable.mod.clear_imports()
    for library in [*libraries, *extra]:
        executable.mod.import_module(library)
    return executable
