"""``convoy.conv2d_dgrad``, ``convoy.conv3d_dgrad`` and ``convoy.conv2d_wgrad``: calls, their
attributes, types and loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, tirx

from ..errors import InvalidWorkload, UnsupportedLayout
from ..graph.expr import FLOAT_DTYPES, attr_fields, dtype_of, ints, padding_of, shape_of
from ..ir.depth import Depth
from . import conv_loops
from .registration import NAMESPACE, make_call, register_op

DGRAD = NAMESPACE + "conv2d_dgrad"
DGRAD_3D = NAMESPACE + "conv3d_dgrad"
WGRAD = NAMESPACE + "conv2d_wgrad"

_SPATIAL = {4: "HW", 5: "DHW"}


@dataclass(frozen=True)
class ConvAttrs:
    """Attributes of the operators, all of the *forward* convolution.

    ``size`` is what operand shapes leave open: (H, W) of the forward input for dgrad, (R, S) of
    the filter for wgrad; over volumes (D, H, W). ``padding`` is (top, left, bottom, right), over
    volumes (front, top, left, back, bottom, right). ``data_layout`` is that of x,
    y and their gradients, ``kernel_layout`` that of w and dw, in which O counts the channels of y
    and I those of x in one group.
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
        return (self.data_layout, self.kernel_layout) in (("NHWC", "OHWI"), ("NDHWC", "ODHWI"))

    @property
    def spatial(self) -> str:
        """Letters of the spatial axes, the outermost first."""
        return _SPATIAL[2 + len(self.size)]


def conv2d_dgrad(
    dy: relax.Expr,
    w: relax.Expr,
    input_size: Sequence[int],
    strides: int | Sequence[int] = (1, 1),
    padding: int | Sequence[int] = (0, 0),
    dilation: int | Sequence[int] = (1, 1),
    groups: int = 1,
    data_layout: str = "NHWC",
    kernel_layout: str = "OHWI",
    out_dtype: str = "",
) -> relax.Call:
    """Gradient of a 2d convolution with respect to its input; also a transposed convolution.

    ``dy`` (N, P, Q, K) is the gradient of the convolution's output, ``w`` (K, R, S, C / groups)
    its filter, the result (N, H, W, C) with (H, W) = ``input_size``, which strides leave open
    (several sizes have outputs of the same size). All attributes are those of the forward
    convolution; padding has 1, 2 or 4 entries (top, left, bottom, right). The shapes above are
    for the default layouts; any permutation of their letters will do. Sums are in float32;
    ``out_dtype`` is by default that of ``dy``.

    ``dx[n, h, w, c] = sum over k, r, s of dy[n, p, q, k] * w[k, r, s, c]`` where
    ``p * stride = h + pad - r * dilation`` and q alike.

    Raises InvalidWorkload where sizes do not fit, UnsupportedLayout.
    """
    return _make("conv2d_dgrad", [dy, w], "input_size", input_size, strides, padding, dilation,
                 groups, data_layout, kernel_layout, out_dtype)  # fmt: skip


def conv3d_dgrad(
    dy: relax.Expr,
    w: relax.Expr,
    input_size: Sequence[int],
    strides: int | Sequence[int] = (1, 1, 1),
    padding: int | Sequence[int] = (0, 0, 0),
    dilation: int | Sequence[int] = (1, 1, 1),
    groups: int = 1,
    data_layout: str = "NDHWC",
    kernel_layout: str = "ODHWI",
    out_dtype: str = "",
) -> relax.Call:
    """Gradient of a 3d convolution with respect to its input: :func:`conv2d_dgrad` over volumes,
    ``dy`` (N, O, P, Q, K), ``w`` (K, T, R, S, C / groups), the result (N, D, H, W, C)."""
    return _make("conv3d_dgrad", [dy, w], "input_size", input_size, strides, padding, dilation,
                 groups, data_layout, kernel_layout, out_dtype)  # fmt: skip


def conv2d_wgrad(
    dy: relax.Expr,
    x: relax.Expr,
    kernel_size: Sequence[int],
    strides: int | Sequence[int] = (1, 1),
    padding: int | Sequence[int] = (0, 0),
    dilation: int | Sequence[int] = (1, 1),
    groups: int = 1,
    data_layout: str = "NHWC",
    kernel_layout: str = "OHWI",
    out_dtype: str = "",
) -> relax.Call:
    """Gradient of a 2d convolution with respect to its filter.

    ``dy`` (N, P, Q, K) is the gradient of the convolution's output, ``x`` (N, H, W, C) its input,
    the result (K, R, S, C / groups) with (R, S) = ``kernel_size``. Attributes as in
    :func:`conv2d_dgrad`; sums are in float32, and ``out_dtype="float32"`` keeps them so for
    16-bit operands, for weights that are updated in float32.

    ``dw[k, r, s, c] = sum over n, p, q of dy[n, p, q, k] * x[n, h, w, c]`` where
    ``h = p * stride - pad + r * dilation`` and w alike.

    Raises InvalidWorkload where sizes do not fit, UnsupportedLayout.
    """
    return _make("conv2d_wgrad", [dy, x], "kernel_size", kernel_size, strides, padding, dilation,
                 groups, data_layout, kernel_layout, out_dtype)  # fmt: skip


