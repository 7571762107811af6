"""Windows, blocks and regions of tensors, and a few rare operators: all by TVM's topi."""

from __future__ import annotations

from typing import Any

from tvm import relax, topi

from convoy.relay.convert.context import OpCall, RelaxExpr, converter, is_const
from convoy.relay.convert.nn_conv import flat_padding
from convoy.relay.convert.shape import fields_of
from convoy.relay.layout import layout


def _ints(values: Any) -> list[int]:
    return [int(v) for v in values]


@converter("reinterpret")
def reinterpret(op: OpCall) -> RelaxExpr:
    return op.te(topi.reinterpret, op.args[0], op.attrs["dtype"])


@converter("nn.dilate")
def dilate(op: OpCall) -> RelaxExpr:
    value = float(op.attrs["dilation_value"])
    return op.te(topi.nn.dilate, op.args[0], _ints(op.attrs["strides"]), value)


@converter("nn.space_to_batch_nd")
def space_to_batch(op: OpCall) -> RelaxExpr:
    pairs = op.attrs["paddings"]
    return op.te(
        topi.nn.space_to_batch_nd,
        op.args[0],
        _ints(op.attrs["block_shape"]),
        _ints(p[0] for p in pairs),
        _ints(p[1] for p in pairs),
        float(op.attrs["pad_value"]),
    )


@converter("nn.batch_to_space_nd")
def batch_to_space(op: OpCall) -> RelaxExpr:
    """Blocks out of the batch, interleaved with the axes that they lie on, then cropped."""
    shape, block = op.shape(0), _ints(op.attrs["block_shape"])
    rank, rest = len(block), list(shape[len(block) + 1 :])
    batch = shape[0]
    for size in block:
        batch //= size
    value = op.reshape(op.args[0], [*block, batch, *shape[1 : rank + 1], *rest])
    order = [rank]
    for i in range(rank):
        order += [rank + 1 + i, i]
    value = op.permute(value, [*order, *range(2 * rank + 1, 2 * rank + 1 + len(rest))])
    whole = [d * size for d, size in zip(shape[1:], block, strict=False)]
    value = op.reshape(value, [batch, *whole, *rest])
    ends = [w - int(p[1]) for w, p in zip(whole, op.attrs["crops"], strict=True)]
    begins = [int(p[0]) for p in op.attrs["crops"]]
    if begins == [0] * rank and ends == whole:
        return value
    axes = list(range(1, rank + 1))
    return relax.op.strided_slice(value, axes=axes, begin=begins, end=ends)


@converter("nn.upsampling3d")
def upsampling3d(op: OpCall) -> RelaxExpr:
    attrs = op.attrs
    found, shape = layout(attrs["layout"], "NCDHW"), op.result_shape()
    methods = {"nearest_neighbor": "nearest_neighbor", "trilinear": "linear"}
    if attrs["method"] not in methods:
        raise op.unsupported(f"method='{attrs['method']}'", ", ".join(methods))
    nearest = attrs["method"] == "nearest_neighbor"
    return op.te(
        topi.image.resize3d,
        op.args[0],
        [0.0] * 6,
        [shape[found.index(a)] for a in "DHW"],
        attrs["layout"],
        methods[attrs["method"]],
        "asymmetric" if nearest else attrs["coordinate_transformation_mode"],
        "floor" if nearest else "round",
    )


@converter("sliding_window")
def sliding_window(op: OpCall) -> RelaxExpr:
    attrs, axis = op.attrs, op.attrs.get_int("axis") % len(op.type(0).shape)
    window, strides = _ints(attrs["window_shape"]), _ints(attrs["strides"])
    return op.te(topi.sliding_window, op.args[0], axis, window, strides)


@converter("invert_permutation")
def invert_permutation(op: OpCall) -> RelaxExpr:
    """The order in which the indices stand: what sorting them would move where."""
    return relax.op.argsort(op.args[0], 0, False, op.type(0).dtype)


