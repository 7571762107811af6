"""Normalisations, biases and softmax."""

from __future__ import annotations

from tvm import relax

from convoy.relay.convert.context import OpCall, RelaxExpr, converter


def _axis(op: OpCall) -> int:
    return op.attrs.get_int("axis") % len(op.type(0).shape)


def _along(op: OpCall, vector: RelaxExpr, axis: int) -> RelaxExpr:
    """A vector in a shape that broadcasts along an axis of argument 0."""
    ndim = len(op.type(0).shape)
    size = op.type(0).shape[axis]
    return op.reshape(vector, [size if i == axis else 1 for i in range(ndim)])  # type: ignore[misc]


@converter("nn.batch_norm")
def batch_norm(op: OpCall) -> RelaxExpr:
    return relax.op.nn.batch_norm(
        *op.args,
        axis=_axis(op),
        epsilon=op.attrs["epsilon"],
        center=op.attrs["center"],
        scale=op.attrs["scale"],
        training=False,
    )


@converter("nn.bias_add")
def bias_add(op: OpCall) -> RelaxExpr:
    return relax.op.add(op.args[0], _along(op, op.args[1], _axis(op)))


@converter("nn.layer_norm")
def layer_norm(op: OpCall) -> RelaxExpr:
    return relax.op.nn.layer_norm(
        *op.args,
        axes=[_axis(op)],
        epsilon=op.attrs["epsilon"],
        center=op.attrs["center"],
        scale=op.attrs["scale"],
    )


def _affine(op: OpCall, value: RelaxExpr, axis: int) -> RelaxExpr:
    """Scale and shift along an axis, as far as the attributes ask for them."""
    if op.attrs["scale"]:
        value = op.emit(relax.op.multiply(value, _along(op, op.args[1], axis)))
    if op.attrs["center"]:
        value = op.emit(relax.op.add(value, _along(op, op.args[2], axis)))
    return value


def _normalized(op: OpCall, value: RelaxExpr, axes: list[int]) -> RelaxExpr:
    """(value - mean) / sqrt(variance + epsilon) over axes."""
    mean = op.emit(relax.op.mean(value, axes, keepdims=True))
    variance = op.emit(relax.op.variance(value, axes, keepdims=True))
    epsilon = op.const(op.attrs["epsilon"], op.type(0).dtype)
    root = op.emit(relax.op.sqrt(op.emit(relax.op.add(variance, epsilon))))
    return op.emit(relax.op.divide(op.emit(relax.op.subtract(value, mean)), root))


@converter("nn.instance_norm")
def instance_norm(op: OpCall) -> RelaxExpr:
    axis = _axis(op)
    others = [i for i in range(1, len(op.type(0).shape)) if i != axis]
    return _affine(op, _normalized(op, op.args[0], others), axis)


@converter("nn.group_norm")
def group_norm(op: OpCall) -> RelaxExpr:
    """Mean and variance over the channels of a group and all axes behind the batch."""
    axis, groups = _axis(op), op.attrs.get_int("num_groups")
    shape = op.shape(0)
    split = [*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :]]
    value = op.reshape(op.args[0], split)
    axes = [i for i in range(1, len(split)) if i != axis]
    return _affine(op, op.reshape(_normalized(op, value, axes), shape), axis)


@converter("nn.softmax", "nn.fast_softmax")
def softmax(op: OpCall) -> RelaxExpr:
    return relax.op.nn.softmax(op.args[0], axis=_axis(op))


@converter("nn.log_softmax")
def log_softmax(op: OpCall) -> RelaxExpr:
    return relax.op.nn.log_softmax(op.args[0], axis=_axis(op))


@converter("nn.lrn")
def lrn(op: OpCall) -> RelaxExpr:
    """data / (bias + alpha / size * sum of squares in the window) ** beta."""
    axis, size, data = _axis(op), op.attrs.get_int("size"), op.args[0]
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


@converter("nn.l2_normalize")
def l2_normalize(op: OpCall) -> RelaxExpr:
    """data / sqrt(max(sum of squares, eps))."""
    data, dtype = op.args[0], op.type(0).dtype
    axes = [int(a) for a in op.attrs["axis"] or range(len(op.type(0).shape))]
    squares = op.emit(relax.op.multiply(data, data))
    total = op.emit(relax.op.sum(squares, axes, keepdims=True))
    floor = op.emit(relax.op.maximum(total, op.const(op.attrs["eps"], dtype)))
    return relax.op.divide(data, op.emit(relax.op.sqrt(floor)))


@converter("nn.dropout")
def dropout(op: OpCall) -> RelaxExpr:
    """The identity at inference; the mask is all ones."""
    data = op.args[0]
    return relax.Tuple([data, op.emit(relax.op.ones_like(data))])


@converter("nn.prelu")
def prelu(op: OpCall) -> RelaxExpr:
    """x where x > 0, alpha * x elsewhere."""
    data = op.args[0]
    slope = op.emit(relax.op.multiply(data, _along(op, op.args[1], _axis(op))))
    positive = op.emit(relax.op.greater(data, op.const(0, op.type(0).dtype)))
    return relax.op.where(positive, data, slope)


@converter("nn.cross_entropy", "nn.cross_entropy_with_logits")
def cross_entropy(op: OpCall) -> RelaxExpr:
    """-sum(targets * log(predictions)) / batch; with logits the predictions are logarithms."""
    x, targets = op.args
    batch = op.shape(0)[0]
    if op.name == "nn.cross_entropy":
        x = op.emit(relax.op.log(x))
    total = op.emit(relax.op.sum(op.emit(relax.op.multiply(x, targets))))
    return relax.op.divide(total, op.const(-batch, op.type(0).dtype))
