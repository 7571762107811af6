"""A convolution or GEMM with its epilogue, or attention, as plain data."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

from ..errors import InvalidWorkload
from . import fields as checks
from . import operands, workload_fields, workload_names
from .attention import Attention
from .bottleneck import Bottleneck
from .depth import IMAGES, Depth
from .epilogue import NO_EPILOGUE, Epilogue
from .expansion import Expansion
from .operands import Operand
from .squeeze_excite import SqueezeExcite
from .stem import Stem
from .workload_fields import Op


@dataclass(frozen=True, order=True)
class Workload:
    """A convolution with NHWC activations and KRSC (OHWI) weights, a GEMM, or attention.

    Sizes always describe the *forward* convolution: input ``(n, h, w, c)``, filter
    ``(k, r, s, c // groups)``, output ``(n, p, q, k)``. ``dgrad`` computes the input from
    output and filter, ``wgrad`` the filter from input and output. ``matmul`` is
    ``(n, c) x (k, c)^T -> (n, k)`` and has ``h = w = r = s = 1``; with several groups it is
    batched: one product of ``n`` rows for each, without an epilogue. ``attention`` has ``n``
    batches of ``groups`` heads, ``h`` queries, ``w`` keys and ``r = s = 1``; a head has
    ``c // groups`` elements in q and k and ``k // groups`` in v and o. The rest is in
    ``attention``.

    A 3d convolution has its third spatial axis in ``depth``, before the others: input
    ``(n, d, h, w, c)``, filter ``(k, t, r, s, c // groups)``, output ``(n, o, p, q, k)``. It is
    ``fprop`` or ``dgrad``. The default depth is that of a 2d convolution.

    ``stem`` is the first convolution of a network, an ``fprop`` whose input is as the network is
    given it, and which may end in a max-pool. These are in ``stem``.

    ``expand_depthwise`` is a depthwise convolution of the result of a 1x1 convolution, which
    ``expansion`` describes. Between them is the tensor ``(n, h, w, c)``, rounded to ``dtype``.

    ``bottleneck`` is a convolution with stride 1 with one or two 1x1 convolutions behind it, which
    ``bottleneck`` describes: ``y`` is the result of the second, ``z`` of the third, which reads
    ``y``. The first one's is the tensor ``(n, p, q, k)``, rounded to ``dtype`` as the others are.

    ``squeeze_excite`` is an image times gates of its channels, which are two GEMMs with the
    means of these: ``y = activation(x * gates + residual)``. ``squeeze_excite`` describes the
    GEMMs; the means and the results of both are rounded to ``dtype``.

    Operands in call order, outputs last:

    ================  =========================================================================
    fprop             x (n,h,w,c), w (k,r,s,c/groups), [residual], [bias], [scale, shift], [y], [y2]
    matmul            a (n,c), b (k,c), [residual], [bias], [scale, shift], [y], [y2]
    batched           a (groups,n,c/groups), b (groups,k/groups,c/groups), y (groups,n,k/groups)
    attention         q, k, v, [bias], o, of the shapes of their views
    stem              x (n,channels,h,w) or (n,h,w,channels), w (k,r,s,c), [bias], y (n,p',q',k)
    expand_depthwise  x (n,h,w,channels), w (k,r,s,1), expand (k,channels), [expand_bias], [bias],
                      y (n,p,q,k)
    bottleneck        x (n,h,w,c), w (k,r,s,c), expand (expand,k), [reduce (reduce,expand)],
                      [residual (n,p,q,expand)], [bias], [expand_bias], [reduce_bias],
                      y (n,p,q,expand), [z (n,p,q,reduce)]
    squeeze_excite    x (n,h,w,c), squeeze (channels,c), excite (c,channels), [residual (n,h,w,c)],
                      [squeeze_bias], [excite_bias], y (n,h,w,c)
    dgrad             dy (n,p,q,k), w (k,r,s,c/groups), dx (n,h,w,c)
    wgrad             dy (n,p,q,k), x (n,h,w,c), dw (k,r,s,c/groups)
    ================  =========================================================================

    ``padding`` is (top, left, bottom, right). Accumulation is in ``acc_dtype``; ``math`` is
    ``tf32`` if float32 operands may be rounded to tf32.

    A forward convolution or GEMM of ``int8`` has exact sums in ``int32``, and at most a bias; or a
    result in ``int8`` and rows ``(bias, scale, shift, factor)`` for a bias, of shape (k, 4), the
    last three float32 bits: ``y = zero + clip(round(((sum + bias) * scale + shift) * factor))`` in
    float32, halves to even, where ``zero = 127 - clip_max``.
    """

    op: Op
    n: int
    h: int
    w: int
    c: int
    k: int
    r: int
    s: int
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    dtype: str = "float16"
    out_dtype: str = "float16"
    acc_dtype: str = "float32"
    math: str = "default"
    epilogue: Epilogue = NO_EPILOGUE
    attention: Attention | None = None
    depth: Depth = IMAGES
    stem: Stem | None = None
    expansion: Expansion | None = None
    bottleneck: Bottleneck | None = None
    squeeze_excite: SqueezeExcite | None = None

    def __post_init__(self) -> None:
        workload_fields.check(self)

    @property
    def is_3d(self) -> bool:
        """Whether it is a 3d convolution, with operands of five axes."""
        return self.depth != IMAGES

    @property
    def is_batched(self) -> bool:
        """Whether it is a matmul for each of several groups, with operands of three axes."""
        return self.op == "matmul" and self.groups > 1

    @property
    def is_integer(self) -> bool:
        """Whether its operands are integers, and its sums exact."""
        return self.dtype == "int8"

    @property
    def requantizes(self) -> bool:
        """Whether its sums become int8 again."""
        return self.is_integer and self.out_dtype == "int8"

    @property
    def is_back_to_back(self) -> bool:
        """Whether it is several convolutions or GEMMs, each of which reads the result of the one
        before: an alternative to a kernel for each."""
        fields = (self.expansion, self.bottleneck, self.squeeze_excite)
        return any(field is not None for field in fields)

    @property
    def pixels(self) -> int:
        """Number of elements of one output channel."""
        return self.n * self.depth.o * self.p * self.q

    @property
    def taps(self) -> int:
        """Number of elements of one channel of a filter."""
        return self.depth.t * self.r * self.s

    @property
    def p(self) -> int:
        """Output height."""
        extent = self.dilation[0] * (self.r - 1) + 1
        return (self.h + self.padding[0] + self.padding[2] - extent) // self.stride[0] + 1

    @property
    def q(self) -> int:
        """Output width."""
        extent = self.dilation[1] * (self.s - 1) + 1
        return (self.w + self.padding[1] + self.padding[3] - extent) // self.stride[1] + 1

    @property
    def flops(self) -> int:
        """Multiplications and additions of the forward problem; the same for dgrad and wgrad."""
        if self.op == "attention":
            return 2 * self.n * self.h * self.w * (self.c + self.k)
        if self.squeeze_excite is not None:  # in the mean and in the image times its gates
            return 2 * self.n * self.c * (self.h * self.w + 2 * self.squeeze_excite.channels)
        others = 0
        if self.expansion is not None:
            others = self.n * self.h * self.w * self.expansion.channels * self.c
        if self.bottleneck is not None:
            others = self.pixels * self.bottleneck.expand * (self.k + self.bottleneck.reduce)
        return 2 * (others + self.pixels * self.k * (self.c // self.groups) * self.taps)

    @property
    def bytes_moved(self) -> int:
        """Minimum device memory traffic: each operand read once, each result written once."""
        return operands.bytes_moved(self)

    @property
    def gemms(self) -> tuple[int, int, int, int]:
        """(count, rows, columns, depth) of the implicit GEMMs, one for each group or head; depth is
        the length of their reduction. Of several convolutions or products, the GEMM of the
        first."""
        if self.squeeze_excite is not None:
            return 1, self.n, self.squeeze_excite.channels, self.c
        if self.expansion is not None:
            return 1, self.n * self.h * self.w, self.c, self.expansion.channels
        own_c, own_k = self.c // self.groups, self.k // self.groups
        if self.op == "attention":
            return self.n * self.groups, self.h, own_k, self.w
        if self.op == "dgrad":
            rows = self.n * self.depth.d * self.h * self.w
            return self.groups, rows, own_c, own_k * self.taps
        if self.op == "wgrad":
            return self.groups, own_k, own_c * self.taps, self.pixels
        return self.groups, self.pixels, own_k, own_c * self.taps

    @property
    def label(self) -> str:
        """Short description, such as ``3x3 64→128 /2`` (see :func:`.workload_names.label`)."""
        return workload_names.label(self)

    @property
    def flattened(self) -> Workload:
        """The equivalent 2d problem of a 3d convolution, with reshaped operands; the workload
        itself if there is none.

        A filter with one plane treats each plane as an image; one with a single row and column
        treats rows and columns as one axis.
        """
        planes = self.depth
        if planes.t == planes.stride == 1 and not any(planes.padding):
            return dataclasses.replace(self, n=self.n * planes.d, depth=IMAGES)
        if (self.r, self.s, self.stride) == (1, 1, (1, 1)) and not any(self.padding):
            front, back = planes.padding
            return dataclasses.replace(
                self, h=planes.d, w=self.h * self.w, r=planes.t, stride=(planes.stride, 1),
                padding=(front, 0, back, 0), dilation=(planes.dilation, 1), depth=IMAGES,
            )  # fmt: skip
        return self

    @property
    def is_depthwise(self) -> bool:
        """Whether each input channel is a group of its own."""
        return self.groups > 1 and self.groups == self.c

    @property
    def symmetric_padding(self) -> bool:
        """Whether both ends of each axis are padded alike."""
        top, left, bottom, right = self.padding
        return top == bottom and left == right

    @functools.cached_property
    def key(self) -> str:
        """Canonical one-line name; equal for equal workloads, used in record keys and tables."""
        return workload_names.key(self)

    def operand_shapes(self) -> list[Operand]:
        """Return (name, shape, dtype) of every operand in call order, outputs last."""
        return operands.shapes(self)

    @property
    def num_outputs(self) -> int:
        """Number of tensors that the forward problem writes."""
        if self.bottleneck is not None:
            return 2 if self.bottleneck.reduce else 1
        return self.epilogue.writes_y + self.epilogue.affine_relu

    def to_json(self) -> dict[str, object]:
        """Return all fields; fields of later versions only if they differ from their default, so
        that earlier plans keep their text."""
        data = dataclasses.asdict(self)
        for name in ("alpha", "residual_last"):
            if not data["epilogue"][name]:
                del data["epilogue"][name]
        if not self.is_3d:
            del data["depth"]
        for name in ("attention", "stem", "expansion", "bottleneck", "squeeze_excite"):
            if data[name] is None:
                del data[name]
        return data

    @classmethod
    def from_json(cls, data: object) -> Workload:
        """Inverse of :meth:`to_json`; raises InvalidWorkload naming the missing, unknown or invalid
        field."""
        return checks.made(
            cls, data, workload_fields.FIELDS, "workload", InvalidWorkload, workload_fields.REQUIRED
        )