def _make(name: str, args: list[relax.Expr], size_name: str, size: Any, strides: Any, padding: Any,
          dilation: Any, groups: int, data_layout: str, kernel_layout: str,
          out_dtype: str) -> relax.Call:  # fmt: skip
    rank = 3 if "3d" in name else 2
    call = make_call(
        name,
        args,
        **{size_name: list(_each(size, rank))},
        strides=list(_each(strides, rank)),
        padding=list(padding_of(padding, rank)),
        dilation=list(_each(dilation, rank)),
        groups=int(groups),
        data_layout=str(data_layout),
        kernel_layout=str(kernel_layout),
        out_dtype=str(out_dtype or dtype_of(args[0])),
    )
    _infer(call)  # report a mistake here, as one of convoy's errors
    return call


def _each(value: Any, rank: int) -> tuple[int, ...]:
    """One number for each spatial axis; a single one counts for all."""
    values = ints(value)
    return values * rank if len(values) == 1 else values[:rank]


def conv_attrs(call: relax.Call) -> ConvAttrs:
    """Read the attributes of a call of any of the operators."""
    attrs, rank = attr_fields(call.attrs), 3 if call.op.name == DGRAD_3D else 2
    size = attrs["input_size"] if "input_size" in attrs else attrs["kernel_size"]
    return ConvAttrs(
        size=_each(size, rank),
        strides=_each(attrs["strides"], rank),
        padding=padding_of(attrs["padding"], rank),
        dilation=_each(attrs["dilation"], rank),
        groups=int(attrs["groups"]),
        data_layout=str(attrs["data_layout"]),
        kernel_layout=str(attrs["kernel_layout"]),
        out_dtype=str(attrs["out_dtype"]),
    )


# -- types -------------------------------------------------------------------------------------


def _infer(call: relax.Call, _builder: relax.BlockBuilder | None = None) -> relax.TensorType:
    """Type of a call; dimensions may be symbolic. Raises InvalidWorkload, UnsupportedLayout."""
    attrs, is_dgrad = conv_attrs(call), call.op.name != WGRAD
    name, axes = call.op.name.rpartition(".")[2], attrs.spatial
    rank = 2 + len(axes)
    for layout, letters in ((attrs.data_layout, f"NC{axes}"), (attrs.kernel_layout, f"OI{axes}")):
        if sorted(layout) != sorted(letters):
            raise UnsupportedLayout(f"layout {layout!r} of {name}", f"a permutation of {letters}")
    first, second = call.args
    for arg in call.args:
        if not isinstance(arg.ty, relax.TensorType) or arg.ty.ndim not in (rank, -1):
            raise InvalidWorkload(f"{name} of {arg.ty}", f"two tensors of {rank} dimensions")
    dy = _dims(first, attrs.data_layout)
    other = _dims(second, attrs.kernel_layout if is_dgrad else attrs.data_layout)
    if dy is None or other is None:
        return relax.TensorType(dtype=attrs.out_dtype, ndim=rank)
    if is_dgrad:
        spatial = dict(zip(axes, attrs.size, strict=True))
        filters = {axis: other[axis] for axis in axes}
        out = {"N": dy["N"], "C": other["I"] * attrs.groups, **spatial}
        _must_match(name, "output channels of dy and w", dy["C"], other["O"])
        layout = attrs.data_layout
    else:
        spatial = {axis: other[axis] for axis in axes}
        filters = dict(zip(axes, attrs.size, strict=True))
        per_group = other["C"] // attrs.groups
        _must_match(name, "channels of x and groups", other["C"], per_group * attrs.groups)
        _must_match(name, "batch of dy and x", dy["N"], other["N"])
        out = {"O": dy["C"], "I": per_group, **filters}
        layout = attrs.kernel_layout
    _must_match(name, "channels of dy and groups", dy["C"] % attrs.groups, 0)
    for i, axis in enumerate(axes):
        extent = attrs.dilation[i] * (filters[axis] - 1) + 1
        padded = spatial[axis] + attrs.padding[i] + attrs.padding[i + len(axes)]
        expected = (padded - extent) // attrs.strides[i] + 1
        _must_match(name, f"{axis} of dy and the convolution's output", dy[axis], expected)
    return relax.TensorType([out[letter] for letter in layout], attrs.out_dtype)


