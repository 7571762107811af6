"""Converters of ONNX operators, a module for each family."""

from . import (
    activation,
    classical,
    control_flow,
    convolution,
    einsum,
    elementwise,
    image,
    indexing,
    matrix,
    microsoft,
    microsoft_attention,
    microsoft_diffusion,
    microsoft_quantized,
    normalization,
    pooling,
    quantization,
    recurrent,
    reduction,
    refused,
    reshape,
    roi,
    selection,
    sequence,
    signal,
    slicing,
)

__all__ = [
    "activation", "classical", "control_flow", "convolution", "einsum", "elementwise", "image",
    "indexing", "matrix", "microsoft", "microsoft_attention", "microsoft_diffusion",
    "microsoft_quantized", "normalization", "pooling", "quantization", "recurrent", "reduction",
    "refused", "reshape", "roi", "selection", "sequence", "signal", "slicing",
]  # fmt: skip
