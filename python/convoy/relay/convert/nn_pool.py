"""Pooling, padding and resampling by blocks."""

from __future__ import annotations

from tvm import relax, topi

from convoy.relay.convert.context import OpCall, RelaxExpr, converter, is_const
from convoy.relay.convert.nn_conv import flat_padding
from convoy.relay.layout import layout

_POOL = {
    f"nn.{kind}_pool{rank}d": getattr(relax.op.nn, f"{kind}_pool{rank}d")
    for kind in ("max", "avg")
    for rank in (1, 2, 3)
}
_SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


@converter(*_POOL)
def pool(op: OpCall) -> RelaxExpr:
    attrs, rank = op.attrs, int(op.name[-2])
    extra = {"count_include_pad": attrs["count_include_pad"]} if "avg" in op.name else {}
    return _POOL[op.name](
        op.args[0],
        pool_size=tuple(int(v) for v in attrs["pool_size"]),
        strides=tuple(int(v) for v in attrs["strides"]),
        padding=flat_padding(attrs["padding"], rank),
        dilation=tuple(int(v) for v in attrs["dilation"]),
        ceil_mode=attrs["ceil_mode"],
        layout=attrs["layout"],
        **extra,
    )


@converter("nn.max_pool2d_grad", "nn.avg_pool2d_grad")
def pool_grad(op: OpCall) -> RelaxExpr:
    attrs = op.attrs
    if attrs["layout"] != "NCHW":
        raise op.unsupported(f"layout='{attrs['layout']}'", "NCHW")
    return op.te(
        topi.nn.pool_grad,
        op.args[0],
        op.args[1],
        kernel=[int(v) for v in attrs["pool_size"]],
        stride=[int(v) for v in attrs["strides"]],
        padding=flat_padding(attrs["padding"], 2),
        pool_type="max" if "max" in op.name else "avg",
        ceil_mode=attrs["ceil_mode"],
        layout="NCHW",
        count_include_pad=bool(attrs.get("count_include_pad", False)),
    )


@converter("nn.global_avg_pool2d", "nn.global_max_pool2d")
def global_pool2d(op: OpCall) -> RelaxExpr:
    found = layout(op.attrs["layout"], "NCHW")
    if "avg" in op.name and found.name in ("NCHW", "NHWC"):
        return relax.op.nn.adaptive_avg_pool2d(op.args[0], (1, 1), layout=found.name)
    reduce = relax.op.mean if "avg" in op.name else relax.op.max
    return reduce(op.args[0], [found.index("H"), found.index("W")], keepdims=True)


@converter(*(f"nn.adaptive_{kind}_pool{rank}d" for kind in ("avg", "max") for rank in (1, 2, 3)))
def adaptive_pool(op: OpCall) -> RelaxExpr:
    """Windows from floor(i * in / out) to ceil((i + 1) * in / out)."""
    rank, kind = int(op.name[-2]), "avg" if "avg" in op.name else "max"
    size = [int(s) for s in op.attrs["output_size"] or ()]
    if not size:
        return op.args[0]
    size = size * rank if len(size) == 1 else size
    name = op.attrs["layout"]
    if kind == "avg":
        adaptive = getattr(relax.op.nn, f"adaptive_avg_pool{rank}d")
        return adaptive(op.args[0], tuple(size), layout=name)
    compute = {1: topi.nn.adaptive_pool1d, 2: topi.nn.adaptive_pool, 3: topi.nn.adaptive_pool3d}
    return op.te(compute[rank], op.args[0], size, pool_type="max", layout=name)


@converter("nn.batch_flatten")
def batch_flatten(op: OpCall) -> RelaxExpr:
    return relax.op.nn.batch_flatten(op.args[0])


