"""FlattenAtrousConv: a dilated convolution that is written with blocks of space as batches."""

from __future__ import annotations

from convoy.relay.ast import Call, Constant, Expr, op_call
from convoy.relay.transform.base import Pass, register_pass
from convoy.relay.transform.rewriting import call_pass, op_name


@register_pass
def FlattenAtrousConv() -> Pass:
    """Write space_to_batch_nd, conv2d, batch_to_space_nd as one convolution with dilation.

    So do exporters of TensorFlow write it. Rows and columns of channels-last data are meant; the
    convolution has stride 1.
    """
    return call_pass("FlattenAtrousConv", 0, lambda: _flattened)


def _flattened(pre: Call, call: Call) -> Expr | None:
    if op_name(call) != "nn.batch_to_space_nd":
        return None
    conv = call.args[0]
    if op_name(conv) not in ("nn.conv2d", "qnn.conv2d"):
        return None
    assert isinstance(conv, Call)
    split = conv.args[0]
    if op_name(split) != "nn.space_to_batch_nd" or conv.attrs is None:
        return None
    assert isinstance(split, Call) and split.attrs is not None and call.attrs is not None
    block = [int(b) for b in split.attrs["block_shape"]]
    plain = conv.attrs["data_layout"] == "NHWC" and all(s == 1 for s in conv.attrs["strides"])
    if not plain or len(block) != 2 or [int(b) for b in call.attrs["block_shape"]] != block:
        return None
    if not _pads_like(split, conv):
        return None
    inner = [int(p) for p in conv.attrs["padding"]]  # top, left, bottom, right
    padding = [0] * 4
    for axis in (0, 1):
        for side in (0, 1):
            outer = int(split.attrs["paddings"][axis][side]) - int(call.attrs["crops"][axis][side])
            at = 2 * side + axis
            padding[at] = outer + inner[at] * block[axis]
    if min(padding) < 0:
        return None
    dilation = [b * int(d) for b, d in zip(block, conv.attrs["dilation"], strict=True)]
    attrs = {**conv.attrs, "padding": padding, "dilation": dilation}
    return op_call(op_name(conv), [split.args[0], *conv.args[1:]], **attrs)


def _pads_like(split: Call, conv: Call) -> bool:
    """Check that the blocks are padded with what the convolution pads with."""
    assert split.attrs is not None
    value = float(split.attrs["pad_value"])
    if op_name(conv) == "nn.conv2d":
        return value == 0
    zero = conv.args[2]
    return isinstance(zero, Constant) and zero.value.size == 1 and zero.value.item() == value
