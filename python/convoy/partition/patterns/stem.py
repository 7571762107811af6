"""The first convolution of a network with what surrounds it: the cast, permutation and padding of
its input, and the max-pool behind its epilogue."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from tvm import relax

from ...graph.expr import (
    dtype_of,
    ints,
    op_name,
    padding4,
    permutation_of,
    shape_of,
)
from ...ir.dtypes import HALF_DTYPES
from ...ir.stem import Stem
from ...ir.workload import Workload
from ..operations import FUSED
from .base import GraphView, Pattern, Site, fitted
from .chain import Chain
from .epilogue import extended, with_affine_relu
from .roots import find_root

#: Channels of the input up to which kernels for stems are made.
MOST_CHANNELS = 4
_CHANNELS_LAST = [0, 2, 3, 1]


@dataclasses.dataclass
class _Image:
    """The input of a convolution as it is before some operations; ``covered`` are their results."""

    tensor: relax.Expr
    stem: Stem
    covered: list[relax.Var]


class StemPattern(Pattern):
    """Convolutions of 16 bits and at most four input channels, from the image that they read to
    the end of their epilogue, or of a max-pool behind it."""

    name = "stem"
    optional = False

    def sites(self, graph: GraphView) -> Iterator[Site]:
        for binding in graph.bindings:
            root = find_root(binding, graph) if _reads_few_channels(binding.value) else None
            if root is None or not _is_stem(root.workload):
                continue
            chain = _chain(graph, binding.var)
            if chain is None:
                continue
            image = _image(graph, root.inputs[0], root.workload.dtype)
            ends = [(chain, image.stem)]
            if (pooled := _pooled(graph, chain, image.stem)) is not None:
                ends.insert(0, pooled)
            for end, stem in ends:
                if image.covered or stem.pools:
                    yield _site(root.workload, image, root.inputs[1], end, stem)


def _reads_few_channels(call: relax.Expr) -> bool:
    """Return whether a call is a convolution of few channels, which come last."""
    is_convolution = op_name(call) == "relax.nn.conv2d"
    return is_convolution and shape_of(call.args[0])[-1] <= MOST_CHANNELS


def _is_stem(w: Workload) -> bool:
    return w.groups == 1 and w.dtype in HALF_DTYPES and w.out_dtype == w.dtype


def _site(workload: Workload, image: _Image, weights: relax.Expr, chain: Chain, stem: Stem) -> Site:
    workload = dataclasses.replace(workload, op="stem", epilogue=chain.epilogue, stem=stem)
    inputs = [image.tensor, weights, *([chain.bias] if chain.bias is not None else [])]
    # Its root comes first.
    covered = (*chain.covered, *image.covered)
    return Site(covered, (chain.end,), workload, fitted(inputs, workload))


def _chain(graph: GraphView, var: relax.Var) -> Chain | None:
    """A convolution with its bias and activation; None where others fuse more than that: a stem
    has to be the longest alternative of its root (:func:`.cost.native.leftovers`)."""
    chain = Chain([var], var)
    while (longer := extended(graph, chain)) is not None:
        if longer.epilogue.residual:
            return None
        chain = longer
    return chain if with_affine_relu(graph, chain) is None else None


def _image(graph: GraphView, value: relax.Expr, dtype: str) -> _Image:
    """The input of a convolution, back to where other operations than the pattern's made it. The
    input as it is where an elementwise one did: TVM fuses the pattern's with that."""
    whole = image = _Image(value, Stem(shape_of(value)[3], True, dtype), [])
    taken: set[str] = set()
    while isinstance(image.tensor, relax.Var) and image.tensor in graph.value:
        var = image.tensor
        call = graph.value[var]
        alone = len(graph.readers[var]) == 1 and var not in graph.returned
        stem = _before(call, image.stem, dtype) if alone else None
        if stem is None or op_name(call) in taken:
            break
        taken.add(op_name(call))
        image = _Image(call.args[0], stem, [*image.covered, var])
    made = graph.value.get(image.tensor) if isinstance(image.tensor, relax.Var) else None
    fused = op_name(made) in FUSED and graph.only_reader(image.tensor) is not None
    return whole if fused else image


def _before(call: relax.Expr, stem: Stem, dtype: str) -> Stem | None:
    """Return the stem that also does the work of the call before it; None if there is none."""
    name = op_name(call)
    if name == "relax.nn.pad" and stem.channels_last and _pads_channels(call):
        return dataclasses.replace(stem, channels=shape_of(call.args[0])[3])
    if stem.channels_last and _is_permuted(call):
        return dataclasses.replace(stem, channels_last=False)
    if name == "relax.astype" and dtype_of(call.args[0]) == "float32" and stem.dtype == dtype:
        return dataclasses.replace(stem, dtype="float32")
    return None


def _is_permuted(call: relax.Call) -> bool:
    """Return whether a call puts the channels of images last; of a single one, by a reshape."""
    if op_name(call) == "relax.permute_dims":
        return list(permutation_of(call)) == _CHANNELS_LAST
    if op_name(call) != "relax.reshape" or len(shape_of(call)) != 4:
        return False
    n, h, w, channels = shape_of(call)
    return channels == 1 and shape_of(call.args[0]) == (n, 1, h, w)


def _pads_channels(call: relax.Call) -> bool:
    """Return whether a call adds zeros behind the channels of images."""
    width, attrs = ints(call.attrs.pad_width), call.attrs
    zeros = float(attrs.pad_value) == 0.0 and attrs.pad_mode == "constant"
    return len(width) == 8 and not any(width[:7]) and zeros


def _pooled(graph: GraphView, chain: Chain, stem: Stem) -> tuple[Chain, Stem] | None:
    """The chain and the stem with the max-pool that alone reads the chain's end."""
    reader = graph.only_reader(chain.end)
    if reader is None or op_name(graph.value[reader]) != "relax.nn.max_pool2d":
        return None
    attrs = graph.value[reader].attrs
    plain = str(attrs.layout) == str(attrs.out_layout or attrs.layout) == "NHWC"
    if not plain or set(ints(attrs.dilation)) != {1}:
        return None
    window, stride = ints(attrs.pool_size), ints(attrs.strides)
    top, left, *_ = padding4(attrs.padding)
    # The padding behind the last row and column, as far as the last windows reach.
    (_, p, q, _), (_, rows, columns, _) = shape_of(chain.end), shape_of(reader)
    bottom = max(0, (rows - 1) * stride[0] + window[0] - top - p)
    right = max(0, (columns - 1) * stride[1] + window[1] - left - q)
    padding = (top, left, bottom, right)
    pooled = dataclasses.replace(
        stem, window=(window[0], window[1]), stride=(stride[0], stride[1]), padding=padding
    )
    longer = dataclasses.replace(chain, covered=[*chain.covered, reader], end=reader)
    fits = pooled.pooled(p, q) == (rows, columns) and pooled.fits(p, q)
    return (longer, pooled) if fits else None