@converter("matrix_set_diag")
def matrix_set_diag(op: OpCall) -> RelaxExpr:
    attrs = op.attrs
    sides = (attrs["super_diag_right_align"], attrs["sub_diag_right_align"])
    align = "_".join("RIGHT" if side else "LEFT" for side in sides)
    k = (int(attrs["k1"]), int(attrs["k2"]))
    return op.te(topi.matrix_set_diag, op.args[0], op.args[1], k, align)


@converter("strided_set")
def strided_set(op: OpCall) -> RelaxExpr:
    if not all(is_const(a) for a in op.args[2:]):
        raise op.unsupported("bounds that are computed", "constants")
    bounds = [_ints(a.value.numpy().reshape(-1)) for a in op.args[2:]]
    shape, part = op.shape(0), op.shape(1)
    if len(bounds[0]) != len(shape) or len(part) != len(shape):
        raise op.unsupported(f"bounds {bounds[0]} of {list(shape)}", "bounds for every axis")
    return op.te(topi.strided_set, *op.args)


@converter("unravel_index")
def unravel_index(op: OpCall) -> RelaxExpr:
    return op.te(topi.unravel_index, *op.args)


@converter("searchsorted")
def searchsorted(op: OpCall) -> RelaxExpr:
    return op.te(topi.searchsorted, *op.args, bool(op.attrs["right"]), op.result.dtype)


@converter("adv_index")
def adv_index(op: OpCall) -> RelaxExpr:
    data, *indices = fields_of(op, 0)
    return op.te(topi.adv_index, data, indices)


@converter("fixed_point_multiply")
def fixed_point_multiply(op: OpCall) -> RelaxExpr:
    return op.te(
        topi.fixed_point_multiply, op.args[0], int(op.attrs["multiplier"]), int(op.attrs["shift"])
    )


@converter("nn.nll_loss")
def nll_loss(op: OpCall) -> RelaxExpr:
    reduction = op.attrs["reduction"]
    return op.te(topi.nn.nll_loss, *op.args, reduction, int(op.attrs["ignore_index"]))


@converter("image.crop_and_resize")
def crop_and_resize(op: OpCall) -> RelaxExpr:
    attrs = op.attrs
    return op.te(
        topi.image.crop_and_resize,
        *op.args,
        _ints(attrs["crop_size"]),
        attrs["layout"],
        attrs["method"],
        float(attrs["extrapolation_value"]),
        op.result.dtype,
    )


@converter("image.dilation2d")
def dilation2d(op: OpCall) -> RelaxExpr:
    attrs = op.attrs
    layouts = (attrs["data_layout"], attrs["kernel_layout"])
    compute = {
        ("NCHW", "IHW"): topi.image.dilation2d_nchw,
        ("NHWC", "HWI"): topi.image.dilation2d_nhwc,
    }
    if layouts not in compute:
        raise op.unsupported(f"layouts {layouts}", "NCHW with IHW, or NHWC with HWI")
    return op.te(
        compute[layouts],
        *op.args,
        _ints(attrs["strides"]),
        flat_padding(attrs["padding"], 2),
        _ints(attrs["dilations"]),
        op.result.dtype,
    )


@converter("vision.roi_align")
def roi_align(op: OpCall) -> RelaxExpr:
    attrs = op.attrs
    compute = {
        "NCHW": topi.vision.roi_align_nchw,
        "NHWC": topi.vision.roi_align_nhwc,
    }
    if attrs["layout"] not in compute:
        raise op.unsupported(f"layout='{attrs['layout']}'", "NCHW or NHWC")
    return op.te(
        compute[attrs["layout"]],
        *op.args,
        _ints(attrs["pooled_size"]),
        float(attrs["spatial_scale"]),
        attrs["mode"],
        int(attrs["sample_ratio"]),
    )


@converter("vision.roi_pool")
def roi_pool(op: OpCall) -> RelaxExpr:
    attrs = op.attrs
    if attrs["layout"] != "NCHW":
        raise op.unsupported(f"layout='{attrs['layout']}'", "NCHW")
    size = _ints(attrs["pooled_size"])
    return op.te(topi.vision.roi_pool_nchw, *op.args, size, float(attrs["spatial_scale"]))
