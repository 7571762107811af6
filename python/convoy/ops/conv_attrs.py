"""Attributes of the gradients of a convolution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict

from tvm import relax

from ..graph.expr import attr_fields, ints, padding_of, rank_of
from .registration import NAMESPACE

DGRAD = NAMESPACE + "conv2d_dgrad"
DGRAD_3D = NAMESPACE + "conv3d_dgrad"
WGRAD = NAMESPACE + "conv2d_wgrad"

_SPATIAL = {2: "HW", 3: "DHW"}


class ConvOptions(TypedDict, total=False):
    """Attributes of the *forward* convolution; all may be omitted.

    Attributes:
        strides: One number, or one for each spatial axis; default 1.
        padding: One number, one for each spatial axis, or (top, left, bottom, right), over volumes
            (front, top, left, back, bottom, right); default 0.
        dilation: One number, or one for each spatial axis; default 1.
        groups: Default 1.
        data_layout: Layout of x, y and their gradients; default ``NHWC`` or ``NDHWC``.
        kernel_layout: Layout of w and dw, in which O counts the channels of y and I those of x in
            one group; default ``OHWI`` or ``ODHWI``.
        out_dtype: Dtype of the result; default that of dy.
    """

    strides: int | Sequence[int]
    padding: int | Sequence[int]
    dilation: int | Sequence[int]
    groups: int
    data_layout: str
    kernel_layout: str
    out_dtype: str


@dataclass(frozen=True)
class ConvAttrs:
    """Attributes of a call: :class:`ConvOptions` without open fields.

    ``size`` is the size that operand shapes do not determine: the spatial sizes of the forward
    input for dgrad, those of the filter for wgrad.
    """

    size: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    data_layout: str
    kernel_layout: str
    out_dtype: str

    @property
    def is_normal(self) -> bool:
        """Whether it has the layouts of the normal form."""
        return (self.data_layout, self.kernel_layout) == normal_layouts(len(self.size))

    @property
    def spatial(self) -> str:
        """Letters of the spatial axes, the outermost first."""
        return _SPATIAL[len(self.size)]


def has_normal_layouts(call: relax.Call) -> bool:
    """Return whether all layouts of a Relax convolution over two or three axes are those of the
    normal form."""
    attrs = call.attrs
    data, kernel = normal_layouts(rank_of(call) - 2)
    found = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout or data))
    return found == (data, kernel, data)


def normal_layouts(rank: int) -> tuple[str, str]:
    """Layouts of data and filters in the normal form, over so many spatial axes."""
    return f"N{_SPATIAL[rank]}C", f"O{_SPATIAL[rank]}I"


def per_axis(value: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """Repeat a single number for each spatial axis."""
    values = ints(value)
    return values * rank if len(values) == 1 else values[:rank]


def conv_attrs(call: relax.Call) -> ConvAttrs:
    """Read the attributes of a call of any of the operators."""
    attrs, rank = attr_fields(call.attrs), 3 if call.op.name == DGRAD_3D else 2
    size = attrs["input_size"] if "input_size" in attrs else attrs["kernel_size"]
    return ConvAttrs(
        size=per_axis(size, rank),
        strides=per_axis(attrs["strides"], rank),
        padding=padding_of(attrs["padding"], rank),
        dilation=per_axis(attrs["dilation"], rank),
        groups=int(attrs["groups"]),
        data_layout=str(attrs["data_layout"]),
        kernel_layout=str(attrs["kernel_layout"]),
        out_dtype=str(attrs["out_dtype"]),
    )
