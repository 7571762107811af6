"""Normalisations and what keeps the shape in nn."""

from __future__ import annotations

from convoy.relay.infer.rules import Inputs, is_int, rule
from convoy.relay.types import TensorType, TupleType, Type


def _channel(call: Inputs, data: TensorType, field: str = "axis") -> TensorType:
    """The type of a vector along the attribute's axis."""
    axis = call.axis(call.attrs.get_int(field), len(data.shape))
    return TensorType((data.shape[axis],), data.dtype)


@rule("nn.batch_norm")
def batch_norm(call: Inputs) -> Type:
    """(out, moving_mean, moving_var)."""
    call.count(5)
    data = call.tensor(0)
    vector = _channel(call, data)
    for index in range(1, 5):
        call.expect(index, vector)
    return TupleType([data, vector, vector])


@rule("nn.layer_norm", "nn.instance_norm", "nn.group_norm")
def scaled_norm(call: Inputs) -> Type:
    call.count(3)
    data = call.tensor(0)
    vector = _channel(call, data)
    call.expect(1, vector)
    call.expect(2, vector)
    if call.name == "nn.group_norm":
        groups, size = call.attrs.get_int("num_groups"), vector.shape[0]
        if groups <= 0 or (is_int(size) and int(size) % groups):  # type: ignore[arg-type]
            raise call.error(f"num_groups={groups} of {size} channels", "a divisor")
    return data


@rule("nn.bias_add", "nn.prelu")
def along_axis(call: Inputs) -> Type:
    call.count(2)
    data = call.tensor(0)
    call.expect(1, _channel(call, data))
    return data


@rule("nn.softmax", "nn.log_softmax", "nn.fast_softmax")
def softmax(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    call.axis(call.attrs.get_int("axis"), len(data.shape))
    return data


@rule("nn.lrn")
def lrn(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    call.axis(call.attrs.get_int("axis"), len(data.shape))
    if call.attrs.get_int("size") % 2 != 1:
        raise call.error(f"size={call.attrs['size']}", "an odd number")
    return data


@rule("nn.l2_normalize")
def l2_normalize(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    for axis in call.attrs["axis"] or ():
        call.axis(axis, len(data.shape))
    return data


@rule("nn.dropout")
def dropout(call: Inputs) -> Type:
    """(data, mask)."""
    call.count(1)
    data = call.tensor(0)
    return TupleType([data, data])


@rule("nn.cross_entropy", "nn.cross_entropy_with_logits")
def cross_entropy(call: Inputs) -> Type:
    call.count(2)
    x = call.tensor(0)
    call.expect(1, x)
    return TensorType((), x.dtype)
