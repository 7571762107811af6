"""Describe a compiled module: inputs, outputs, versions."""

from __future__ import annotations

from dataclasses import replace

import tvm
from tvm import relax

from ..graph.expr import layer_of, op_name
from ..graph.function import bindings_of, main_function
from ..ir.artifact import Meta, TensorInfo
from ..ir.names import OUTPUT_NAMES
from ..ir.plan import Plan
from ..wheels import version_of
from .target import kind_of

_DISTRIBUTIONS = ("tvm-convoy", "apache-tvm", "nvidia-cutlass")

_NAMED = ("relax.nn.conv", "relax.matmul")

TensorInfos = tuple[TensorInfo, ...]


def describe(
    normal: tvm.IRModule,
    target: str | tvm.target.Target,
    precision: str,
    plan: Plan | None = None,
) -> Meta:
    """The description of a module in normal form, for a target, before it has a schedule."""
    inputs, outputs = signature(normal)
    found = plan.to_json() if plan is not None else {}
    versions = {name: version_of(name) or "not installed" for name in _DISTRIBUTIONS}
    return Meta(
        inputs, outputs, kind_of(target), precision, found, versions, layers=layers_of(normal)
    )


def signature(normal: tvm.IRModule) -> tuple[TensorInfos, TensorInfos]:
    """Inputs and flattened outputs of a module in normal form, its parameters bound."""
    main = normal["main"]
    inputs = [tensor for var in main.params for tensor in _infos(var.name, var.ty)]
    result = main.ret_ty
    name = "output" if isinstance(result, relax.TupleType) else "output_0"
    outputs = _infos(name, result)
    if normal.attrs is not None and OUTPUT_NAMES in normal.attrs:
        names = [str(name) for name in normal.attrs[OUTPUT_NAMES]]
        outputs = [replace(o, name=n) for o, n in zip(outputs, names, strict=True)]
    return tuple(inputs), tuple(outputs)


def layers_of(normal: tvm.IRModule) -> tuple[str, ...]:
    """The model's names of the convolutions and matmuls, in program order; "" where unknown."""
    _, func = main_function(normal)
    values = [binding.value for binding in bindings_of(func)]
    return tuple(layer_of(value) for value in values if op_name(value).startswith(_NAMED))


def _infos(name: str, ty: tvm.ir.Type) -> list[TensorInfo]:
    if isinstance(ty, relax.TupleType):
        return [t for i, field in enumerate(ty.fields) for t in _infos(f"{name}_{i}", field)]
    return [TensorInfo(name, tuple(int(d) for d in ty.shape.values), str(ty.dtype))]
