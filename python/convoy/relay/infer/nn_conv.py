"""Convolutions, forward, transposed and backward-weight."""

from __future__ import annotations

from collections.abc import Sequence

from convoy.relay.infer.rules import Inputs, rule, same_dim
from convoy.relay.types import Any, Dim, TensorType, Type

_SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


def total_padding(padding: Sequence[int], rank: int) -> list[tuple[int, int]]:
    """Per spatial axis the padding before and after, from 1, `rank` or `2 * rank` values.

    Raises:
        ValueError: another number of values.
    """
    if len(padding) == 1:
        return [(padding[0], padding[0])] * rank
    if len(padding) == rank:
        return [(p, p) for p in padding]
    if len(padding) == 2 * rank:
        return list(zip(padding[:rank], padding[rank:], strict=False))
    raise ValueError(len(padding))


def paddings(call: Inputs, rank: int) -> list[tuple[int, int]]:
    """As total_padding, of the attribute `padding`."""
    values = call.ints("padding")
    try:
        return total_padding(values, rank)
    except ValueError:
        raise call.error(f"padding={list(values)}", f"1, {rank} or {2 * rank} values") from None


def _quotient(call: Inputs, size: Dim, groups: int, what: str) -> Dim:
    if not isinstance(size, int):
        return Any()
    if groups <= 0 or size % groups:
        raise call.error(f"{size} {what} in groups={groups}", "a divisor")
    return size // groups


def _kernel(call: Inputs, rank: int, weight_axes: str, inferred: list[Dim]) -> list[Dim]:
    """The kernel's shape in the order `weight_axes`.

    Where attributes give channels and kernel_size they define the weight's type; else its type
    must be known. `inferred` are the sizes of the two channel axes as far as attributes say.
    """
    attrs = call.attrs
    kernel = call.layout(attrs["kernel_layout"], weight_axes)
    if attrs["channels"] is not None and attrs["kernel_size"] is not None:
        shape = (*inferred, *call.positive("kernel_size", rank))
        weight = call.known(1)
        dtype = weight.dtype if weight else call.tensor(0).dtype
        call.expect(1, TensorType(kernel.from_axes(shape, weight_axes), dtype))
        return list(shape)
    weight = call.tensor(1, len(kernel.parts))
    shape = kernel.to_axes(weight.shape, weight_axes)
    for name, wanted, got in zip(weight_axes, inferred, shape, strict=False):
        if not same_dim(wanted, got):
            raise call.error(
                f"argument 1 is {weight}, {got} along {name}", f"{wanted} along {name}"
            )
    if attrs["kernel_size"] is not None:
        size = call.positive("kernel_size", rank)
        if not all(map(same_dim, size, shape[2:])):
            raise call.error(f"argument 1 is {weight}", f"kernel_size={list(size)}")
    return list(shape)


def _extent(kernel: Dim, dilation: int) -> Dim:
    return (kernel - 1) * dilation + 1 if isinstance(kernel, int) else Any()


def _conv(call: Inputs, rank: int) -> Type:
    """out = (in + padding - ((k - 1) * dilation + 1)) / stride + 1."""
    call.count(2)
    spatial = _SPATIAL[rank]
    attrs, groups = call.attrs, call.attrs.get_int("groups")
    layout = call.layout(attrs["data_layout"], "NC" + spatial)
    data = call.tensor(0, len(layout.parts))
    n, c, *size = layout.to_axes(data.shape, "NC" + spatial)
    strides, dilation = call.positive("strides", rank), call.positive("dilation", rank)
    channels = attrs["channels"]
    inferred: list[Dim] = [
        Any() if channels is None else channels,
        _quotient(call, c, groups, "channels"),
    ]
    out_channels, _, *kernel = _kernel(call, rank, "OI" + spatial, inferred)
    if isinstance(out_channels, int):
        _quotient(call, out_channels, groups, "output channels")
    out: list[Dim] = []
    for i, (before, after) in enumerate(paddings(call, rank)):
        extent = _extent(kernel[i], dilation[i])
        out.append(_out_size(call, size[i], extent, before + after, strides[i]))
    out_layout = call.layout(attrs["out_layout"] or attrs["data_layout"], "NC" + spatial)
    shape = out_layout.from_axes((n, out_channels, *out), "NC" + spatial)
    return TensorType(shape, call.out_dtype(data.dtype))


def _out_size(call: Inputs, size: Dim, extent: Dim, padding: int, stride: int) -> Dim:
    if not isinstance(size, int) or not isinstance(extent, int):
        return Any()
    if size + padding < extent:
        raise call.error(
            f"a window of {extent} over {size} with padding {padding}", "a smaller one"
        )
    return (size + padding - extent) // stride + 1


@rule("nn.conv1d")
def conv1d(call: Inputs) -> Type:
    return _conv(call, 1)


