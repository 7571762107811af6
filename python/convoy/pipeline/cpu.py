"""Networks compiled for the CPU, where nothing is placed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import tvm

from ..lower import executable as lowering
from ..lower.describe import describe
from ..normalize.normal_form import normalize
from ..partition.rewrite import rewrite
from ..runtime import create_module
from ..runtime.compiled import CompiledModule

if TYPE_CHECKING:
    from ..graph.bind import Params


def build_for_cpu(
    mods: Sequence[tvm.IRModule],
    params: Params | None,
    target: str | tvm.target.Target,
    precision: str,
    names: Sequence[str],
) -> CompiledModule:
    """Compile one network, or one at several batch sizes, by LLVM; a function for each by name."""
    normal = [normalize(mod, params, dtype=precision) for mod in mods]
    metas = [
        dataclasses.replace(describe(mod, target, precision), function=name)
        for mod, name in zip(normal, names, strict=True)
    ]
    meta = dataclasses.replace(metas[0], others=tuple(metas[1:]))
    normal[0] = rewrite(normal[0], {}, create_module([], {}, meta.dumps()))
    named = dict(zip(names, normal, strict=True))
    return CompiledModule(lowering.lower_together(named, target), meta)
