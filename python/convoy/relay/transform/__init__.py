"""`relay.transform`: the passes of TVM 0.18.

`relay.build` needs none of them: they are for scripts that look at a network, change it, or hand
parts of it to a compiler of their own.
"""

from __future__ import annotations

from typing import Any

from convoy.relay.api import parse
from convoy.relay.gradient import first_order_gradients, gradient
from convoy.relay.print_hook import print_text
from convoy.relay.removed import Removed, remedy
from convoy.relay.source import nearest
from convoy.relay.transform.atrous import FlattenAtrousConv
from convoy.relay.transform.base import (
    FunctionPass,
    ModulePass,
    Pass,
    PassInfo,
    Sequential,
    function_pass,
    module_pass,
    register_pass,
)
from convoy.relay.transform.byoc import (
    AnnotateTarget,
    MergeCompilerRegions,
    MergeComposite,
    PartitionGraph,
)
from convoy.relay.transform.canonicalize import (
    CanonicalizeCast,
    CanonicalizeOps,
    DivToMul,
    FastMath,
)
from convoy.relay.transform.combine_parallel import (
    CombineParallelBatchMatmul,
    CombineParallelConv2D,
    CombineParallelDense,
)
from convoy.relay.transform.common_subexpressions import EliminateCommonSubexpr
from convoy.relay.transform.context import PassContext, build_config
from convoy.relay.transform.dead_code import DeadCodeElimination
from convoy.relay.transform.dynamic_to_static import DynamicToStatic
from convoy.relay.transform.explicit_padding import FoldExplicitPadding
from convoy.relay.transform.fake_quantization_to_integer import FakeQuantizationToInteger
from convoy.relay.transform.flexible_shape import FlexibleShapeDispatch
from convoy.relay.transform.fold_constant import FoldConstant, FoldConstantExpr
from convoy.relay.transform.functions import EtaExpand, Inline, LambdaLift
from convoy.relay.transform.fuse_ops import DefuseOps, FuseOps
from convoy.relay.transform.infer_type import InferType, InferTypeLocal
from convoy.relay.transform.instrument import PrintIR
from convoy.relay.transform.layouts import AlterOpLayout, ConvertLayout, LayoutConfig
from convoy.relay.transform.lazy_gradient_init import LazyGradientInit
from convoy.relay.transform.legalize import Legalize
from convoy.relay.transform.mixed_precision import ToMixedPrecision
from convoy.relay.transform.normal_forms import (
    ToANormalForm,
    ToANormalFormExpr,
    ToBasicBlockNormalForm,
    ToGraphNormalForm,
)
from convoy.relay.transform.partial_evaluate import PartialEvaluate
from convoy.relay.transform.recast import recast
from convoy.relay.transform.scale_axis import (
    BackwardFoldScaleAxis,
    FoldScaleAxis,
    ForwardFoldScaleAxis,
)
from convoy.relay.transform.simplify_expr import SimplifyExpr, SimplifyExprPostAlterOp
from convoy.relay.transform.simplify_inference import SimplifyInference
from convoy.relay.transform.sizes import ChangeBatch, SplitArgs
from convoy.relay.transform.unused_functions import RemoveUnusedFunctions

__all__ = [
    "AnnotateSpans",
    "BatchingOps",
    "BackwardFoldScaleAxis",
    "AlterOpLayout",
    "ConvertLayout",
    "LayoutConfig",
    "LazyGradientInit",
    "AnnotateTarget",
    "CanonicalizeCast",
    "CanonicalizeOps",
    "ChangeBatch",
    "CombineParallelBatchMatmul",
    "CombineParallelConv2D",
    "CombineParallelDense",
    "DeadCodeElimination",
    "DefuseOps",
    "DivToMul",
    "DynamicToStatic",
    "EliminateCommonSubexpr",
    "EtaExpand",
    "FakeQuantizationToInteger",
    "FastMath",
    "FirstOrderGradient",
    "FlattenAtrousConv",
    "FlexibleShapeDispatch",
    "FoldConstant",
    "FoldConstantExpr",
    "FoldExplicitPadding",
    "FoldScaleAxis",
    "ForwardFoldScaleAxis",
    "FunctionPass",
    "FuseOps",
    "InferType",
    "InferTypeLocal",
    "Inline",
    "LambdaLift",
    "Legalize",
    "MergeCompilerRegions",
    "MergeComposite",
    "ModulePass",
    "PartialEvaluate",
    "PartitionGraph",
    "Pass",
    "PassContext",
    "PassInfo",
    "PlanDevices",
    "PrintIR",
    "RemoveUnusedFunctions",
    "Sequential",
    "SimplifyExpr",
    "SimplifyExprPostAlterOp",
    "SimplifyInference",
    "SplitArgs",
    "ToANormalForm",
    "ToANormalFormExpr",
    "ToBasicBlockNormalForm",
    "ToGraphNormalForm",
    "ToMixedPrecision",
    "build_config",
    "function_pass",
    "gradient",
    "module_pass",
    "recast",
]


@register_pass
def AnnotateSpans() -> Pass:
    """Give every expression the span of its place in the module's text."""
    return Pass("AnnotateSpans", lambda mod: parse(print_text(mod, True)))


@register_pass
def BatchingOps() -> Pass:
    """Combine parallel convolutions, GEMMs and batched matmuls: the three passes for these."""
    passes = [CombineParallelConv2D(), CombineParallelDense(), CombineParallelBatchMatmul()]
    return Sequential(passes, name="BatchingOps")


@register_pass
def PlanDevices(config: Any = None) -> Pass:
    """Return the module as it is: it runs on one device, wherever annotations place parts of it."""
    del config
    return Pass("PlanDevices", lambda mod: mod)


@register_pass
def FirstOrderGradient() -> Pass:
    """Replace every function by one that also returns the gradients of its parameters."""
    return Pass("FirstOrderGradient", first_order_gradients)


def __getattr__(name: str) -> Any:
    """Return a stand-in for a removed pass; of other names, say which are near."""
    if remedy(f"relay.transform.{name}"):
        return Removed(f"relay.transform.{name}")
    hint = nearest(name, [n for n in globals() if n[0].isupper()])
    raise AttributeError(f"relay.transform has no {name}. {hint}".rstrip())
