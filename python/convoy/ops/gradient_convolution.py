"""Gradients of convolutions over one and three dimensions, transposed ones too, as forward
convolutions of the same kind; those over two have kernels of their own."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax
from tvm.relax import op

from ..graph.expr import dtype_of, ints, shape_of
from .gradient import ordered, rule_for

_Emit = Callable[[relax.Expr], relax.Var]
_OPS = {1: op.nn.conv1d, 3: op.nn.conv3d}


@rule_for("nn.conv1d")
@rule_for("nn.conv3d")
def _convolution(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    x, w, dy = _plain(call, dy, ctx.emit, "OI")
    problem = _Problem(ctx.emit, x, w, dy, call)
    return _as_given(call, problem.input_gradient(), problem.filter_gradient(), ctx.emit, "OI")


@rule_for("nn.conv1d_transpose")
@rule_for("nn.conv3d_transpose")
def _transposed(
    y: relax.Var, call: relax.Call, dy: relax.Var, ctx: relax.BlockBuilder
) -> list[relax.Expr]:
    """The forward convolution of dy, and its filter gradient with x in place of dy."""
    x, w, dy = _plain(call, dy, ctx.emit, "IO")  # I counts what that convolution gives
    problem = _Problem(ctx.emit, dy, w, x, call)
    return _as_given(call, problem.forward(), problem.filter_gradient(), ctx.emit, "IO")


def _plain(
    call: relax.Call, dy: relax.Expr, emit: _Emit, filters: str
) -> tuple[relax.Expr, relax.Expr, relax.Expr]:
    """x, w and dy, channels in front of the spatial axes, ``filters`` the first two axes of w."""
    attrs, (x, w) = call.attrs, call.args
    data, kernel = str(attrs.data_layout), str(attrs.kernel_layout)
    spatial = "".join(letter for letter in "DHW" if letter in data)
    return (
        emit(ordered(x, data, f"NC{spatial}")),
        emit(ordered(w, kernel, f"{filters}{spatial}")),
        emit(ordered(dy, str(attrs.out_layout or data), f"NC{spatial}")),
    )


def _as_given(
    call: relax.Call, dx: relax.Expr, dw: relax.Expr, emit: _Emit, filters: str
) -> list[relax.Expr]:
    """Gradients in the layouts and dtypes of a call's operands."""
    attrs, (x, w) = call.attrs, call.args
    data, kernel = str(attrs.data_layout), str(attrs.kernel_layout)
    spatial = "".join(letter for letter in "DHW" if letter in data)
    return [
        op.astype(_back(emit, dx, f"NC{spatial}", data), dtype_of(x)),
        op.astype(_back(emit, dw, f"{filters}{spatial}", kernel), dtype_of(w)),
    ]


def _back(emit: _Emit, expr: relax.Expr, layout: str, wanted: str) -> relax.Expr:
    return emit(ordered(emit(expr), layout, wanted))


class _Problem:
    """x (n, c, ...), w (k, c / groups, ...) and dy (n, k, ...)."""

    def __init__(
        self, emit: _Emit, x: relax.Expr, w: relax.Expr, dy: relax.Expr, call: relax.Call
    ) -> None:
        self.emit, self.x, self.w, self.dy = emit, x, w, dy
        self.sizes, self.taps = shape_of(x)[2:], shape_of(w)[2:]
        self.n, self.rank = shape_of(x)[0], len(self.sizes)
        self.strides, self.dilation = (
            ints(v) * (self.rank if len(ints(v)) == 1 else 1)
            for v in (call.attrs.strides, call.attrs.dilation)
        )
        padding = ints(call.attrs.padding)
        if len(padding) == 1:
            padding *= self.rank
        self.before = padding[: self.rank]
        self.after = padding[-self.rank :]
        self.groups = int(call.attrs.groups)

    def forward(self) -> relax.Expr:
        return _OPS[self.rank](
            self.x, self.w, strides=self.strides, padding=(*self.before, *self.after),
            dilation=self.dilation, groups=self.groups,
        )  # fmt: skip

    def input_gradient(self) -> relax.Expr:
        """dy, with zeros between its elements, convolved with the filter turned around."""
        k, c = shape_of(self.w)[0] // self.groups, shape_of(self.w)[1]
        turned = self.emit(op.reshape(self.w, (self.groups, k, c, *self.taps)))
        axes = [0, 2, 1, *range(3, 3 + self.rank)]
        turned = self.emit(op.permute_dims(turned, axes))
        turned = self.emit(op.reshape(turned, (self.groups * c, k, *self.taps)))
        for axis in range(2, 2 + self.rank):
            turned = self.emit(op.flip(turned, axis))
        rows = self._spread()
        before, after = [], []
        for i, size in enumerate(self.sizes):
            reach = (self.taps[i] - 1) * self.dilation[i]
            before.append(reach - self.before[i])
            # As many zeros behind that the result has the input's size.
            after.append(size + reach - before[-1] - shape_of(rows)[2 + i])
        widths = [0, 0, 0, 0, *(w for pair in zip(before, after, strict=True) for w in pair)]
        cut = [min(w, 0) for w in widths]
        if any(cut):  # more padding than the filter reaches over
            ends = [d + w for d, w in zip(shape_of(rows), cut[1::2], strict=True)]
            axes = list(range(2 + self.rank))
            rows = self.emit(op.strided_slice(rows, axes, [-w for w in cut[::2]], ends))
        rows = self.emit(op.nn.pad(rows, [max(w, 0) for w in widths]))
        return _OPS[self.rank](rows, turned, dilation=self.dilation, groups=self.groups)

    def _spread(self) -> relax.Expr:
        """dy with ``stride - 1`` zeros behind each element but the last of an axis."""
        if all(s == 1 for s in self.strides):
            return self.dy
        shape = shape_of(self.dy)
        apart, widths, spread = list(shape[:2]), [0] * 4, list(shape[:2])
        for size, stride in zip(shape[2:], self.strides, strict=True):
            apart += [size, 1]
            widths += [0, 0, 0, stride - 1]
            spread.append(size * stride)
        rows = self.emit(op.nn.pad(self.emit(op.reshape(self.dy, apart)), widths))
        rows = self.emit(op.reshape(rows, spread))
        ends = [d - s + 1 for d, s in zip(spread[2:], self.strides, strict=True)]
        axes = list(range(2, 2 + self.rank))
        return self.emit(op.strided_slice(rows, axes, [0] * self.rank, ends))

    def filter_gradient(self) -> relax.Expr:
        """x convolved with dy: channels take the part of images, strides that of dilation."""
        c, k = shape_of(self.w)[1], shape_of(self.w)[0]
        x = self.emit(op.reshape(self.x, (self.n, self.groups, c, *self.sizes)))
        x = self.emit(op.permute_dims(x, [2, 1, 0, *range(3, 3 + self.rank)]))
        x = self.emit(op.reshape(x, (c, self.groups * self.n, *self.sizes)))
        dy = self.emit(op.permute_dims(self.dy, [1, 0, *range(2, 2 + self.rank)]))
        found = self.emit(
            _OPS[self.rank](
                x, dy, strides=self.dilation, padding=(*self.before, *self.after),
                dilation=self.strides, groups=self.groups,
            )
        )  # fmt: skip
        axes = list(range(2, 2 + self.rank))
        if shape_of(found)[2:] != self.taps:  # where the stride left some input over
            found = self.emit(op.strided_slice(found, axes, [0] * self.rank, list(self.taps)))
        found = self.emit(op.reshape(found, (c, k, *self.taps)))
        return op.permute_dims(found, [1, 0, *axes])
