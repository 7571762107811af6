"""Convolutions and linear layers in 16 bit, with channels of zeros up to a multiple of 8.

Kernels for tensor cores load 8 channels at once: of other counts CUTLASS takes none, and libraries
have few kernels. Filters of zeros add output channels, and the next convolution's filters have
zeros for them, so that between two convolutions nothing is padded or cut: element-wise operators,
pools and resizes work on the wide tensor. Other readers of a value get its first channels, and what
no convolution made is padded: copies that are fused with the operators around them. Linear layers
are widened where such a copy is there already, as in networks that mix tokens: tokens are the
columns of a permutation before these layers and become rows again behind them.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import tvm
from tvm import relax

from ..graph.expr import (
    as_numpy,
    call_like,
    dtype_of,
    ints,
    is_const,
    make_const,
    op_name,
    rank_of,
    relax_ops,
    shape_of,
)
from ..graph.function import bindings_of, main_function
from ..graph.rewriter import Rewriter
from ..ir.dtypes import HALF_DTYPES
from ..ops import DGRAD, conv_attrs
from ..ops.activation import ELU, HARDSWISH, MISH
from ..ops.conv_attrs import has_normal_layouts
from .attention_reads import readers_of
from .reshapes import NORMS

#: Channels that kernels load at once; images with fewer are stems (:mod:`.channels`).
VECTOR = 8
_CONV, _MATMUL, _PERMUTE = "relax.nn.conv2d", "relax.matmul", "relax.permute_dims"
#: Operators whose results are finite wherever their operands are: the channels that are added are
#: multiplied by zeros in the end.
_UNARY = relax_ops(
    "nn.relu nn.leakyrelu nn.silu nn.gelu nn.gelu_tanh nn.softplus sigmoid tanh clip abs negative"
) | {ELU, HARDSWISH, MISH}
_BINARY = relax_ops("add subtract multiply maximum minimum")
_POOLS = relax_ops("nn.max_pool2d nn.avg_pool2d nn.adaptive_avg_pool2d image.resize2d")
#: What treats all channels alike, and may keep them where they are.
_ALONG = _UNARY | _POOLS | relax_ops("nn.pad mean reshape astype")
#: Kernels of TVM that write channels in another order.
_COPIES = relax_ops("reshape concat permute_dims strided_slice")


class WidenChannels(Rewriter):
    """Widen convolutions with constant filters, in NHWC, without groups or depthwise, transposed
    ones without groups, and linear layers."""

    ops: ClassVar[frozenset[str] | None] = (
        frozenset({_CONV, DGRAD, _MATMUL}) | _BINARY | _ALONG | _COPIES
    )

    def __init__(self) -> None:
        super().__init__()
        #: The wide tensors of which values are the first channels.
        self._wide: dict[relax.Expr, relax.Expr] = {}

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        _, func = main_function(mod)
        calls = (binding.value for binding in bindings_of(func))
        return super().__call__(mod) if any(map(_is_narrow, calls)) else mod

    def start(self, func: relax.Function) -> None:
        self._readers = readers_of(func, self.values)

    def rewrite(self, call: relax.Call, old: relax.Call) -> relax.Expr | None:
        name, wide = op_name(call), None
        if name == _CONV:
            wide = self._convolution(call) if _is_plain(call) else None
        elif name == DGRAD:
            wide = self._transposed(call) if _is_transposed(call) else None
        elif name == _MATMUL:
            wide = self._linear(call) if _is_linear(call) else None
        elif name in _BINARY:
            wide = self._binary(call)
        elif name in _ALONG and call.args[0] in self._wide and not self._is_normed(call):
            wide = self._along(call, self._wide[call.args[0]])
        if wide is not None:
            return self._cut(self.emit(wide), shape_of(call)[-1])
        if name in _COPIES and self._is_widened(self.old.var):
            return self._padded_at_once(call)
        return None

    def _is_widened(self, var: relax.Var) -> bool:
        """Whether a convolution is going to widen an old value."""
        size = shape_of(var)[-1:]
        return size > (VECTOR,) and any(
            reader is not None
            and _is_plain(self.values[reader])
            and int(self.values[reader].attrs.groups) == 1
            and size[0] % VECTOR > 0
            for reader in self._readers.get(var) or ()
        )

    def _padded_at_once(self, call: relax.Call) -> relax.Expr:
        """What a copy makes with its padding, in one kernel whatever else reads it."""
        narrow = self.emit(call)
        size = shape_of(narrow)[-1]
        return self._cut(self._widened(narrow, -(-size // VECTOR) * VECTOR), size)

    def _cut(self, wide: relax.Expr, channels: int) -> relax.Expr:
        """The first channels of a tensor, which readers that take all of them do without."""
        if shape_of(wide)[-1] == channels:
            return wide
        axis = rank_of(wide) - 1
        narrow = self.emit(relax.op.strided_slice(wide, [axis], [0], [channels]))
        self._wide[narrow] = wide
        return narrow

    def _convolution(self, call: relax.Call) -> relax.Expr | None:
        data, kernel = call.args
        k, _, _, c = shape_of(kernel)
        if int(call.attrs.groups) > 1:  # depthwise
            if data not in self._wide:
                return None
            extra = shape_of(self._wide[data])[-1] - k
            wide = [self._wide[data], _padded(kernel, 0, extra)]
            return call_like(call, wide, groups=k + extra)
        more = _more(k, c)
        if data in self._wide or c > VECTOR:
            data = self._widened(data, -(-c // VECTOR) * VECTOR)
        extra = shape_of(data)[-1] - c
        if not more and not extra:
            return None
        return call_like(call, [data, _padded(_padded(kernel, 3, extra), 0, more)])

    def _transposed(self, call: relax.Call) -> relax.Expr | None:
        data, kernel = call.args
        k, _, _, c = shape_of(kernel)  # of the convolution that it is the gradient of
        more = _more(c, k)
        if data in self._wide or k > VECTOR:
            data = self._widened(data, -(-k // VECTOR) * VECTOR)
        extra = shape_of(data)[-1] - k
        if not more and not extra:
            return None
        return call_like(call, [data, _padded(_padded(kernel, 0, extra), 3, more)])

    def _linear(self, call: relax.Call) -> relax.Expr | None:
        data, weights = call.args
        c, k = shape_of(weights)
        if data in self._wide or self._is_permuted(data):
            data = self._widened(data, -(-c // VECTOR) * VECTOR)
        extra = shape_of(data)[-1] - c
        more = -k % VECTOR if k > VECTOR and self._becomes_permuted(self.old.var) else 0
        if not more and not extra:
            return None
        return call_like(call, [data, _padded(_padded(weights, 0, extra), 1, more)])

    def _is_permuted(self, value: relax.Expr) -> bool:
        """Whether a value is the copy that a permutation makes."""
        while (made := self.producer(value, "relax.reshape")) is not None:
            value = made.args[0]
        return self.producer(value, _PERMUTE) is not None

    def _becomes_permuted(self, var: relax.Var) -> bool:
        """Whether all that reads an old value, element by element, copies or widens it."""
        return all(
            reader is not None and self._copies(self.values[reader], var, reader)
            for reader in self._readers.get(var) or [None]
        )

    def _copies(self, call: relax.Expr, var: relax.Var, result: relax.Var) -> bool:
        name = op_name(call)
        if name == _PERMUTE or _is_linear(call):
            return True
        if name == "relax.reshape":
            alike = shape_of(call)[-1:] == shape_of(var)[-1:]
        elif name in _BINARY and any(map(self._is_wide, call.args)):
            return True  # of a tensor that is wide, for which this one would be padded
        else:
            alike = name in _UNARY | _BINARY and all(
                is_const(a) or a.same_as(var) for a in call.args
            )
        return alike and self._becomes_permuted(result)

    def _is_normed(self, call: relax.Call) -> bool:
        """Whether a cast is for a norm alone: its kernel reads what is cut in place, and casts."""
        if op_name(call) != "relax.astype":
            return False
        readers = self._readers.get(self.old.var) or [None]
        return all(r is not None and op_name(self.values[r]) in NORMS for r in readers)

    def _is_wide(self, old: relax.Expr) -> bool:
        """Whether an old value, or what it is a reshape of, has been cut from a wide tensor."""
        view = self.values.get(old) if isinstance(old, relax.Var) else None
        if view is not None and op_name(view) == "relax.reshape":
            alike = shape_of(view)[-1:] == shape_of(view.args[0])[-1:]
            return alike and self._is_wide(view.args[0])
        return self.rename(old) in self._wide

    def _widened(self, value: relax.Expr, channels: int) -> relax.Expr:
        """A value with zeros, or whatever the tensor that it is cut from has, behind its
        channels."""
        extra = channels - shape_of(value)[-1]
        if not extra:
            return value
        if is_const(value):
            return _padded(value, rank_of(value) - 1, extra)
        if value not in self._wide:
            width = [0] * (2 * rank_of(value) - 1)
            self._wide[value] = self.emit(relax.op.nn.pad(value, [*width, extra]))
        return self._wide[value]

    def _binary(self, call: relax.Call) -> relax.Expr | None:
        """An element-wise operator of which one operand is wide already."""
        channels = shape_of(call)[-1:]
        along = [arg for arg in call.args if shape_of(arg)[-1:] == channels]  # not spread
        sizes = {shape_of(self._wide[arg])[-1] for arg in along if arg in self._wide}
        if len(sizes) != 1 or any(is_const(arg) and not _is_finite(arg) for arg in call.args):
            return None
        (size,) = sizes
        return call_like(call, [self._widened(a, size) if a in along else a for a in call.args])

    def _along(self, call: relax.Call, wide: relax.Expr) -> relax.Expr | None:
        """An operator that treats all channels alike, of a wide tensor."""
        name, source, result = op_name(call), call.args[0], shape_of(call)
        if result[-1:] != shape_of(source)[-1:]:
            return None
        mostly_zeros = 2 * result[-1] <= shape_of(wide)[-1]
        if mostly_zeros and name not in _UNARY:  # a resize would write several times as much
            return None
        if name == "relax.reshape":
            return self.reshaped(wide, (*result[:-1], shape_of(wide)[-1]))
        if name == "relax.nn.pad" and any(ints(call.attrs.pad_width)[-2:]):
            return None
        if name == "relax.mean":
            axes = call.attrs.axis
            if axes is None or any(axis % rank_of(source) == rank_of(source) - 1 for axis in axes):
                return None
        if name in _POOLS and str(call.attrs.layout) != "NHWC":
            return None
        return call_like(call, [wide, *call.args[1:]])


def _is_plain(call: relax.Call) -> bool:
    """A 2-d convolution that may be widened: of 16-bit images in NHWC, by constants."""
    if op_name(call) != _CONV or not is_const(call.args[1]):
        return False
    if not has_normal_layouts(call) or dtype_of(call.args[0]) not in HALF_DTYPES:
        return False
    groups, c = int(call.attrs.groups), shape_of(call.args[0])[-1]
    return groups == 1 or groups == c == shape_of(call.args[1])[0]


def _is_transposed(call: relax.Expr) -> bool:
    """A transposed 2-d convolution of 16-bit images in NHWC by constants."""
    if op_name(call) != DGRAD or not is_const(call.args[1]):
        return False
    attrs = conv_attrs(call)
    narrow = dtype_of(call.args[0]) in HALF_DTYPES
    return narrow and attrs.is_normal and attrs.groups == 1


def _more(results: int, channels: int) -> int:
    """Channels to add to the results of a convolution of so many channels; none where they would
    be most of its work."""
    more = -results % VECTOR
    return more if 2 * more <= max(2 * results, channels) else 0


def _is_linear(call: relax.Expr) -> bool:
    """A product of 16-bit rows and a constant matrix."""
    if op_name(call) != _MATMUL:
        return False
    data, weights = call.args
    narrow = dtype_of(data) in HALF_DTYPES
    return narrow and is_const(weights) and rank_of(data) == 2 == rank_of(weights)


def _is_narrow(call: relax.Expr) -> bool:
    """Whether the channels of a convolution, stems aside, or linear layer are no multiple of the
    vector."""
    if _is_linear(call):
        return any(size % VECTOR > 0 for size in shape_of(call.args[1]))
    if _is_transposed(call):
        k, _, _, c = shape_of(call.args[1])
        return c % VECTOR > 0 or (k > VECTOR and k % VECTOR > 0)
    if not isinstance(call, relax.Call) or not _is_plain(call) or int(call.attrs.groups) > 1:
        return False
    k, _, _, c = shape_of(call.args[1])
    return k % VECTOR > 0 or (c > VECTOR and c % VECTOR > 0)


def _is_finite(constant: relax.Expr) -> bool:
    return bool(np.isfinite(as_numpy(constant).astype("float32")).all())


def _padded(constant: relax.Expr, axis: int, extra: int) -> relax.Expr:
    """A constant with zeros at the end of an axis."""
    if not extra:
        return constant
    values = as_numpy(constant)
    width = [(0, extra if i == axis else 0) for i in range(values.ndim)]
    return make_const(np.pad(values, width), dtype_of(constant))
