"""Normalization layers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from convoy.relay.ast import Expr
from convoy.relay.frontend.common import const, dtype_of, infer_shape, rank, reshape, scalar_like
from convoy.relay.frontend.pytorch.registry import Call, convert
from convoy.relay.op import nn
from convoy.relay.op import tensor as R


def _filled(call: Call, name: str, count: int, value: float) -> Expr:
    """Return a parameter of a layer, or a vector of one value where it has none."""
    if call.get(name) is not None:
        return call[name]
    return const(np.full(count, value, dtype_of(call["input"])))


@convert("batch_norm", "_native_batch_norm_legit_no_training", "native_batch_norm",
         "_native_batch_norm_legit", "cudnn_batch_norm")  # fmt: skip
def batch_norm(call: Call) -> Any:
    """Normalize by the running statistics; by those of the batch where the layer has none."""
    if call.get("running_mean") is None:
        return _of_batch(call)
    if call.get("training") or call.get("train"):
        call.warn_of_training()
    data = call["input"]
    channels = infer_shape(data)[1]
    weight, bias = _filled(call, "weight", channels, 1), _filled(call, "bias", channels, 0)
    statistics = (call["running_mean"], call["running_var"])
    result = nn.batch_norm(data, weight, bias, *statistics, epsilon=call.get("eps", 1e-5))[0]
    return result if call.short in ("batch_norm",) else [result, None, None, None]


def _of_batch(call: Call) -> Any:
    """Normalize by the statistics of the batch, where the layer tracks none."""
    data = call["input"]
    channels = infer_shape(data)[1]
    axes = [a for a in range(rank(data)) if a != 1]
    weight, bias = _filled(call, "weight", channels, 1), _filled(call, "bias", channels, 0)
    mean, variance = R.mean(data, axis=axes), R.variance(data, axis=axes)
    result = nn.batch_norm(data, weight, bias, mean, variance, epsilon=call.get("eps", 1e-5))[0]
    return result if call.short == "batch_norm" else [result, None, None, None]


@convert("layer_norm", "native_layer_norm")
def layer_norm(call: Call) -> Any:
    """Normalize the last axes."""
    data = call["input"]
    shape = call.ints("normalized_shape")
    assert shape is not None
    epsilon = call.get("eps", 1e-5)
    flat, count = data, math.prod(shape)
    if len(shape) > 1:
        flat = reshape(data, (*infer_shape(data)[: -len(shape)], count))
    weight = reshape(_filled(call, "weight", count, 1), (count,))
    bias = reshape(_filled(call, "bias", count, 0), (count,))
    result = nn.layer_norm(flat, weight, bias, axis=-1, epsilon=epsilon)
    if len(shape) > 1:
        result = reshape(result, infer_shape(data))
    return [result, None, None] if call.short == "native_layer_norm" else result


@convert("group_norm", "native_group_norm")
def group_norm(call: Call) -> Any:
    data = call["input"]
    channels = infer_shape(data)[1]
    groups = call.get("num_groups") or call.get("group")
    weight, bias = _filled(call, "weight", channels, 1), _filled(call, "bias", channels, 0)
    result = nn.group_norm(data, weight, bias, groups, epsilon=call.get("eps", 1e-5))
    return [result, None, None] if call.short == "native_group_norm" else result


@convert("instance_norm")
def instance_norm(call: Call) -> Expr:
    data = call["input"]
    if not call.get("use_input_stats", True):
        return batch_norm(call)
    channels = infer_shape(data)[1]
    weight, bias = _filled(call, "weight", channels, 1), _filled(call, "bias", channels, 0)
    return nn.instance_norm(data, weight, bias, epsilon=call.get("eps", 1e-5))


@convert("rms_norm")
def rms_norm(call: Call) -> Expr:
    data = call["input"]
    shape = call.ints("normalized_shape")
    assert shape is not None
    axes = tuple(range(rank(data) - len(shape), rank(data)))
    epsilon = call.get("eps", float(np.finfo(dtype_of(data)).eps))
    mean = R.mean(R.multiply(data, data), axis=axes, keepdims=True)
    result = R.multiply(data, R.rsqrt(R.add(mean, scalar_like(epsilon, data))))
    return R.multiply(result, call["weight"]) if call.get("weight") is not None else result


@convert("local_response_norm")
def local_response_norm(call: Call) -> Expr:
    return nn.lrn(
        call["input"], size=call.get("size"), bias=call.get("k", 1.0),
        alpha=call.get("alpha", 1e-4), beta=call.get("beta", 0.75),
    )  # fmt: skip
