"""Normalizations at inference, and the bias along a channel axis."""

from __future__ import annotations

from collections.abc import Sequence

from convoy.relay.ast import Call, Expr, TupleWrapper
from convoy.relay.lazy import relax
from convoy.relay.ops.arguments import make_call
from convoy.relay.ops.registry import builder, converter, type_rule
from convoy.relay.ops.relax_call import OpCall, RelaxExpr
from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.shapes import is_int
from convoy.relay.types import TensorType, TupleType, Type


def _channel(call: Inputs, data: TensorType) -> TensorType:
    """Return the type of a vector along the attribute's axis."""
    axis = call.axis(call.attrs.get_int("axis"), len(data.shape))
    return TensorType((data.shape[axis],), data.dtype)


def axis_of(op: OpCall) -> int:
    """Return the attribute `axis` counted from the front."""
    return op.attrs.get_int("axis") % len(op.type(0).shape)


def along(op: OpCall, vector: RelaxExpr, axis: int) -> RelaxExpr:
    """Reshape a vector to broadcast along an axis of argument 0."""
    ndim = len(op.type(0).shape)
    size = op.type(0).shape[axis]
    return op.reshape(vector, [size if i == axis else 1 for i in range(ndim)])  # type: ignore[misc]


@builder("nn.bias_add")
def bias_add(data: Expr, bias: Expr, axis: int = 1) -> Call:
    """Add a vector along an axis."""
    return make_call("nn.bias_add", data, bias, axis=axis)


@type_rule("nn.bias_add")
def infer_vector_along_axis(call: Inputs) -> Type:
    """Infer the type of the data; argument 1 is a vector along the axis."""
    call.count(2)
    data = call.tensor(0)
    call.expect(1, _channel(call, data))
    return data


@converter("nn.bias_add")
def convert_bias_add(op: OpCall) -> RelaxExpr:
    return relax.op.add(op.args[0], along(op, op.args[1], axis_of(op)))


@builder("nn.batch_norm")
def batch_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    moving_mean: Expr,
    moving_var: Expr,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> TupleWrapper:
    """Normalize by given statistics along the channel axis.

    Args:
        data: The data.
        gamma, beta, moving_mean, moving_var: Vectors along `axis`.
        axis: The channel axis.
        epsilon: Added to the variance.
        center, scale: Whether to add `beta`, to multiply by `gamma`.

    Returns:
        (result, moving_mean, moving_var), the statistics unchanged.
    """
    attrs = {"axis": axis, "epsilon": epsilon, "center": center, "scale": scale}
    args = (data, gamma, beta, moving_mean, moving_var)
    return TupleWrapper(make_call("nn.batch_norm", *args, **attrs), 3)


@type_rule("nn.batch_norm")
def infer_batch_norm(call: Inputs) -> Type:
    """Infer (result, moving_mean, moving_var)."""
    call.count(5)
    data = call.tensor(0)
    vector = _channel(call, data)
    for index in range(1, 5):
        call.expect(index, vector)
    return TupleType([data, vector, vector])


@converter("nn.batch_norm")
def convert_batch_norm(op: OpCall) -> RelaxExpr:
    return relax.op.nn.batch_norm(
        *op.args,
        axis=axis_of(op),
        epsilon=op.attrs["epsilon"],
        center=op.attrs["center"],
        scale=op.attrs["scale"],
        training=False,
    )


@builder("nn.layer_norm")
def layer_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    axis: int = -1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Call:
    """Normalize over an axis, then scale and shift along it."""
    attrs = {"axis": axis, "epsilon": epsilon, "center": center, "scale": scale}
    return make_call("nn.layer_norm", data, gamma, beta, **attrs)


@builder("nn.instance_norm")
def instance_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Call:
    """Normalize over all axes but the batch and `axis`, then scale and shift along `axis`."""
    attrs = {"axis": axis, "epsilon": epsilon, "center": center, "scale": scale}
    return make_call("nn.instance_norm", data, gamma, beta, **attrs)


@builder("nn.group_norm")
def group_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    num_groups: int,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Call:
    """Normalize over groups of channels and all axes after the batch.

    Args:
        num_groups: The number of groups, which divides the channels.
    """
    attrs = {"axis": axis, "epsilon": epsilon, "center": center, "scale": scale}
    return make_call("nn.group_norm", data, gamma, beta, num_groups=num_groups, **attrs)


@type_rule("nn.layer_norm", "nn.instance_norm", "nn.group_norm")
def infer_scaled_norm(call: Inputs) -> Type:
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


@converter("nn.layer_norm")
def convert_layer_norm(op: OpCall) -> RelaxExpr:
    """Emit layer_norm; that of Relax computes with gamma and beta whatever its attributes say.

    It takes float16 and float32 alone.
    """
    data, gamma, beta = op.args
    if op.type(0).dtype not in ("float16", "float32"):
        return _affine(op, _normalized(op, data, [axis_of(op)]), axis_of(op))
    if not op.attrs["scale"]:
        gamma = op.emit(relax.op.ones_like(gamma))
    if not op.attrs["center"]:
        beta = op.emit(relax.op.zeros_like(beta))
    return relax.op.nn.layer_norm(
        data, gamma, beta, axes=[axis_of(op)], epsilon=op.attrs["epsilon"]
    )