@converter("nn.pad")
def pad(op: OpCall) -> RelaxExpr:
    attrs = op.attrs
    width = [int(v) for pair in attrs["pad_width"] for v in pair]
    mode = attrs["pad_mode"]
    if min(width, default=0) < 0:
        raise op.unsupported(f"pad_width={attrs['pad_width']}", "widths of at least 0")
    if mode == "constant":
        fill = op.args[1]
        if not is_const(fill):
            raise op.unsupported("a fill value that is computed", "a constant")
        return relax.op.nn.pad(op.args[0], width, pad_value=float(fill.value.numpy().reshape(())))
    pairs = attrs["pad_width"]
    before, after = [int(p[0]) for p in pairs], [int(p[1]) for p in pairs]
    if mode == "edge":
        return op.te(topi.nn.replicate_pad, op.args[0], before, after)
    if mode == "reflect":
        return op.te(topi.nn.reflect_pad, op.args[0], before, after)
    raise op.unsupported(f"pad_mode='{mode}'", "'constant', 'edge' or 'reflect'")


@converter("nn.mirror_pad")
def mirror_pad(op: OpCall) -> RelaxExpr:
    pairs = op.attrs["pad_width"]
    before, after = [int(p[0]) for p in pairs], [int(p[1]) for p in pairs]
    if min(before + after) < 0:
        raise op.unsupported(f"pad_width={pairs}", "widths of at least 0")
    return op.te(topi.nn.mirror_pad, op.args[0], before, after, mode=op.attrs["mode"])


@converter("nn.upsampling")
def upsampling(op: OpCall) -> RelaxExpr:
    """Resizing to the scaled size; only bilinear sampling heeds align_corners."""
    attrs = op.attrs
    found = layout(attrs["layout"], "NCHW")
    shape = op.result.shape
    size = (shape[found.index("H")], shape[found.index("W")])
    if not all(isinstance(s, int) for s in size):
        op.result_shape()  # raises
    method = {"nearest_neighbor": "nearest_neighbor", "bilinear": "linear", "bicubic": "cubic"}
    if attrs["method"] not in method:
        raise op.unsupported(f"method='{attrs['method']}'", ", ".join(method))
    nearest = attrs["method"] == "nearest_neighbor"
    mode = "align_corners" if attrs["align_corners"] and not nearest else "asymmetric"
    return relax.op.image.resize2d(
        op.args[0],
        size,
        layout=attrs["layout"],
        method=method[attrs["method"]],
        coordinate_transformation_mode=mode,
        rounding_method="floor" if nearest else "round",
        cubic_alpha=-0.5,
    )


@converter("nn.depth_to_space", "nn.space_to_depth")
def depth_space(op: OpCall) -> RelaxExpr:
    """Blocks of channels to pixels and back, as reshape, transpose, reshape."""
    attrs = op.attrs
    found = layout(attrs["layout"], "NCHW")
    block = attrs.get_int("block_size")
    n, c, h, w = (int(d) for d in found.to_axes(op.shape(0), "NCHW"))  # type: ignore[arg-type]
    value = op.permute(op.args[0], [found.index(a) for a in "NCHW"])
    if op.name == "nn.space_to_depth":
        value = op.reshape(value, (n, c, h // block, block, w // block, block))
        value = op.permute(value, (0, 3, 5, 1, 2, 4))
        value = op.reshape(value, (n, c * block * block, h // block, w // block))
    else:
        inner = c // (block * block)
        if attrs["mode"] == "DCR":
            value = op.reshape(value, (n, block, block, inner, h, w))
            value = op.permute(value, (0, 3, 4, 1, 5, 2))
        elif attrs["mode"] == "CDR":
            value = op.reshape(value, (n, inner, block, block, h, w))
            value = op.permute(value, (0, 1, 4, 2, 5, 3))
        else:
            raise op.unsupported(f"mode='{attrs['mode']}'", "'DCR' or 'CDR'")
        value = op.reshape(value, (n, inner, h * block, w * block))
    return op.permute(value, ["NCHW".index(a) for a in found.axes])
