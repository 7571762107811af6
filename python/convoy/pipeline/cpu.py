"""Networks compiled for the CPU, where nothing is placed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tvm

from ..graph.bind import Params
from ..lower.describe import describe
from ..lower.executable import lower_together
from ..normalize.normal_form import normalize
from ..partition.rewrite import rewrite
from ..runtime import create_module
from ..runtime.compiled import CompiledModule
from .executable import function_names, together


def build_for_cpu(
    mods: Sequence[tvm.IRModule],
    params: Params | None,
    target: str | tvm.target.Target,
    precision: str,
) -> CompiledModule:
    """Compile one network, or one at several batch sizes, by LLVM."""
    normal = [normalize(mod, params, dtype=precision) for mod in mods]
    names = function_names(len(mods))
    meta = together(
        [
            dataclasses.replace(describe(mod, target, precision), function=name)
            for mod, name in zip(normal, names, strict=True)
        ]
    )
    normal[0] = rewrite(normal[0], {}, create_module([], {}, meta.dumps()))
    named = dict(zip(names, normal, strict=True))
    executable, _ = lower_together(named, target)
    return CompiledModule(executable, meta)
