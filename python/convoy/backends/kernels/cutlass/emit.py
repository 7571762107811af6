"""CUDA source of a kernel: a few lines that instantiate the headers of ``codegen/cutlass``."""

from __future__ import annotations

from ....ir.dtypes import HALF_DTYPES
from ..kernel import bool_literal
from .parameters import KernelParameters

_ELEMENT = {
    "float16": "cutlass::half_t",
    "bfloat16": "cutlass::bfloat16_t",
    "float32": "float",
    "int8": "int8_t",
    "int32": "int32_t",
}
_ACTIVATION = {
    "none": "Activation::kNone",
    "relu": "Activation::kRelu",
    "clip": "Activation::kClip",
    "sigmoid": "Activation::kSigmoid",
    "silu": "Activation::kSilu",
}
#: Those of ``activations.cuh``, which only their kernels include: the others keep their hashes.
_MORE_ACTIVATIONS = {
    "gelu": "kGelu",
    "gelu_tanh": "kGeluTanh",
    "hardswish": "kHardSwish",
    "leaky_relu": "kLeakyRelu",
    "tanh": "kTanh",
    "elu": "kElu",
    "mish": "kMish",
    "softplus": "kSoftplus",
}
#: The header of gelu for results of 16 bits, beside that of the kernel.
GELU16 = "gelu16.cuh"
_SCHEDULE = {"cooperative": "kCooperative", "pingpong": "kPingpong"}
_SCHEDULER = {"tiles": "kPersistent", "streamk": "kStreamK", "splitk": "kSplitK"}
_ITERATOR = {
    "optimized": "kOptimized",
    "analytic": "kAnalytic",
    "fixed_channels": "kFixedChannels",
    "few_channels": "kFewChannels",
}
_KERNEL = {
    "sm80_conv": "Sm80Conv",
    "sm80_int8_conv": "Sm80Int8Conv",
    "sm90_conv": "Sm90Conv",
    "sm90_gemm": "Sm90Gemm",
    "sm80_dgrad": "Sm80Dgrad",
    "sm80_strided_dgrad": "Sm80StridedDgrad",
    "sm90_dgrad": "Sm90Dgrad",
    "sm90_dgrad_gemm": "Sm90DgradGemm",
    "sm80_wgrad": "Sm80Wgrad",
    "sm90_wgrad": "Sm90Wgrad",
}

_TEMPLATE = """\
// {name}
#include "{header}"
{more}
using Spec = convoy::{spec}<{out}, {activation}, {residual}, {affine}>;
using Config = convoy::{config};
using Kernel = convoy::{kernel}<Config>;

CONVOY_EXPORT_KERNEL(Kernel)
"""
_STRIDED = "CONVOY_EXPORT_STRIDED(Kernel)\n"


def emit(config: KernelParameters) -> str:
    """The ``.cu`` text of a kernel; equal text for equal configurations."""
    activation = (config.activation, config.residual_last, config.out_dtype)
    source = _TEMPLATE.format(
        name=config.name,
        header=header_of(config).removeprefix("cutlass/"),
        more=f'#include "{GELU16}"\n' * is_gelu16(*activation),
        spec="ActivatedSpec" if _is_activated(config) else "EpilogueSpec",
        out=_ELEMENT[config.out_dtype],
        activation=activation_literal(*activation),
        residual=bool_literal(config.residual),
        affine=bool_literal(config.affine_relu),
        config=_sm90(config) if config.is_sm90 else _sm80(config),
        kernel=_KERNEL[config.family],
    )
    return source + _STRIDED * config.strided


def header_of(config: KernelParameters) -> str:
    """The header that a kernel instantiates, as its path in ``codegen``."""
    if config.strided:
        return "cutlass/sm90_strided.cuh"
    return f"cutlass/{config.family}{'_activated' * _is_activated(config)}.cuh"


def _is_activated(config: KernelParameters) -> bool:
    """Return whether the epilogue needs ``activations.cuh``."""
    return config.residual_last or config.activation in _MORE_ACTIVATIONS


def is_gelu16(activation: str, residual_last: bool, out_dtype: str) -> bool:
    """Return whether the activation is that of :data:`GELU16`."""
    return activation == "gelu" and not residual_last and out_dtype in HALF_DTYPES


def activation_literal(activation: str, residual_last: bool, out_dtype: str) -> str:
    """The constant of ``epilogue.cuh``, ``activations.cuh`` or :data:`GELU16`."""
    if is_gelu16(activation, residual_last, out_dtype):
        return "convoy::kGelu16"
    name = "convoy::" + {**_ACTIVATION, **_MORE_ACTIVATIONS}[activation]
    return f"convoy::residual_last({name})" if residual_last else name


def _sm90(config: KernelParameters) -> str:
    sizes = ", ".join(map(str, (*config.tile, *config.cluster)))
    epilogue = ""
    if config.has_own_epilogue:
        shape = ", ".join(map(str, (*config.epilogue_stages, config.epilogue_columns)))
        epilogue = f",\n                                  convoy::EpilogueShape<{shape}>"
    return (
        f"Sm90Config<{_ELEMENT[config.dtype]}, Spec, {sizes},\n"
        f"                                  convoy::Schedule::{_SCHEDULE[config.schedule]},\n"
        f"                                  convoy::Scheduler::{_SCHEDULER[config.scheduler]},"
        f" {config.stages}{epilogue}>"
    )


def _sm80(config: KernelParameters) -> str:
    sizes = ", ".join(map(str, (*config.tile, *config.warp, config.stages)))
    name, split = "Sm80BackwardConfig", ""
    if config.dtype == "int8":
        name = "Sm80Int8Config"
    elif config.op == "fprop":
        name, split = "Sm80Config", f", {bool_literal(config.scheduler == 'splitk')}"
    return (
        f"{name}<{_ELEMENT[config.dtype]}, Spec, {sizes},\n"
        f"                                  cutlass::conv::IteratorAlgorithm::"
        f"{_ITERATOR[config.iterator]},\n"
        f"                                  {config.align}, {config.align_out}{split}>"
    )
