"""PartialEvaluate: run the part of a program that its known values determine."""

from __future__ import annotations

from convoy.relay.module import IRModule
from convoy.relay.transform.base import ModulePass, Pass, PassInfo, register_pass
from convoy.relay.transform.partial_evaluate.evaluator import PartialEvaluator
from convoy.relay.transform.rewriting import is_primitive


@register_pass
def PartialEvaluate() -> Pass:
    """Inline functions, decide conditions and matches, and compute constants, as far as known.

    References whose content is known are read at once. What is left of each function is a sequence
    of lets; `DeadCodeElimination(inline_once=True)` takes away those that nothing needs.
    """

    def run(mod: IRModule) -> IRModule:
        result = mod.shallow_copy()
        for var, function in mod.items():
            if not is_primitive(function):
                result[var] = PartialEvaluator(mod).rest(function)
        return result

    return ModulePass(PassInfo(1, "PartialEvaluate"), run)


__all__ = ["PartialEvaluate"]
