"""`relay.transform`: the passes of TVM 0.18.

`InferType`, `ToMixedPrecision`, `RemoveUnusedFunctions` and `Sequential` do as in TVM. The passes
in `WITHOUT_EFFECT` rewrite a module into an equal one that suits Relay's code generation; Convoy's
pipeline does that work later, so they return the module as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from convoy.errors import InvalidOption
from convoy.relay.ast import GlobalVar
from convoy.relay.infer import infer_module
from convoy.relay.module import IRModule
from convoy.relay.source import nearest
from convoy.relay.visit import post_order


class Pass:
    """A named function from modules to modules."""

    def __init__(self, name: str, run: Callable[[IRModule], IRModule]) -> None:
        self.name, self._run = name, run

    def __call__(self, mod: IRModule) -> IRModule:
        return self._run(mod)


def InferType() -> Pass:
    """Infer types, writing them into the module itself."""
    return Pass("InferType", infer_module)


def Sequential(passes: Sequence[Callable[[IRModule], IRModule]], **options: object) -> Pass:
    """Run passes one after the other."""
    del options

    def run(mod: IRModule) -> IRModule:
        for step in passes:
            mod = step(mod)
        return mod

    return Pass("Sequential", run)


def ToMixedPrecision(mixed_precision_type: str = "float16", missing_op_mode: int = 1) -> Pass:
    """Let `relay.build` compute in half precision, accumulating in float32.

    Inputs and outputs keep their types.
    """
    del missing_op_mode
    if mixed_precision_type not in ("float16", "bfloat16"):
        raise InvalidOption(f"precision '{mixed_precision_type}'", "'float16' or 'bfloat16'")
    return Pass(
        "ToMixedPrecision", lambda mod: mod.with_attr("convoy.precision", mixed_precision_type)
    )


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
        return IRModule(functions, attrs=mod.attrs)

    return Pass("RemoveUnusedFunctions", run)


WITHOUT_EFFECT = (
    "AlterOpLayout",
    "AnnotateSpans",
    "AnnotateTarget",
    "CanonicalizeCast",
    "CanonicalizeOps",
    "CombineParallelBatchMatmul",
    "CombineParallelConv2D",
    "CombineParallelDense",
    "ConvertLayout",
    "DeadCodeElimination",
    "DynamicToStatic",
    "EliminateCommonSubexpr",
    "FastMath",
    "FlattenAtrousConv",
    "FoldConstant",
    "FoldScaleAxis",
    "FuseOps",
    "Inline",
    "Legalize",
    "MergeComposite",
    "MergeCompilerRegions",
    "PartitionGraph",
    "SimplifyExpr",
    "SimplifyInference",
    "ToANormalForm",
    "ToBasicBlockNormalForm",
    "ToGraphNormalForm",
)


def _without_effect(name: str) -> Callable[..., Pass]:
    def make(*args: Any, **kwargs: Any) -> Pass:
        return Pass(name, lambda mod: mod)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"Returns the module as it is: convoy's pipeline does the work of {name}."
    return make


globals().update({name: _without_effect(name) for name in WITHOUT_EFFECT})


def __getattr__(name: str) -> Any:
    """Raise an AttributeError that suggests near names, or the alternative where there is one."""
    if name in ("gradient", "FirstOrderGradient"):
        hint = "convoy differentiates Relax modules: relay.to_relax(mod), then convoy.training"
    else:
        hint = nearest(name, [n for n in globals() if n[0].isupper()])
    raise AttributeError(f"relay.transform has no {name}. {hint}".rstrip())
