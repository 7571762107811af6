"""RemoveUnusedFunctions: keep what the entry functions call."""

from __future__ import annotations

from collections.abc import Sequence

from convoy.relay.ast import GlobalVar
from convoy.relay.module import IRModule
from convoy.relay.transform.base import ModulePass, Pass, PassInfo, register_pass
from convoy.relay.visit import post_order


@register_pass
def RemoveUnusedFunctions(entry_functions: Sequence[str] = ("main",)) -> Pass:
    """Keep the functions that the entry functions call."""

    def run(mod: IRModule) -> IRModule:
        keep: dict[str, None] = {}
        todo = [n for n in entry_functions if n in mod]
        while todo:
            name = todo.pop()
            if name not in keep:
                keep[name] = None
                calls = post_order(mod[name])
                todo += [n.name_hint for n in calls if isinstance(n, GlobalVar)]
        functions = {g: f for g, f in mod.functions.items() if g.name_hint in keep}
        return IRModule(functions, mod.type_definitions, mod.attrs)

    return ModulePass(PassInfo(1, "RemoveUnusedFunctions"), run)
