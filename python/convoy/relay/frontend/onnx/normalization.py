"""Normalization layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import cast, dims, scalar_like
from convoy.relay.frontend.onnx.registry import Node, convert
from convoy.relay.op import nn
from convoy.relay.op import tensor as R


@convert("BatchNormalization")
def batch_norm(node: Node) -> Any:
    """Normalize by given statistics, or by those of the batch with `training_mode`."""
    epsilon = node.attr("epsilon", 1e-5)
    if node.attr("training_mode", 0):
        axes = [a for a in range(node.rank()) if a != 1]
        mean, variance = R.mean(node[0], axis=axes), R.variance(node[0], axis=axes)
        result = nn.batch_norm(node[0], node[1], node[2], mean, variance, 1, epsilon)[0]
        momentum = node.attr("momentum", 0.9)
        kept = [_mixed(node[3], mean, momentum), _mixed(node[4], variance, momentum)]
        return [result, *kept]
    dtype = node.dtype()
    data, scales = node[0], [cast(node[i], dtype) for i in range(1, 5)]
    result = nn.batch_norm(data, *scales, axis=1, epsilon=epsilon)[0]
    # Older exporters name the statistics as outputs of inference too.
    return [result, node[3], node[4], node[3], node[4]][: max(1, len(node.outputs))]


def _mixed(old: Expr, new: Expr, momentum: float) -> Expr:
    kept = R.multiply(old, scalar_like(momentum, old))
    return R.add(kept, R.multiply(new, scalar_like(1 - momentum, new)))


@convert("InstanceNormalization")
def instance_norm(node: Node) -> Expr:
    return nn.instance_norm(node[0], node[1], node[2], axis=1, epsilon=node.attr("epsilon", 1e-5))


@convert("LayerNormalization")
def layer_norm(node: Node) -> Any:
    """Normalize all axes from `axis` on; statistics are computed in float32."""
    axis = node.axis(node.attr("axis", -1))
    epsilon = node.attr("epsilon", 1e-5)
    if axis == node.rank() - 1 and not node.wants(1) and node.rank(1) == 1 and _plain(node):
        return nn.layer_norm(node[0], node[1], node[2], axis=-1, epsilon=epsilon)
    normalized, mean, inverse = standardized(node[0], range(axis, node.rank()), epsilon)
    result = R.multiply(cast(normalized, node.dtype()), node[1])
    if node.get(2) is not None:
        result = R.add(result, node[2])
    return [result, mean, inverse]


def _plain(node: Node) -> bool:
    last = dims(node[0])[-1]
    return node.get(2) is not None and dims(node[1]) == dims(node[2]) == (last,)


def standardized(data: Expr, axes: Sequence[int], epsilon: float) -> tuple[Expr, Expr, Expr]:
    """Return (data - mean) / sqrt(variance + epsilon), the mean and the inverse deviation."""
    wide = cast(data, "float32")
    mean = R.mean(wide, axis=tuple(axes), keepdims=True)
    centred = R.subtract(wide, mean)
    variance = R.mean(R.multiply(centred, centred), axis=tuple(axes), keepdims=True)
    inverse = R.rsqrt(R.add(variance, scalar_like(epsilon, wide)))
    return R.multiply(centred, inverse), mean, inverse


@convert("SkipLayerNormalization", domain="com.microsoft")
def skip_layer_norm(node: Node) -> Any:
    """Normalize the sum of two tensors (and of a bias)."""
    total = R.add(node[0], node[1])
    if node.get(4) is not None:
        total = R.add(total, node[4])
    normalized, mean, inverse = standardized(total, [node.rank() - 1], node.attr("epsilon", 1e-12))
    result = R.multiply(cast(normalized, node.dtype()), node[2])
    if node.get(3) is not None:
        result = R.add(result, node[3])
    return [result, mean, inverse, total]


@convert("GroupNormalization")
def group_norm(node: Node) -> Expr:
    """Normalize groups of channels; scale and bias are by group before opset 21."""
    groups, channels = node.attrs["num_groups"], node.shape()[1]
    scale, bias = node[1], node[2]
    if node.opset < 21 and dims(scale)[0] != channels:
        scale, bias = (R.repeat(v, channels // groups, axis=0) for v in (scale, bias))
    return nn.group_norm(node[0], scale, bias, groups, epsilon=node.attr("epsilon", 1e-5))


@convert("LRN")
def lrn(node: Node) -> Expr:
    """Normalize by the neighbouring channels, (size - 1) // 2 of them in front."""
    size = node.attrs["size"]
    alpha, beta = node.attr("alpha", 1e-4), node.attr("beta", 0.75)
    bias = node.attr("bias", 1.0)
    if size % 2:
        return nn.lrn(node[0], size=size, axis=1, bias=bias, alpha=alpha, beta=beta)
    data = node[0]
    before, channels = (size - 1) // 2, node.shape()[1]
    widths = [(0, 0)] * node.rank()
    widths[1] = (before, size - 1 - before)
    squares = nn.pad(R.multiply(data, data), widths, scalar_like(0, data))
    total = None
    for place in range(size):
        part = R.strided_slice(squares, begin=[place], end=[place + channels], axes=[1])
        total = part if total is None else R.add(total, part)
    assert total is not None
    base = R.add(scalar_like(bias, data), R.multiply(scalar_like(alpha / size, data), total))
    return R.divide(data, R.power(base, scalar_like(beta, data)))


@convert("LpNormalization")
def lp_norm(node: Node) -> Expr:
    axis, p = node.axis(node.attr("axis", -1)), node.attr("p", 2)
    data = node[0]
    if p == 1:
        norm = R.sum(R.abs(data), axis=axis, keepdims=True)
    else:
        norm = R.sqrt(R.sum(R.multiply(data, data), axis=axis, keepdims=True))
    zero = scalar_like(0, data)
    safe = R.where(R.equal(norm, zero), scalar_like(1, data), norm)
    return R.divide(data, safe)


@convert("MeanVarianceNormalization")
def mean_variance_norm(node: Node) -> Expr:
    axes = tuple(node.attr("axes") or (0, 2, 3))
    data = node[0]
    centred = R.subtract(data, R.mean(data, axis=axes, keepdims=True))
    deviation = R.sqrt(R.mean(R.multiply(centred, centred), axis=axes, keepdims=True))
    return R.divide(centred, R.add(deviation, scalar_like(1e-9, data)))