def _dims(expr: relax.Expr, layout: str) -> dict[str, Any] | None:
    """Dimensions by letter, as integers where they are known; None for an unknown shape."""
    shape = expr.ty.shape
    values = None if shape is None else getattr(shape, "values", None) or shape.ty.values
    if values is None:
        return None
    known = [int(d) if isinstance(d, tirx.IntImm) else d for d in values]
    return dict(zip(layout, known, strict=True))


def _must_match(name: str, what: str, got: Any, expected: Any) -> None:
    if isinstance(got, int) and isinstance(expected, int) and got != expected:
        raise InvalidWorkload(f"{name} with {got} for {what}", str(expected))


# -- loops -------------------------------------------------------------------------------------


def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    attrs, is_dgrad = conv_attrs(call), call.op.name != WGRAD
    last, filters = f"N{attrs.spatial}C", f"O{attrs.spatial}I"
    second_layout, second = (
        (attrs.kernel_layout, filters) if is_dgrad else (attrs.data_layout, last)
    )
    args = [
        _ordered(builder, call.args[0], attrs.data_layout, last),
        _ordered(builder, call.args[1], second_layout, second),
    ]
    function = conv_loops.dgrad if is_dgrad else conv_loops.wgrad
    name = call.op.name.rpartition(".")[2]
    result = builder.call_te(
        function, *args, size=attrs.size, stride=attrs.strides, padding=attrs.padding,
        dilation=attrs.dilation, groups=attrs.groups, out_dtype=attrs.out_dtype,
        primfunc_name_hint=name, primfunc_attrs={"op_pattern": 4},  # elementwise can be fused
    )  # fmt: skip
    wanted = attrs.data_layout if is_dgrad else attrs.kernel_layout
    return _ordered(builder, result, last if is_dgrad else filters, wanted)


def _ordered(builder: relax.BlockBuilder, expr: relax.Expr, layout: str, wanted: str) -> relax.Expr:
    if layout == wanted:
        return expr
    axes = [layout.index(letter) for letter in wanted]
    return builder.emit(relax.op.permute_dims(builder.emit(expr), axes))


# -- as a workload -----------------------------------------------------------------------------


def forward_workload(call: relax.Call) -> dict[str, Any] | None:
    """Fields of the ``Workload`` of a call in normal layouts; None where there is none: operands
    of different or unknown dtypes, or padding that cuts off rows."""
    attrs = conv_attrs(call)
    dtypes = {dtype_of(arg) for arg in call.args}
    if not attrs.is_normal or len(dtypes) != 1 or not dtypes <= {*FLOAT_DTYPES}:
        return None
    if attrs.out_dtype not in FLOAT_DTYPES or min(attrs.padding) < 0:
        return None
    (n, *_, k), (_, *other, last) = map(shape_of, call.args)
    if call.op.name == WGRAD:
        size, window, c = tuple(other), attrs.size, last
    else:
        size, window, c = attrs.size, tuple(other), last * attrs.groups
    return {
        "op": "wgrad" if call.op.name == WGRAD else "dgrad", "n": n, "c": c, "k": k,
        **spatial_fields(size, window, attrs.strides, attrs.padding, attrs.dilation),
        "groups": attrs.groups, "dtype": dtypes.pop(), "out_dtype": attrs.out_dtype,
    }  # fmt: skip


def spatial_fields(
    size: Sequence[int],
    window: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> dict[str, Any]:
    """Fields of a ``Workload`` for the two or three spatial axes of a forward convolution."""
    fields: dict[str, Any] = {}
    before, after = padding[: len(size)], padding[len(size) :]
    if len(size) == 3:
        ends = (before[0], after[0])
        fields["depth"] = Depth(size[0], window[0], stride[0], ends, dilation[0])
    (h, w), (r, s) = size[-2:], window[-2:]
    return fields | {
        "h": h, "w": w, "r": r, "s": s, "stride": tuple(stride[-2:]),
        "padding": (*before[-2:], *after[-2:]), "dilation": tuple(dilation[-2:]),
    }  # fmt: skip


register_op("conv2d_dgrad", "Input gradient of a 2d convolution.", _infer, _legalize, conv2d_dgrad)
register_op("conv3d_dgrad", "Input gradient of a 3d convolution.", _infer, _legalize, conv3d_dgrad)
register_op("conv2d_wgrad", "Filter gradient of a 2d convolution.", _infer, _legalize, conv2d_wgrad)
