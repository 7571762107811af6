"""``convoy.conv2d_dgrad``, ``convoy.conv3d_dgrad`` and ``convoy.conv2d_wgrad``: calls, types and
legalization."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tvm import relax, te, tirx

from ..errors import InvalidWorkload, UnsupportedLayout
from ..graph.expr import dtype_of, padding_of
from . import conv_loops
from .conv_attrs import DGRAD_3D, WGRAD, ConvOptions, conv_attrs, normal_layouts, per_axis
from .registration import NAMESPACE, make_call, register_op

if TYPE_CHECKING:
    from typing_extensions import Unpack


def conv2d_dgrad(
    dy: relax.Expr, w: relax.Expr, input_size: Sequence[int], **options: Unpack[ConvOptions]
) -> relax.Call:
    """Gradient of a 2d convolution with respect to its input; also a transposed convolution.

    ``dx[n, h, w, c] = sum over k, r, s of dy[n, p, q, k] * w[k, r, s, c]`` where
    ``p * stride = h + pad - r * dilation`` and q alike. Sums are in float32.

    Args:
        dy: Gradient of the convolution's output, (N, P, Q, K) in the default layout.
        w: Its filter, (K, R, S, C / groups).
        input_size: (H, W), which strides leave open: inputs of several sizes have outputs of the
            same size.
        options: Attributes of the forward convolution: strides, padding, dilation, groups,
            data_layout, kernel_layout, out_dtype.

    Returns:
        A call of shape (N, H, W, C).

    Raises:
        InvalidWorkload: Sizes that do not fit.
        UnsupportedLayout: A layout that is not a permutation of the default one.
    """
    return _make("conv2d_dgrad", [dy, w], {"input_size": input_size}, **options)


def conv3d_dgrad(
    dy: relax.Expr, w: relax.Expr, input_size: Sequence[int], **options: Unpack[ConvOptions]
) -> relax.Call:
    """Gradient of a 3d convolution with respect to its input: :func:`conv2d_dgrad` over volumes,
    ``dy`` (N, O, P, Q, K), ``w`` (K, T, R, S, C / groups), the result (N, D, H, W, C)."""
    return _make("conv3d_dgrad", [dy, w], {"input_size": input_size}, **options)


def conv2d_wgrad(
    dy: relax.Expr, x: relax.Expr, kernel_size: Sequence[int], **options: Unpack[ConvOptions]
) -> relax.Call:
    """Gradient of a 2d convolution with respect to its filter.

    ``dw[k, r, s, c] = sum over n, p, q of dy[n, p, q, k] * x[n, h, w, c]`` where
    ``h = p * stride - pad + r * dilation`` and w alike. Sums are in float32;
    ``out_dtype="float32"`` keeps them so for 16-bit operands, for weights that are updated in
    float32.

    Args:
        dy: Gradient of the convolution's output, (N, P, Q, K) in the default layout.
        x: Its input, (N, H, W, C).
        kernel_size: (R, S).
        options: As in :func:`conv2d_dgrad`.

    Returns:
        A call of shape (K, R, S, C / groups).

    Raises:
        InvalidWorkload: Sizes that do not fit.
        UnsupportedLayout: A layout that is not a permutation of the default one.
    """
    return _make("conv2d_wgrad", [dy, x], {"kernel_size": kernel_size}, **options)


def _make(
    name: str,
    args: list[relax.Expr],
    size: dict[str, Sequence[int]],
    *,
    strides: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
    data_layout: str = "",
    kernel_layout: str = "",
    out_dtype: str = "",
) -> relax.Call:
    rank = 3 if NAMESPACE + name == DGRAD_3D else 2
    data, kernel = normal_layouts(rank)
    call = make_call(
        name,
        args,
        **{key: list(per_axis(value, rank)) for key, value in size.items()},
        strides=list(per_axis(strides, rank)),
        padding=list(padding_of(padding, rank)),
        dilation=list(per_axis(dilation, rank)),
        groups=int(groups),
        data_layout=str(data_layout or data),
        kernel_layout=str(kernel_layout or kernel),
        out_dtype=str(out_dtype or dtype_of(args[0])),
    )
    _infer(call)  # report a mistake here, as one of convoy's errors
    return call


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


def _dims(expr: relax.Expr, layout: str) -> dict[str, tirx.Expr | int] | None:
    """Dimensions by letter, as integers where they are known; None for an unknown shape."""
    shape = expr.ty.shape
    values = None if shape is None else getattr(shape, "values", None) or shape.ty.values
    if values is None:
        return None
    known = [int(d) if isinstance(d, tirx.IntImm) else d for d in values]
    return dict(zip(layout, known, strict=True))


def _must_match(name: str, what: str, got: tirx.Expr | int, expected: tirx.Expr | int) -> None:
    if isinstance(got, int) and isinstance(expected, int) and got != expected:
        raise InvalidWorkload(f"{name} with {got} for {what}", str(expected))


# -- loops -------------------------------------------------------------------------------------


def _legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    attrs, is_dgrad = conv_attrs(call), call.op.name != WGRAD
    data, kernel = normal_layouts(len(attrs.size))
    first = _ordered(builder, call.args[0], attrs.data_layout, data)
    if is_dgrad:
        second = _ordered(builder, call.args[1], attrs.kernel_layout, kernel)
    else:
        second = _ordered(builder, call.args[1], attrs.data_layout, data)

    def loops(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        return conv_loops.dgrad(a, b, attrs) if is_dgrad else conv_loops.wgrad(a, b, attrs)

    result = builder.call_te(
        loops, first, second, primfunc_name_hint=call.op.name.rpartition(".")[2],
        primfunc_attrs={"op_pattern": 4},  # elementwise can be fused
    )  # fmt: skip
    if is_dgrad:
        return _ordered(builder, result, data, attrs.data_layout)
    return _ordered(builder, result, kernel, attrs.kernel_layout)


def _ordered(builder: relax.BlockBuilder, expr: relax.Expr, layout: str, wanted: str) -> relax.Expr:
    if layout == wanted:
        return expr
    axes = [layout.index(letter) for letter in wanted]
    return builder.emit(relax.op.permute_dims(builder.emit(expr), axes))


register_op("conv2d_dgrad", "Input gradient of a 2d convolution.", _infer, _legalize, conv2d_dgrad)
register_op("conv3d_dgrad", "Input gradient of a 3d convolution.", _infer, _legalize, conv3d_dgrad)
register_op("conv2d_wgrad", "Filter gradient of a 2d convolution.", _infer, _legalize, conv2d_wgrad)
