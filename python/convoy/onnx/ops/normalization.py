"""Normalizations."""

from __future__ import annotations

import numpy as np

from ...ir.dtypes import HALF_DTYPES
from ..call import Call, Value, converter


@converter("BatchNormalization")
def batch_norm(call: Call) -> Value:
    """Normalize by the given statistics, in training by those of the batch. Before opset 14, one
    with further results is in training."""
    epsilon = float(call.attrs.get("epsilon", 1e-5))
    training = call.outputs > 1 if call.version < 14 else call.attrs.get("training_mode", 0)
    if call.rank() == 1:  # a batch without channels
        if training:
            raise call.unsupported("of one axis in training mode", "data with channels")
        shape = (call.shape()[0], 1)
        flat = call.do("BatchNormalization", call.reshape(call.value(0), shape), *call.inputs[1:],
                       epsilon=epsilon)  # fmt: skip
        return call.reshape(flat, call.shape())
    if training:
        return _batch_norm_of_batch(call, epsilon)
    dtype = call.dtype()
    parts = [call.cast(call.value(i), dtype) for i in range(1, 5)]
    if call.rank(1) > 1:  # spatial=0: statistics for each element
        scale, shift, mean, variance = parts
        deviation = call.do("Sqrt", call.do("Add", variance, call.const(epsilon)))
        factor = call.do("Div", scale, deviation)
        spread = call.do("Sub", call.value(0), mean)
        return call.do("Add", call.do("Mul", spread, factor), shift)
    found = call.make("nn.batch_norm", call.x(), *parts, axis=1, epsilon=epsilon, training=False)
    return call.items(found, 1)[0]


def _batch_norm_of_batch(call: Call, epsilon: float) -> Value:
    """The normalised data, the running statistics moved toward the batch's, and the batch's."""
    rank, momentum = call.rank(), float(call.attrs.get("momentum", 0.9))
    axes = np.array([i for i in range(rank) if i != 1])
    x = call.value(0)
    mean = call.do("ReduceMean", x, axes)
    spread = call.do("Sub", x, mean)
    variance = call.do("ReduceMean", call.do("Mul", spread, spread), axes)
    deviation = call.do("Sqrt", call.do("Add", variance, call.const(epsilon)))
    shape = (1, -1, *(1,) * (rank - 2))
    scale, shift = (call.reshape(call.cast(call.value(i), call.dtype()), shape) for i in (1, 2))
    y = call.do("Add", call.do("Mul", call.do("Div", spread, deviation), scale), shift)
    results, of_batch = [y], []
    for index, value in ((3, mean), (4, variance)):
        old, new = call.value(index), call.cast(call.reshape(value, (-1,)), call.dtype(index))
        kept = call.do("Mul", old, call.const(momentum, index))
        results.append(call.do("Add", kept, call.do("Mul", new, call.const(1 - momentum, index))))
        of_batch.append(new)
    return tuple([*results, *of_batch][: max(1, call.outputs)])


def _normalized(
    call: Call, x: Value, axes: np.ndarray, epsilon: float
) -> tuple[Value, Value, Value]:
    """(normalised, mean, 1 / standard deviation) over axes."""
    dtype = call.do_dtype(x)
    mean = call.do("ReduceMean", x, axes)
    spread = call.do("Sub", x, mean)
    variance = call.do("ReduceMean", call.do("Mul", spread, spread), axes)
    deviation = call.do("Sqrt", call.do("Add", variance, np.array(epsilon).astype(dtype)))
    inverse = call.do("Reciprocal", deviation)
    return call.do("Mul", spread, inverse), mean, inverse


@converter("LayerNormalization")
def layer_norm(call: Call) -> Value:
    """Statistics in float32 (``stash_type``), as the definition has them."""
    axis, epsilon = call.axis(-1), float(call.attrs.get("epsilon", 1e-5))
    axes = list(range(axis, call.rank()))
    dtype, shape = call.dtype(), call.dims()[axis:]
    plain = call.outputs == 1 and all(call.dims(i) == shape for i in (1, 2) if call.has(i))
    if plain and dtype in ("float32", "float16"):
        beta = call.x(2) if call.has(2) else call.expr(np.zeros(shape, call.const(0).dtype))
        return call.make("nn.layer_norm", call.x(), call.x(1), beta, axes, epsilon)
    x = call.value(0) if dtype == "float64" else call.cast(call.value(0), "float32")
    y, mean, inverse = _normalized(call, x, np.array(axes), epsilon)
    y = call.do("Mul", call.cast(y, dtype), call.value(1))
    if call.has(2):
        y = call.do("Add", y, call.value(2))
    return (y, mean, inverse)[: call.outputs] if call.outputs > 1 else y


