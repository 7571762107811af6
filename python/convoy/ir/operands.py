"""Operands and results of a workload: their shapes, dtypes and bytes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .attention import Attention
from .bottleneck import Bottleneck
from .dtypes import DTYPE_BYTES
from .expansion import Expansion
from .squeeze_excite import SqueezeExcite

if TYPE_CHECKING:
    from .workload import Workload

#: Operands and results of workloads of several convolutions that are no constants.
_TENSORS = ("x", "residual", "y", "z")
#: Name, shape and dtype.
Operand = tuple[str, tuple[int, ...], str]


def shapes(workload: Workload) -> list[Operand]:
    """Return every operand in call order, results last."""
    w = workload
    if w.attention is not None:
        return _of_attention(w, w.attention)
    if w.expansion is not None:
        return _of_expansion(w, w.expansion)
    if w.bottleneck is not None:
        return _of_bottleneck(w, w.bottleneck)
    if w.squeeze_excite is not None:
        return _of_squeeze_excite(w, w.squeeze_excite)
    x, filt, y = _convolved(w)
    if w.op == "dgrad":
        return [("dy", y, w.dtype), ("w", filt, w.dtype), ("dx", x, w.out_dtype)]
    if w.op == "wgrad":
        return [("dy", y, w.dtype), ("x", x, w.dtype), ("dw", filt, w.out_dtype)]
    operands = [("x", x, w.dtype), ("w", filt, w.dtype)]
    if w.stem is not None:
        operands[0] = ("x", w.stem.shape(w.n, w.h, w.w), w.stem.dtype)
        y = (w.n, *w.stem.pooled(w.p, w.q), w.k)
    if w.epilogue.residual:
        operands.append(("residual", y, w.out_dtype))
    if w.epilogue.bias:
        bias = ((w.k, 4), "int32") if w.requantizes else ((w.k,), w.out_dtype)
        operands.append(("bias", *bias))
    if w.epilogue.affine_relu:
        operands += [("scale", (w.k,), w.out_dtype), ("shift", (w.k,), w.out_dtype)]
    if w.epilogue.writes_y:
        operands.append(("y", y, w.out_dtype))
    if w.epilogue.affine_relu:
        operands.append(("y2", y, w.out_dtype))
    return operands


def _convolved(w: Workload) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of input, filter and output."""
    if w.is_batched:
        batch, own_c, own_k = w.groups, w.c // w.groups, w.k // w.groups
        return (batch, w.n, own_c), (batch, own_k, own_c), (batch, w.n, own_k)
    if w.op == "matmul":
        return (w.n, w.c), (w.k, w.c), (w.n, w.k)
    planes = (w.depth.d, w.depth.t, w.depth.o)
    d, t, o = ((size,) for size in planes) if w.is_3d else ((), (), ())
    filt = (w.k, *t, w.r, w.s, w.c // w.groups)
    return (w.n, *d, w.h, w.w, w.c), filt, (w.n, *o, w.p, w.q, w.k)


def _of_attention(workload: Workload, attention: Attention) -> list[Operand]:
    inputs = [("q", attention.q), ("k", attention.k), ("v", attention.v)]
    operands = [(name, view.shape, workload.dtype) for name, view in inputs]
    if attention.bias.shape:
        operands.append(("bias", attention.bias.shape, attention.bias_dtype))
    return [*operands, ("o", attention.o.shape, workload.out_dtype)]


def _of_expansion(workload: Workload, expansion: Expansion) -> list[Operand]:
    wide, filt, y = _convolved(workload)
    biases = ("expand_bias", expansion.epilogue.bias), ("bias", workload.epilogue.bias)
    operands = [
        ("x", (*wide[:3], expansion.channels)),
        ("w", filt),
        ("expand", (workload.k, expansion.channels)),
        *((name, (workload.k,)) for name, there in biases if there),
        ("y", y),
    ]
    return [(name, shape, workload.dtype) for name, shape in operands]


def _of_bottleneck(workload: Workload, bottleneck: Bottleneck) -> list[Operand]:
    x, filt, middle = _convolved(workload)
    k, expand, reduce = workload.k, bottleneck.expand, bottleneck.reduce
    second, third = bottleneck.expand_epilogue, bottleneck.reduce_epilogue
    wide = (*middle[:-1], expand)
    operands: list[tuple[str, tuple[int, ...], object]] = [
        ("x", x, True),
        ("w", filt, True),
        ("expand", (expand, k), True),
        ("reduce", (reduce, expand), reduce),
        ("residual", wide, second.residual),
        ("bias", (k,), workload.epilogue.bias),
        ("expand_bias", (expand,), second.bias),
        ("reduce_bias", (reduce,), third.bias),
        ("y", wide, True),
        ("z", (*middle[:-1], reduce), reduce),
    ]
    return [(name, shape, workload.dtype) for name, shape, there in operands if there]


def _of_squeeze_excite(workload: Workload, block: SqueezeExcite) -> list[Operand]:
    image, _, _ = _convolved(workload)
    c, channels = workload.c, block.channels
    operands: list[tuple[str, tuple[int, ...], bool]] = [
        ("x", image, True),
        ("squeeze", (channels, c), True),
        ("excite", (c, channels), True),
        ("residual", image, workload.epilogue.residual),
        ("squeeze_bias", (channels,), block.squeeze_epilogue.bias),
        ("excite_bias", (c,), block.gate_epilogue.bias),
        ("y", image, True),
    ]
    return [(name, shape, workload.dtype) for name, shape, there in operands if there]


def bytes_moved(workload: Workload) -> int:
    """Return the minimum device memory traffic: each operand read once, each result written
    once."""
    w = workload
    if w.attention is not None:
        rows = w.h * (w.c + w.k) + w.w * (w.c + w.k)
        bias = w.attention.bias.size * DTYPE_BYTES[w.attention.bias_dtype]
        return DTYPE_BYTES[w.dtype] * w.n * rows + bias
    if w.stem is not None or w.is_back_to_back:
        return operand_bytes(w)
    x, filt, y = map(math.prod, _convolved(w))
    if w.op != "dgrad" and w.taps == 1:  # a strided 1x1 skips input pixels
        x = min(x, w.pixels * w.c)
    size, out = DTYPE_BYTES[w.dtype], DTYPE_BYTES[w.out_dtype]
    if w.op == "dgrad":
        return size * (y + filt) + out * x
    if w.op == "wgrad":
        return size * (y + x) + out * filt
    tensors = w.num_outputs + w.epilogue.residual
    return size * (x + filt) + out * y * tensors


def operand_bytes(workload: Workload) -> int:
    """Return the bytes of all operands and results; for attention, whose operands may be views of
    one tensor, the bytes that it accesses."""
    if workload.attention is not None:
        return bytes_moved(workload)
    return sum(math.prod(shape) * DTYPE_BYTES[dtype] for _, shape, dtype in shapes(workload))


def weights(workload: Workload) -> tuple[int, ...]:
    """Return the places of the operands that are weights where a model has constants there."""
    operands = shapes(workload)
    return tuple(place for place in read_ahead(workload) if len(operands[place][1]) > 1)


def read_ahead(workload: Workload) -> tuple[int, ...]:
    """Return the places of the operands that a kernel reads before those in front of it have ended,
    if they are constants: the weights, and of a workload of several convolutions their biases."""
    if not workload.is_back_to_back:
        return (1,)
    places = enumerate(shapes(workload))
    return tuple(place for place, (name, *_) in places if name not in _TENSORS)


def weight_bytes(workload: Workload) -> int:
    """Return the bytes of the filters, or of a filter's gradient; none for attention."""
    if workload.attention is not None:
        return 0
    dtype = workload.out_dtype if workload.op == "wgrad" else workload.dtype
    count = math.prod(_convolved(workload)[1])
    if workload.is_back_to_back:
        operands = shapes(workload)
        count = sum(math.prod(operands[place][1]) for place in weights(workload))
    return count * DTYPE_BYTES[dtype]