def _affine(op: OpCall, value: RelaxExpr, axis: int) -> RelaxExpr:
    """Scale and shift along an axis where the attributes `scale` and `center` are set."""
    if op.attrs["scale"]:
        value = op.emit(relax.op.multiply(value, along(op, op.args[1], axis)))
    if op.attrs["center"]:
        value = op.emit(relax.op.add(value, along(op, op.args[2], axis)))
    return value


def _normalized(op: OpCall, value: RelaxExpr, axes: list[int]) -> RelaxExpr:
    """Emit (value - mean) / sqrt(variance + epsilon) over axes."""
    mean = op.emit(relax.op.mean(value, axes, keepdims=True))
    variance = op.emit(relax.op.variance(value, axes, keepdims=True))
    epsilon = op.const(op.attrs["epsilon"], op.type(0).dtype)
    root = op.emit(relax.op.sqrt(op.emit(relax.op.add(variance, epsilon))))
    return op.emit(relax.op.divide(op.emit(relax.op.subtract(value, mean)), root))


@converter("nn.instance_norm")
def convert_instance_norm(op: OpCall) -> RelaxExpr:
    axis = axis_of(op)
    others = [i for i in range(1, len(op.type(0).shape)) if i != axis]
    return _affine(op, _normalized(op, op.args[0], others), axis)


@converter("nn.group_norm")
def convert_group_norm(op: OpCall) -> RelaxExpr:
    axis, groups = axis_of(op), op.attrs.get_int("num_groups")
    shape = op.shape(0)
    split = [*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :]]
    value = op.reshape(op.args[0], split)
    axes = [i for i in range(1, len(split)) if i != axis]
    return _affine(op, op.reshape(_normalized(op, value, axes), shape), axis)


@builder("nn.lrn")
def lrn(
    data: Expr,
    size: int = 5,
    axis: int = 1,
    bias: float = 2,
    alpha: float = 1e-5,
    beta: float = 0.75,
) -> Call:
    """Normalize by the response of neighbors along an axis (AlexNet).

    Computes data / (bias + alpha / size * sum of squares of `size` neighbors) ** beta.
    """
    return make_call("nn.lrn", data, size=size, axis=axis, bias=bias, alpha=alpha, beta=beta)


@type_rule("nn.lrn")
def infer_lrn(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    call.axis(call.attrs.get_int("axis"), len(data.shape))
    if call.attrs.get_int("size") < 1:
        raise call.error(f"size={call.attrs['size']}", "at least 1")
    return data


@converter("nn.lrn")
def convert_lrn(op: OpCall) -> RelaxExpr:
    axis, size, data = axis_of(op), op.attrs.get_int("size"), op.args[0]
    dtype, ndim = op.type(0).dtype, len(op.type(0).shape)
    squares = op.emit(relax.op.multiply(data, data))
    half = size // 2
    width = [half if i // 2 == axis else 0 for i in range(2 * ndim)]
    padded = op.emit(relax.op.nn.pad(squares, width, pad_value=0.0))
    length = op.type(0).shape[axis]
    if not isinstance(length, int):
        length = op.shape(0)[axis]  # raises
    total = None
    for start in range(size):
        part = op.emit(
            relax.op.strided_slice(padded, axes=[axis], begin=[start], end=[start + length])
        )
        total = part if total is None else op.emit(relax.op.add(total, part))
    scaled = op.emit(relax.op.multiply(total, op.const(op.attrs["alpha"] / size, dtype)))
    shifted = op.emit(relax.op.add(scaled, op.const(op.attrs["bias"], dtype)))
    power = op.emit(relax.op.power(shifted, op.const(op.attrs["beta"], dtype)))
    return relax.op.divide(data, power)


@builder("nn.l2_normalize")
def l2_normalize(data: Expr, eps: float, axis: Sequence[int] | None = None) -> Call:
    """Compute data / sqrt(max(sum of squares over axes, eps))."""
    return make_call("nn.l2_normalize", data, eps=eps, axis=axis)


@type_rule("nn.l2_normalize")
def infer_l2_normalize(call: Inputs) -> Type:
    call.count(1)
    data = call.tensor(0)
    for axis in call.attrs["axis"] or ():
        call.axis(axis, len(data.shape))
    return data


@converter("nn.l2_normalize")
def convert_l2_normalize(op: OpCall) -> RelaxExpr:
    data, dtype = op.args[0], op.type(0).dtype
    axes = [int(a) for a in op.attrs["axis"] or range(len(op.type(0).shape))]
    squares = op.emit(relax.op.multiply(data, data))
    total = op.emit(relax.op.sum(squares, axes, keepdims=True))
    floor = op.emit(relax.op.maximum(total, op.const(op.attrs["eps"], dtype)))
    return relax.op.divide(data, op.emit(relax.op.sqrt(floor)))