@converter("RMSNormalization", "SimplifiedLayerNormalization")
def rms_norm(call: Call) -> Value:
    axis, epsilon = call.axis(-1), float(call.attrs.get("epsilon", 1e-5))
    dtype = call.dtype()
    x = call.value(0) if dtype == "float64" else call.cast(call.value(0), "float32")
    square = call.do("ReduceMean", call.do("Mul", x, x), np.arange(axis, call.rank()))
    root = call.do("Sqrt", call.do("Add", square, np.array(epsilon, call.do_dtype(x))))
    return call.do("Mul", call.cast(call.do("Div", x, root), dtype), call.value(1))


@converter("InstanceNormalization")
def instance_norm(call: Call) -> Value:
    y, _, _ = _normalized(
        call, call.value(0), np.arange(2, call.rank()), float(call.attrs.get("epsilon", 1e-5))
    )
    shape = (1, -1, *(1,) * (call.rank() - 2))
    y = call.do("Mul", y, call.reshape(call.value(1), shape))
    return call.do("Add", y, call.reshape(call.value(2), shape))


@converter("GroupNormalization")
def group_norm(call: Call) -> Value:
    """Scale and bias are for each group before opset 21, for each channel from then on."""
    groups, shape, dtype = int(call.attrs["num_groups"]), call.shape(), call.dtype()
    x = call.reshape(call.value(0), (shape[0], groups, -1))
    if dtype in HALF_DTYPES:
        x = call.cast(x, "float32")
    y, _, _ = _normalized(call, x, np.array([2]), float(call.attrs.get("epsilon", 1e-5)))
    y, each = call.cast(y, dtype), [1, groups, 1]
    if call.version >= 21:
        y, each = call.reshape(y, shape), [1, shape[1], *(1,) * (len(shape) - 2)]
    y = call.do("Mul", y, call.reshape(call.value(1), each))
    return call.reshape(call.do("Add", y, call.reshape(call.value(2), each)), shape)


@converter("MeanVarianceNormalization")
def mean_variance_norm(call: Call) -> Value:
    """Before opset 9, flags choose the axes and leave the deviation out."""
    across = call.attrs.get("across_channels", 0)
    axes = np.array(call.attrs.get("axes", (0, 1, 2, 3) if across else (0, 2, 3)))
    x = call.value(0)
    spread = call.do("Sub", x, call.do("ReduceMean", x, axes))
    if not call.attrs.get("normalize_variance", 1):
        return spread
    variance = call.do("ReduceMean", call.do("Mul", spread, spread), axes)
    return call.do("Div", spread, call.do("Add", call.do("Sqrt", variance), call.const(1e-9)))


@converter("LpNormalization")
def lp_norm(call: Call) -> Value:
    axis, p = np.array([call.axis(-1)]), int(call.attrs.get("p", 2))
    length = call.do("ReduceL1" if p == 1 else "ReduceL2", call.value(0), axis)
    none = call.do("Equal", length, call.const(0))
    ratio = call.do("Div", call.value(0), call.do("Where", none, call.const(1), length))
    return call.do("Where", none, call.const(0), ratio)


@converter("LRN")
def local_response_norm(call: Call) -> Value:
    """x / (bias + alpha / size * sum of squares over neighbouring channels) ** beta."""
    size = int(call.attrs["size"])
    alpha, beta, bias = (
        float(call.attrs.get(n, d)) for n, d in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))
    )
    x, channels = call.value(0), call.shape()[1]
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    widths = np.zeros((2, call.rank()), "int64")
    widths[:, 1] = before, after
    squares = call.do("Pad", call.do("Mul", x, x), widths.reshape(-1))
    total = None
    for i in range(size):
        part = call.do("Slice", squares, np.array([i]), np.array([i + channels]), np.array([1]))
        total = part if total is None else call.do("Add", total, part)
    scaled = call.do("Add", call.do("Mul", total, call.const(alpha / size)), call.const(bias))
    return call.do("Div", x, call.do("Pow", scaled, call.const(beta)))