@rule("nn.conv2d", "nn.contrib_conv2d_NCHWc", "nn.contrib_depthwise_conv2d_NCHWc")
def conv2d(call: Inputs) -> Type:
    return _conv(call, 2)


@rule("nn.conv3d")
def conv3d(call: Inputs) -> Type:
    return _conv(call, 3)


def _conv_transpose(call: Inputs, rank: int) -> Type:
    """out = (in - 1) * stride + (k - 1) * dilation + 1 - padding + output_padding."""
    call.count(2)
    spatial = _SPATIAL[rank]
    attrs, groups = call.attrs, call.attrs.get_int("groups")
    layout = call.layout(attrs["data_layout"], "NC" + spatial)
    data = call.tensor(0, len(layout.parts))
    n, c, *size = layout.to_axes(data.shape, "NC" + spatial)
    strides, dilation = call.positive("strides", rank), call.positive("dilation", rank)
    extra = call.ints("output_padding")
    if len(extra) == 1:
        extra = extra * rank
    if len(extra) != rank:
        raise call.error(f"output_padding={list(extra)}", f"{rank} values")
    _quotient(call, c, groups, "channels")
    channels = attrs["channels"]
    per_group: Dim = Any() if channels is None else _quotient(call, channels, groups, "channels")
    _, out_per_group, *kernel = _kernel(call, rank, "IO" + spatial, [c, per_group])
    out: list[Dim] = []
    for i, (before, after) in enumerate(paddings(call, rank)):
        extent, d = _extent(kernel[i], dilation[i]), size[i]
        if isinstance(extent, int) and isinstance(d, int):
            result = (d - 1) * strides[i] + extent - before - after + extra[i]
            if result <= 0:
                raise call.error(f"an output of {result} elements along {spatial[i]}", "at least 1")
            out.append(result)
        else:
            out.append(Any())
    total = out_per_group * groups if isinstance(out_per_group, int) else Any()
    out_layout = call.layout(attrs["out_layout"] or attrs["data_layout"], "NC" + spatial)
    shape = out_layout.from_axes((n, total, *out), "NC" + spatial)
    return TensorType(shape, call.out_dtype(data.dtype))


@rule("nn.conv1d_transpose")
def conv1d_transpose(call: Inputs) -> Type:
    return _conv_transpose(call, 1)


@rule("nn.conv2d_transpose")
def conv2d_transpose(call: Inputs) -> Type:
    return _conv_transpose(call, 2)


@rule("nn.conv3d_transpose")
def conv3d_transpose(call: Inputs) -> Type:
    return _conv_transpose(call, 3)


@rule("nn.conv2d_backward_weight")
def conv2d_backward_weight(call: Inputs) -> Type:
    """The weight's gradient, (O, I / groups, kh, kw) in the kernel's layout.

    The operator uses Conv2DAttrs with shifted meanings: `data_layout` is the gradient's layout,
    `kernel_layout` the data's and `out_layout` the kernel's.
    """
    call.count(2)
    attrs, groups = call.attrs, call.attrs.get_int("groups")
    grad_layout = call.layout(attrs["data_layout"], "NCHW")
    data_layout = call.layout(attrs["kernel_layout"], "NCHW")
    kernel_layout = call.layout(attrs["out_layout"] or "OIHW", "OIHW")
    grad = call.tensor(0, len(grad_layout.parts))
    data = call.tensor(1, len(data_layout.parts))
    batch, out_channels, *_ = grad_layout.to_axes(grad.shape, "NCHW")
    data_batch, in_channels, *_ = data_layout.to_axes(data.shape, "NCHW")
    if not same_dim(batch, data_batch):
        raise call.error(f"batches of {batch} and {data_batch}", "one batch")
    shape = (
        out_channels,
        _quotient(call, in_channels, groups, "channels"),
        *call.positive("kernel_size", 2),
    )
    return TensorType(kernel_layout.from_axes(shape, "OIHW"), call.out_dtype(grad.dtype))


@rule("nn.deformable_conv2d")
def deformable_conv2d(call: Inputs) -> Type:
    """As conv2d; the offset's shape must be (n, 2 * deformable_groups * kh * kw, oh, ow)."""
    call.count(3)
    attrs = call.attrs
    weight = call.tensor(2)
    plain = Inputs(call.call, [call.type(0), weight])
    result = _conv(plain, 2)
    assert isinstance(result, TensorType)
    layout = call.layout(attrs["data_layout"], "NCHW")
    n, _, h, w = layout.to_axes(result.shape, "NCHW")
    kernel = call.layout(attrs["kernel_layout"], "OIHW").to_axes(weight.shape, "OIHW")[2:]
    offsets: Dim = Any()
    if all(isinstance(k, int) for k in kernel):
        offsets = 2 * attrs.get_int("deformable_groups") * int(kernel[0]) * int(kernel[1])  # type: ignore[arg-type]
    call.expect(1, TensorType(layout.from_axes((n, offsets, h, w), "NCHW"), call.tensor(0).dtype))
    return result
