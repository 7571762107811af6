"""Convolutions and their gradients at given places of the result, in float64."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from ..ir.activation_values import activate
from ..ir.epilogue import Epilogue
from ..ir.workload import Workload
from . import dtypes, requantization

Array = np.ndarray
#: Elements that are gathered at a time.
_CHUNK = 1 << 21


class Operand:
    """float64 values of an operand by flat element index: ``block`` over and over."""

    def __init__(self, block: Array) -> None:
        self._block = self._extended = np.asarray(block, np.float64).reshape(-1)

    def __call__(self, index: Array) -> Array:
        return self._block[index % self._block.size]

    def rows(self, starts: Array, length: int) -> Array:
        """``length`` neighbouring elements from each start, shape (starts, length): much faster
        than to name every one."""
        size = self._block.size
        if self._extended.size < size + length - 1:
            self._extended = np.resize(self._block, size + length - 1)
        return np.lib.stride_tricks.sliding_window_view(self._extended, length)[starts % size]


class Expanded(Operand):
    """float64 values of the tensor between an expansion's convolutions, rounded to its dtype, by
    flat element index; computed where they are asked for."""

    def __init__(self, workload: Workload, operands: Mapping[str, Operand]) -> None:
        assert workload.expansion is not None, workload.key
        self._workload, self._operands = workload, operands
        self._expansion = workload.expansion

    def __call__(self, index: Array) -> Array:
        channels, e = self._expansion.channels, self._expansion.epilogue
        pixel, k = np.divmod(index, self._workload.c)
        pixels, row = np.unique(pixel, return_inverse=True)
        columns, column = np.unique(k, return_inverse=True)
        x, expand = (
            self._operands[name](places[:, None] * channels + np.arange(channels))
            for name, places in (("x", pixels), ("expand", columns))
        )
        bias = self._operands["expand_bias"](columns) if e.bias else 0.0
        wide = rounded(pointwise(x, expand, e, bias), self._workload.dtype)
        return wide[row.reshape(index.shape), column.reshape(index.shape)]


def pointwise(x: Array, filters: Array, e: Epilogue, *added: Array | float) -> Array:
    """The results (pixels, k) of a 1x1 convolution with what is ``added`` to its sums, from pixels
    of all channels and filters (k, channels)."""
    return activate(e.activation, x @ filters.T + sum(added), e.alpha, e.clip_min, e.clip_max)


def rounded(values: Array, dtype: str) -> Array:
    """The values of a dtype that are nearest to float64 ones."""
    return dtypes.decode(dtypes.encode(values, dtype), dtype)


#: Images, planes, rows and columns of some pixels.
Pixels = tuple[Array, Array, Array, Array]


def fprop(workload: Workload, operands: Mapping[str, Operand], at: Pixels, k: Array) -> list[Array]:
    """Outputs at pixels (n, o, p, q), each for all channels ``k``."""
    wl, depth, cg = workload, workload.depth, workload.c // workload.groups
    n, o, p, q = at
    t, r, s, c = (a.reshape(-1) for a in np.indices((depth.t, wl.r, wl.s, cg)))
    first = _first_of_groups(k // (wl.k // wl.groups), cg)
    taps = ((k[:, None] * depth.t + t) * wl.r + r) * wl.s + s
    weights = operands["w"](taps * cg + c)
    result = np.empty((len(n), len(k)))
    for begin, end in _chunks(len(n), len(r) * len(first)):
        d = o[begin:end, None] * depth.stride - depth.padding[0] + t * depth.dilation
        h = p[begin:end, None] * wl.stride[0] - wl.padding[0] + r * wl.dilation[0]
        w = q[begin:end, None] * wl.stride[1] - wl.padding[1] + s * wl.dilation[1]
        inside = (d >= 0) & (d < depth.d) & (h >= 0) & (h < wl.h) & (w >= 0) & (w < wl.w)
        index, there = _elements(wl, (n[begin:end, None], d, h, w), c)
        result[begin:end] = _matmul(operands["x"], index, inside & there, first, weights)
    if wl.requantizes:
        return [requantization.requantized(wl, result, operands["bias"](_rows_of(k)))]
    flat = (pixel_number(at, (depth.o, wl.p, wl.q)) * wl.k)[:, None] + k
    e = wl.epilogue
    residual = operands["residual"](flat) if e.residual else 0.0
    if e.bias:
        result = result + operands["bias"](k)
    result = result if e.residual_last else result + residual
    result = activate(e.activation, result, e.alpha, e.clip_min, e.clip_max)
    result = result + residual if e.residual_last else result
    if not e.affine_relu:
        return [result]
    second = np.maximum(operands["scale"](k) * result + operands["shift"](k), 0)
    return [result, second] if e.writes_y else [second]


def _elements(wl: Workload, at: Pixels, c: Array) -> tuple[Array, Array]:
    """Flat elements of x at pixels and channels, and whether they are there: the image of a stem
    may have fewer channels, and have them in front."""
    if wl.stem is None:
        return pixel_number(at, (wl.depth.d, wl.h, wl.w)) * wl.c + c, np.ones(len(c), bool)
    n, _, h, w = at
    channels, there = wl.stem.channels, c < wl.stem.channels
    if wl.stem.channels_last:
        return pixel_number(at, (1, wl.h, wl.w)) * channels + c, there
    return ((n * channels + c) * wl.h + h) * wl.w + w, there


def pooled(workload: Workload, operands: Mapping[str, Operand], at: Pixels, k: Array) -> Array:
    """Outputs of a stem with a max-pool at pixels (n, 0, p, q), each for all channels ``k``."""
    stem = workload.stem
    assert stem is not None, workload.key
    n, _, p, q = at
    result = np.full((len(n), len(k)), -np.inf)
    for r in range(stem.window[0]):
        for s in range(stem.window[1]):
            rows = p * stem.stride[0] - stem.padding[0] + r
            columns = q * stem.stride[1] - stem.padding[1] + s
            inside = (rows >= 0) & (rows < workload.p) & (columns >= 0) & (columns < workload.q)
            place = (n, n * 0, np.where(inside, rows, 0), np.where(inside, columns, 0))
            (sums,) = fprop(workload, operands, place, k)
            result = np.where(inside[:, None], np.maximum(result, sums), result)
    return result


def _first_of_groups(group: Array, per_group: int) -> Array:
    """The first channel that each result reads: of each group, or once where there is one."""
    return (group if np.ptp(group) else group[:1]) * per_group


def _matmul(x: Operand, index: Array, inside: Array, first: Array, weights: Array) -> Array:
    """Matmul (pixels, results) of ``x`` at ``index`` (pixels, elements), counted from the ``first``
    channel of each result, and ``weights`` (results, elements). Zeros where not ``inside``."""
    at = np.where(inside, index, 0)[:, None, :] + first[:, None]
    patch = np.where(inside[:, None, :], x(at), 0.0)
    return patch[:, 0] @ weights.T if len(first) == 1 else np.einsum("pkl,kl->pk", patch, weights)


def _rows_of(k: Array) -> Array:
    """Places of the rows of channels in a (K, 4) operand."""
    return 4 * k[:, None] + np.arange(4)


def pixel_number(at: Pixels, sizes: tuple[int, int, int]) -> Array:
    """The number of a pixel of volumes of (planes, rows, columns)."""
    n, d, h, w = at
    return ((n * sizes[0] + d) * sizes[1] + h) * sizes[2] + w


def dgrad(workload: Workload, operands: Mapping[str, Operand], at: Pixels, c: Array) -> Array:
    """Input gradients at pixels (n, d, h, w), each for all channels ``c``."""
    wl, cg, kg = workload, workload.c // workload.groups, workload.k // workload.groups
    (n, d, h, w), depth = at, workload.depth
    t, r, s, k = (a.reshape(-1) for a in np.indices((depth.t, wl.r, wl.s, kg)))
    first = _first_of_groups(c // cg, kg)
    taps = (((first[:, None] + k) * depth.t + t) * wl.r + r) * wl.s + s
    weights = operands["w"](taps * cg + (c % cg)[:, None])
    result = np.empty((len(n), len(c)))
    for begin, end in _chunks(len(n), len(r) * len(first)):
        from_front = d[begin:end, None] + depth.padding[0] - t * depth.dilation
        from_top = h[begin:end, None] + wl.padding[0] - r * wl.dilation[0]
        from_left = w[begin:end, None] + wl.padding[1] - s * wl.dilation[1]
        o, p, q = from_front // depth.stride, from_top // wl.stride[0], from_left // wl.stride[1]
        inside = (from_top % wl.stride[0] == 0) & (from_left % wl.stride[1] == 0)
        inside &= (from_front % depth.stride == 0) & (o >= 0) & (o < depth.o)
        inside &= (p >= 0) & (p < wl.p) & (q >= 0) & (q < wl.q)
        index = pixel_number((n[begin:end, None], o, p, q), (depth.o, wl.p, wl.q)) * wl.k + k
        result[begin:end] = _matmul(operands["dy"], index, inside, first, weights)
    return result


def wgrad(
    workload: Workload, operands: Mapping[str, Operand], k: Array, r: int, s: int, c: Array
) -> Array:
    """Filter gradients at (r, s) of filters ``k``, neighbours in one group, for neighbouring
    channels ``c`` of the group."""
    wl, cg = workload, workload.c // workload.groups
    group = int(k[0]) // (wl.k // wl.groups)
    result = np.zeros((len(k), len(c)))
    for pixel, source in _pairs(wl, r, s, len(k) + len(c)):
        dy = operands["dy"].rows(pixel * wl.k + k[0], len(k))
        x = operands["x"].rows(source * wl.c + group * cg + c[0], len(c))
        result += dy.T @ x
    return result


def depthwise_wgrad(
    workload: Workload, operands: Mapping[str, Operand], r: int, s: int, c: Array
) -> Array:
    """Filter gradients at (r, s) of neighbouring channels ``c``, each a group of its own."""
    wl, result = workload, np.zeros(len(c))
    for pixel, source in _pairs(wl, r, s, 2 * len(c)):
        dy = operands["dy"].rows(pixel * wl.k + c[0], len(c))
        x = operands["x"].rows(source * wl.c + c[0], len(c))
        result += np.einsum("pc,pc->c", dy, x)
    return result


def _pairs(wl: Workload, r: int, s: int, columns: int) -> Iterator[tuple[Array, Array]]:
    """Numbers of output pixels, and of the input pixels that they take at (r, s), as many at a time
    as ``columns`` values of each allow; without those in the padding."""
    for begin, end in _chunks(wl.n * wl.p * wl.q, columns):
        pixel = np.arange(begin, end)
        n, rest = pixel // (wl.p * wl.q), pixel % (wl.p * wl.q)
        h = rest // wl.q * wl.stride[0] - wl.padding[0] + r * wl.dilation[0]
        w = rest % wl.q * wl.stride[1] - wl.padding[1] + s * wl.dilation[1]
        inside = (h >= 0) & (h < wl.h) & (w >= 0) & (w < wl.w)
        yield pixel[inside], ((n * wl.h + h) * wl.w + w)[inside]


def _chunks(rows: int, columns: int) -> list[tuple[int, int]]:
    step = max(1, _CHUNK // max(1, columns))
    return [(begin, min(begin + step, rows)) for begin in range(0, rows, step)]
