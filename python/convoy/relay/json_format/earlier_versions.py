"""Operators and attributes as versions before 0.18 wrote them, in the form of 0.18.

Files hold calls as they were made: operators since renamed, attributes that became arguments, and
layouts of weights whose letters changed their meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from convoy.relay.ast import Expr
from convoy.relay.attrs import Attrs, complete_attrs, make_attrs
from convoy.relay.builder import const
from convoy.relay.schema import AttrsClass, Field, attrs_class

Values = dict[str, Any]
Version = tuple[int, int]

#: Operators by their former names.
RENAMED = {
    "contrib.adaptive_avg_pool2d": "nn.adaptive_avg_pool2d",
    "contrib.adaptive_max_pool2d": "nn.adaptive_max_pool2d",
    "contrib.ndarray_size": "ndarray_size",
    "image.resize": "image.resize2d",
    "scatter": "scatter_elements",
    "scatter_add": "scatter_elements",
}

_METHODS = {"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}


def former_class(key: str, fields: Values, version: Version) -> AttrsClass | None:
    """Return the class of attributes that 0.18 reads otherwise or no longer has.

    Args:
        key: The type key in the file.
        fields: The fields there.
        version: The major and minor version that wrote it.
    """
    name = key.removeprefix("relay.attrs.")
    if name in _GONE:
        return AttrsClass(name, _GONE[name])
    added = _BECAME_ARGUMENTS.get(name)
    current = attrs_class(key)
    if added is None or current is None or version >= (0, 8) or added.name not in fields:
        return None
    return AttrsClass(name, (*(f for f in current.fields if f.name != added.name), added))


def renewed_attrs(attrs: Attrs, version: Version) -> Attrs:
    """Return attributes in the form of 0.18, except those that became arguments."""
    name = attrs.type_key.removeprefix("relay.attrs.")
    if name in _RENEW:
        now, values = _RENEW[name](dict(attrs))
        return _complete(now, values)
    if name in _TRANSPOSED and version < _TRANSPOSED[name]:
        layout = _with_inputs_first(attrs["data_layout"], attrs["kernel_layout"])
        return _complete(name, {**attrs, "kernel_layout": layout})
    return attrs


def renewed_call(
    op: str, args: tuple[Expr, ...], attrs: Attrs | None
) -> tuple[tuple[Expr, ...], Attrs | None]:
    """Return the arguments and attributes of a call in the form of 0.18.

    Args:
        op: The name of the operator in 0.18.
        args, attrs: Those of the call; attributes as `renewed_attrs` returned them.
    """
    if attrs is None:
        # 0.7 had no attributes here, and always transposed the second argument.
        return args, make_attrs(op, {"transpose_b": True} if op == "nn.batch_matmul" else {})
    if op == "variance" and "unbiased" not in attrs:
        return args, _complete("VarianceAttrs", dict(attrs))
    name = attrs.type_key.removeprefix("relay.attrs.")
    field = _BECAME_ARGUMENTS.get(name)
    if field is None or attrs.cls is None or field not in attrs.cls.fields:
        return args, attrs
    rest = {n: v for n, v in attrs.items() if n != field.name}
    if name == "GetValidCountsAttrs":
        rest["score_threshold"] = None
    return (*args, const(attrs[field.name])), _complete(name, rest)


def _complete(name: str, values: Values) -> Attrs:
    cls = attrs_class(f"relay.attrs.{name}")
    assert cls is not None, "a class of the schema"
    return complete_attrs(cls, values, name)


# ---- classes that 0.18 does not have

_AXIS = (Field("axis", "expr", 0),)
_RESIZE = (
    Field("size", "array", None),
    Field("layout", "text", "NCHW"),
    Field("method", "text", "bilinear"),
    Field("align_corners", "bool", None),  # 0.6
    Field("coordinate_transformation_mode", "text", "half_pixel"),  # 0.7
    Field("out_dtype", "dtype", ""),
)
_GONE = {
    "ScatterAttrs": _AXIS,
    "ScatterAddAttrs": _AXIS,
    "ResizeAttrs": _RESIZE,
    "Resize3dAttrs": _RESIZE,
}


def resized(values: Values) -> Values:
    """Renew the attributes of a resize: nearest neighbors rounded by the mode, from corners."""
    aligned = values.pop("align_corners", None)
    mode = values["coordinate_transformation_mode"]
    if aligned is not None:
        mode = "align_corners" if aligned else "asymmetric"
    if values["method"] == "nearest_neighbor":
        mode = mode if mode == "align_corners" else "asymmetric"
        values["rounding_method"] = "round" if mode == "align_corners" else "floor"
    values["method"] = _METHODS.get(values["method"], values["method"])
    return {**values, "coordinate_transformation_mode": mode}


_RENEW: dict[str, Callable[[Values], tuple[str, Values]]] = {
    "ScatterAttrs": lambda values: ("ScatterElementsAttrs", values),
    "ScatterAddAttrs": lambda values: ("ScatterElementsAttrs", {**values, "reduction": "add"}),
    "ResizeAttrs": lambda values: ("Resize2DAttrs", resized(values)),
    "Resize3dAttrs": lambda values: ("Resize3DAttrs", resized(values)),
}

# ---- fields that became the last argument in 0.8

_BECAME_ARGUMENTS = {
    "PadAttrs": Field("pad_value", "double", 0.0),
    "GetValidCountsAttrs": Field("score_threshold", "double", 0.0),
    "NonMaximumSuppressionAttrs": Field("iou_threshold", "double", 0.5),
}

# ---- weights of transposed convolutions

#: The versions that gave their layouts the meaning of 0.18.
_TRANSPOSED: dict[str, Version] = {
    "Conv1DTransposeAttrs": (0, 12),
    "Conv2DTransposeAttrs": (0, 8),
    "Conv3DTransposeAttrs": (0, 12),
}


def _with_inputs_first(data: str, kernel: str) -> str:
    """Return the layout of a weight in the letters of 0.18.

    With channels first, weights were (in, out, ...) whatever the layout said, "OIHW" by default;
    with channels last, the letters of in and out were exchanged.
    """
    if data.startswith("NC"):
        return "IO" + kernel.replace("I", "").replace("O", "")
    return kernel.translate(str.maketrans("IO", "OI"))
