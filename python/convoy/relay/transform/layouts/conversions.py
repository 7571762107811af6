"""Conversions of ConvertLayout for the operators that a script names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from convoy.errors import UnsupportedLayout
from convoy.relay.ast import Call, Expr, op_call
from convoy.relay.attrs import Attrs
from convoy.relay.types import TensorType, Type

Conversion = Callable[[Attrs, list[Expr], Sequence[Type], Sequence[str]], Call]
_KERNELS: Mapping[str, Mapping[str, str]] = {
    "conv1d": {"NCW": "OIW", "NWC": "WIO"},
    "conv2d": {"NCHW": "OIHW", "NHWC": "HWIO", "HWNC": "HWOI"},
    "conv3d": {"NCDHW": "OIDHW", "NDHWC": "DHWIO"},
    "deformable_conv2d": {"NCHW": "OIHW", "NHWC": "HWIO"},
    "conv1d_transpose": {"NCW": "IOW", "NWC": "WIO"},
    "conv2d_transpose": {"NCHW": "IOHW", "NHWC": "HWIO"},
    "conv3d_transpose": {"NCDHW": "IODHW", "NDHWC": "DHWIO"},
}


def conversion(name: str) -> Conversion | None:
    """Return the function that changes an operator's layout, None for one that has no layout."""
    if name.removeprefix("qnn.").removeprefix("nn.") in _KERNELS:
        return lambda *given: _convolution(name, *given)
    if "pool" in name or name.startswith(("image.resize", "vision.roi")):
        return lambda *given: _by_layout(name, *given)
    return None


def _convolution(
    name: str, attrs: Attrs, args: list[Expr], types: Sequence[Type], desired: Sequence[str]
) -> Call:
    data, kernel = (*map(str, desired), "default")[:2]
    values = dict(attrs)
    if data == "default":
        raise UnsupportedLayout("data layout 'default'", "one such as NCHW")
    values["data_layout"] = data
    blocked = re.fullmatch(r"NCHW(\d+)c", data)
    if kernel == "default":
        kernel = "OIHW" if blocked else _default_kernel(name, attrs, types, data)
    values["kernel_layout"] = kernel
    if blocked and name == "nn.conv2d":
        inputs = _channels(types[0], attrs["data_layout"])
        filters = _channels(types[1], attrs["kernel_layout"], "O")
        if any(n is not None and n % int(blocked[1]) for n in (inputs, filters)):
            return op_call(name, args, **attrs)
        return op_call("nn.contrib_conv2d_NCHWc", args, **values)
    return op_call(name, args, **values)


def _default_kernel(name: str, attrs: Attrs, types: Sequence[Type], data: str) -> str:
    known = _KERNELS[name.removeprefix("qnn.").removeprefix("nn.")]
    if data not in known:
        raise UnsupportedLayout(f"layout '{data}' of {name}", ", ".join(known))
    if data == "NHWC" and attrs["groups"] > 1 and "transpose" not in name:
        channels = _channels(types[0], attrs["data_layout"])
        if channels == attrs["groups"]:  # depthwise
            return "HWOI"
    return known[data]


def _channels(found: Type, layout: str, axis: str = "C") -> int | None:
    assert isinstance(found, TensorType)
    size = found.shape[layout.index(axis)] if layout.isupper() else None
    return size if isinstance(size, int) else None


def _by_layout(
    name: str, attrs: Attrs, args: list[Expr], types: Sequence[Type], desired: Sequence[str]
) -> Call:
    values: dict[str, Any] = {**attrs, "layout": str(desired[0])}
    if "out_layout" in attrs and "pool" in name and not name.startswith("vision"):
        values["out_layout"] = str(desired[0])
    return op_call(name, args, **values)
