"""Present convolutions and pools over one dimension as two-dimensional ones of images of height 1.

Libraries, kernels and layout rules are those of two dimensions. A value of three axes may have an
*image*: the same elements with an axis of size 1 in front of the sequence, ``(N, C, 1, W)`` or
``(N, 1, W, C)``. An operator with a rule works on the images of its operands and yields an image;
the value of three axes is a reshape of it, which dead code elimination drops unless someone reads
it. An operator without a rule reads that. Networks without such convolutions stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import tvm
from tvm import relax

from ..graph.expr import (
    attr_fields,
    call_like,
    ints,
    op_name,
    permutation_of,
    rank_of,
    relax_ops,
    shape_of,
)
from ..graph.function import calls_of
from ..graph.rewriter import Rewriter
from ..ops.activation import ELU, HARDSWISH, MISH
from ..ops.activation_backward import ACTIVATION_BACKWARD
from ..ops.batch_norm import BACKWARD
from ..ops.elementwise import RELU_BACKWARD

_CONVOLUTIONS = relax_ops("nn.conv1d nn.conv1d_transpose")
_POOLS = relax_ops("nn.max_pool1d nn.avg_pool1d nn.adaptive_avg_pool1d")
_UNARY = relax_ops(
    """
    nn.relu nn.relu6 nn.leakyrelu nn.gelu nn.gelu_tanh nn.selu nn.silu nn.softplus sigmoid tanh exp
    log sqrt rsqrt square abs negative erf clip astype
    """
) | {HARDSWISH, ELU, MISH}
_BINARY = relax_ops("add subtract multiply divide power maximum minimum") | {
    RELU_BACKWARD,
    ACTIVATION_BACKWARD,
}
_AXIS = relax_ops("nn.softmax nn.log_softmax nn.prelu split")
_REDUCTIONS = relax_ops("mean sum max min")


class _Image(NamedTuple):
    """A value of four axes and which of them is the height."""

    value: relax.Expr
    axis: int

    def moved(self, axes: Iterable[int]) -> list[int]:
        """Axes of the value of three axes as those of the image."""
        return [axis % 3 + (axis % 3 >= self.axis) for axis in axes]


class HeightOne(Rewriter):
    """The pass."""

    def __init__(self) -> None:
        super().__init__()
        self._images: dict[relax.Expr, _Image] = {}

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        return super().__call__(mod) if calls_of(mod, _CONVOLUTIONS) else mod

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        name = op_name(call)
        if name in _CONVOLUTIONS:
            return self._convolution(call)
        if name in _POOLS:
            return self._pool(call)
        rule = _RULES.get(name)
        return rule(self, call) if rule is not None else None

    # -- images --------------------------------------------------------------------------------

    def _known(self, expr: relax.Expr) -> _Image | None:
        return self._images.get(expr) if isinstance(expr, relax.Var) else None

    def _image(self, expr: relax.Expr, axis: int) -> relax.Expr:
        """The image of a value of three axes."""
        known = self._known(expr)
        if known is not None and known.axis == axis:
            return known.value
        turned = self.producer(expr, "relax.permute_dims")
        if turned is not None and permutation_of(turned) == (0, 2, 1):
            return self._turned(turned.args[0], 3 - axis)
        shape = list(shape_of(expr))
        shape.insert(axis, 1)
        return self.reshaped(expr, tuple(shape))

    def _turned(self, source: relax.Expr, axis: int) -> relax.Expr:
        """The image of ``source``, whose height is at ``axis``, with channels moved last or
        back."""
        axes = [0, 2, 3, 1] if axis == 2 else [0, 3, 1, 2]
        return self.emit(relax.op.permute_dims(self._image(source, axis), axes))

    def _flat(self, image: relax.Expr, axis: int) -> relax.Expr:
        """The value of three axes whose image this is."""
        image = self.emit(image)
        shape = list(shape_of(image))
        del shape[axis]
        flat = self.emit(relax.op.reshape(image, shape))
        if isinstance(flat, relax.Var):
            self._images[flat] = _Image(image, axis)
        return flat

    def _broadcast(self, expr: relax.Expr, axis: int) -> relax.Expr:
        """An operand of an elementwise operator in a shape that broadcasts against an image."""
        rank = rank_of(expr)
        if rank == 3:
            return self._image(expr, axis)
        if rank <= 3 - axis:  # none of its axes is in front of the height
            return expr
        shape = [*(1,) * (3 - rank), *shape_of(expr)]
        shape.insert(axis, 1)
        return self.emit(relax.op.reshape(expr, shape))

    # -- rules ---------------------------------------------------------------------------------

    def _convolution(self, call: relax.Call) -> relax.Expr:
        attrs, layout = call.attrs, str(call.attrs.data_layout)
        kernel_layout, axis = str(attrs.kernel_layout), layout.index("W")
        kernel_shape = list(shape_of(call.args[1]))
        kernel_shape.insert(kernel_layout.index("W"), 1)
        data = self._image(call.args[0], axis)
        kernel = self.emit(relax.op.reshape(call.args[1], kernel_shape))
        out = str(attrs.out_layout or layout)
        shared = {
            "strides": [1, *ints(attrs.strides)],
            "padding": _padding(attrs.padding),
            "dilation": [1, *ints(attrs.dilation)],
            "groups": int(attrs.groups),
            "data_layout": _with_height(layout),
            "kernel_layout": _with_height(kernel_layout),
            "out_layout": _with_height(out),
            "out_dtype": attrs.out_dtype,
        }
        if op_name(call) == "relax.nn.conv1d":
            image = relax.op.nn.conv2d(data, kernel, **shared)
        else:
            shared["output_padding"] = [0, *ints(attrs.output_padding)]
            image = relax.op.nn.conv2d_transpose(data, kernel, **shared)
        return self._flat(image, out.index("W"))

    def _pool(self, call: relax.Call) -> relax.Expr:
        attrs, layout = call.attrs, str(call.attrs.layout)
        out = str(attrs.out_layout or layout)
        layouts = {"layout": _with_height(layout), "out_layout": _with_height(out)}
        data = self._image(call.args[0], layout.index("W"))
        if op_name(call) == "relax.nn.adaptive_avg_pool1d":
            size = None if attrs.output_size is None else [1, *ints(attrs.output_size)]
            image = relax.op.nn.adaptive_avg_pool2d(data, size, **layouts)
        else:
            two = {"max": relax.op.nn.max_pool2d, "avg": relax.op.nn.avg_pool2d}
            image = two[op_name(call)[9:12]](
                data, [1, *ints(attrs.pool_size)], [1, *ints(attrs.strides)],
                _padding(attrs.padding), [1, *ints(attrs.dilation)], bool(attrs.ceil_mode),
                bool(attrs.count_include_pad), **layouts,
            )  # fmt: skip
        return self._flat(image, out.index("W"))

    def _unary(self, call: relax.Call) -> relax.Expr | None:
        known = self._known(call.args[0])
        if known is None:
            return None
        return self._flat(call_like(call, [known.value, *call.args[1:]]), known.axis)

    def _binary(self, call: relax.Call) -> relax.Expr | None:
        found = [known for arg in call.args if (known := self._known(arg)) is not None]
        if not found or rank_of(call) != 3:
            return None
        axis = found[0].axis
        args = [self._broadcast(arg, axis) for arg in call.args]
        return self._flat(call_like(call, args), axis)

    def _along_axis(self, call: relax.Call) -> relax.Expr | None:
        known = self._known(call.args[0])
        if known is None:
            return None
        (axis,) = known.moved(ints(call.attrs.axis))
        image = self.emit(call_like(call, [known.value, *call.args[1:]], axis=axis))
        if not isinstance(image.ty, relax.TupleType):
            return self._flat(image, known.axis)
        parts = range(len(image.ty.fields))
        return relax.Tuple([self._flat(relax.TupleGetItem(image, i), known.axis) for i in parts])

    def _concat(self, call: relax.Call) -> relax.Expr | None:
        fields = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else []
        known = next((found for field in fields if (found := self._known(field))), None)
        if known is None or call.attrs.axis is None:
            return None
        (axis,) = known.moved(ints(call.attrs.axis))
        images = relax.Tuple([self._image(field, known.axis) for field in fields])
        return self._flat(call_like(call, [images], axis=axis), known.axis)

    def _pad(self, call: relax.Call) -> relax.Expr | None:
        known = self._known(call.args[0])
        if known is None:
            return None
        width = list(ints(call.attrs.pad_width))
        width[2 * known.axis : 2 * known.axis] = [0, 0]
        padded = call_like(call, [known.value, *call.args[1:]], pad_width=width)
        return self._flat(padded, known.axis)

    def _slice(self, call: relax.Call) -> relax.Expr | None:
        known, axes = self._known(call.args[0]), call.args[1]
        if known is None or not isinstance(axes, relax.Tuple):
            return None
        if not all(hasattr(field, "value") for field in axes.fields):
            return None
        moved = known.moved(int(field.value) for field in axes.fields)
        args = [known.value, relax.Tuple(list(map(relax.prim_value, moved))), *call.args[2:]]
        return self._flat(relax.Call(call.op, args, call.attrs, call.ty_args), known.axis)

    def _reduction(self, call: relax.Call) -> relax.Expr | None:
        known = self._known(call.args[0])
        if known is None:
            return None
        axes = range(3) if call.attrs.axis is None else ints(call.attrs.axis)
        both = sorted([*known.moved(axes), known.axis])
        reduced = call_like(call, [known.value], axis=both)
        return self._flat(reduced, known.axis) if call.attrs.keepdims else reduced

    def _group_norm(self, call: relax.Call) -> relax.Expr | None:
        known = self._known(call.args[0])
        if known is None:
            return None
        (channel,) = known.moved(ints(call.attrs.channel_axis))
        axes = sorted([*known.moved(ints(call.attrs.axes)), known.axis])
        args = [known.value, *call.args[1:]]
        return self._flat(call_like(call, args, axes=axes, channel_axis=channel), known.axis)

    def _batch_norm(self, call: relax.Call) -> relax.Expr | None:
        """A batch norm of a training step, or its gradients: only the first result is an image."""
        count = 2 if op_name(call) == BACKWARD else 1
        known = next((k for arg in call.args[:count] if (k := self._known(arg))), None)
        if known is None:
            return None
        (axis,) = known.moved([int(attr_fields(call.attrs)["axis"])])
        images = [self._image(arg, known.axis) for arg in call.args[:count]]
        both = self.emit(call_like(call, [*images, *call.args[count:]], axis=axis))
        first, *vectors = (self.emit(relax.TupleGetItem(both, i)) for i in range(3))
        return relax.Tuple([self._flat(first, known.axis), *vectors])

    def _permute_dims(self, call: relax.Call) -> relax.Expr | None:
        known = self._known(call.args[0])
        if known is None or permutation_of(call) != (0, 2, 1):
            return None
        return self._flat(self._turned(call.args[0], known.axis), 3 - known.axis)

    def _reshape(self, call: relax.Call) -> relax.Expr | None:
        """An axis of size 1 that the model itself adds or takes away."""
        source, shape = call.args[0], shape_of(call)
        known = self._known(source)
        if known is not None and shape_of(known.value) == shape:
            return known.value
        if rank_of(source) == 4 and shape_of(source)[2] == 1:
            n, c, _, w = shape_of(source)
            if shape == (n, c, w):
                return self._flat(source, 2)
        return None


def _padding(padding: object) -> list[int]:
    """(top, left, bottom, right) of one amount for both ends of a sequence, or one for each."""
    pad = ints(padding)
    return [0, pad[0], 0, pad[-1]]


def _with_height(layout: str) -> str:
    return layout.replace("W", "HW")


_RULES: dict[str, Callable[[HeightOne, relax.Call], relax.Expr | None]] = {
    **dict.fromkeys(_UNARY, HeightOne._unary),
    **dict.fromkeys(_BINARY, HeightOne._binary),
    **dict.fromkeys(_AXIS, HeightOne._along_axis),
    **dict.fromkeys(_REDUCTIONS, HeightOne._reduction),
    **dict.fromkeys(relax_ops("reshape expand_dims squeeze"), HeightOne._reshape),
    **dict.fromkeys(relax_ops("nn.group_norm nn.instance_norm"), HeightOne._group_norm),
    "relax.nn.batch_norm": HeightOne._batch_norm,
    BACKWARD: HeightOne._batch_norm,
    "relax.concat": HeightOne._concat,
    "relax.nn.pad": HeightOne._pad,
    "relax.strided_slice": HeightOne._slice,
    "relax.permute_dims": HeightOne._permute_dims,
}
