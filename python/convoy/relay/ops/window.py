"""Geometry of convolution and pooling windows: padding, extents, the shapes of weights."""

from __future__ import annotations

from collections.abc import Sequence

from convoy.relay.ops.type_inputs import Inputs
from convoy.relay.shapes import computed, same_dim
from convoy.relay.types import Any as DynamicDim
from convoy.relay.types import Dim, TensorType

# The spatial axes by their number.
SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


def rank_of(name: str) -> int:
    """Read the number of spatial axes off an operator's name: 2 of "nn.conv2d"."""
    return next(rank for rank in SPATIAL if f"{rank}d" in name)


def total_padding(padding: Sequence[int], rank: int) -> list[tuple[int, int]]:
    """Split padding into (before, after) for each spatial axis.

    Args:
        padding: 1, `rank` or `2 * rank` values; of the last, all before come first.
        rank: The number of spatial axes.

    Raises:
        ValueError: Another number of values.
    """
    if len(padding) == 1:
        return [(padding[0], padding[0])] * rank
    if len(padding) == rank:
        return [(p, p) for p in padding]
    if len(padding) == 2 * rank:
        return list(zip(padding[:rank], padding[rank:], strict=False))
    raise ValueError(len(padding))


def infer_padding(call: Inputs, rank: int) -> list[tuple[int, int]]:
    """Split the attribute `padding` as `total_padding` does, for a type rule."""
    values = call.ints("padding")
    try:
        return total_padding(values, rank)
    except ValueError:
        raise call.error(f"padding={list(values)}", f"1, {rank} or {2 * rank} values") from None


def relax_padding(padding: Sequence[int], rank: int) -> list[int]:
    """Order padding as Relax takes it: all values before, then all values after."""
    pairs = total_padding([int(p) for p in padding], rank)
    return [b for b, _ in pairs] + [a for _, a in pairs]


def dilated_extent(kernel: Dim, dilation: int) -> Dim:
    """Return how many elements a dilated kernel spans along an axis."""
    return computed(lambda n: (n - 1) * dilation + 1, kernel)


def infer_window(call: Inputs, size: Dim, extent: Dim, padding: int, stride: int) -> Dim:
    """Return the output size along an axis, (size + padding - extent) / stride + 1.

    Args:
        call: The call, for the error.
        size: The input size.
        extent: The window's dilated extent.
        padding: The padding on both sides together.
        stride: The stride.

    Raises:
        RelayTypeError: The window is larger than the padded input.
    """
    if not isinstance(size, int) or not isinstance(extent, int):
        return computed(lambda n, k: (n + padding - k) // stride + 1, size, extent)
    room = size + padding - extent
    if room < 0:
        raise call.error(
            f"a window of {extent} over {size} with padding {padding}", "a smaller one"
        )
    return room // stride + 1


def group_size(call: Inputs, size: Dim, groups: int, what: str) -> Dim:
    """Divide channels by the number of groups.

    Raises:
        RelayTypeError: The channels are not a multiple of the groups.
    """
    if not isinstance(size, int):
        return DynamicDim()
    if groups <= 0 or size % groups:
        raise call.error(f"{size} {what} in groups={groups}", "a divisor")
    return size // groups


def infer_weight(call: Inputs, rank: int, axes: str, channels: Sequence[Dim]) -> list[Dim]:
    """Infer the weight's shape, in the order `axes`.

    Attributes `channels` and `kernel_size`, where both are given, define the weight's type;
    otherwise the type must be known.

    Args:
        call: The call; argument 1 is the weight.
        rank: The number of spatial axes.
        axes: The plain axes, such as "OIHW"; the channel axes come first.
        channels: The sizes of the two channel axes as far as attributes and data determine them.

    Raises:
        RelayTypeError: The weight's type contradicts the attributes or the data.
    """
    attrs = call.attrs
    kernel = call.layout(attrs["kernel_layout"], axes)
    if attrs["channels"] is not None and attrs["kernel_size"] is not None:
        shape = (*channels, *call.positive("kernel_size", rank))
        weight = call.known(1)
        dtype = weight.dtype if weight else call.tensor(0).dtype
        call.expect(1, TensorType(kernel.from_axes(shape, axes), dtype))
        return list(shape)
    weight = call.tensor(1, len(kernel.parts))
    shape = kernel.to_axes(weight.shape, axes)
    for name, wanted, got in zip(axes, channels, shape, strict=False):
        if not same_dim(wanted, got):
            raise call.error(
                f"argument 1 is {weight}, {got} along {name}", f"{wanted} along {name}"
            )
    if attrs["kernel_size"] is not None:
        size = call.positive("kernel_size", rank)
        if not all(map(same_dim, size, shape[2:])):
            raise call.error(f"argument 1 is {weight}", f"kernel_size={list(size)}")
    return list(shape)
