"""Squeeze-and-excitation blocks: the mean of each channel of an image, two small GEMMs, and the
image times the result, so that the image is read once and the rest is no kernel of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from tvm import relax

from ...graph.expr import dtype_of, ints, op_name, shape_of
from ...graph.function import used_vars
from ...ir.dtypes import HALF_DTYPES
from ...ir.squeeze_excite import SqueezeExcite
from ...ir.workload import Workload
from .back_to_back import chain_of, is_pointwise
from .base import GraphView, Pattern, Site, fitted
from .chain import Chain
from .epilogue import extended
from .roots import Root, find_root
from .sources import sources
from .strided import Strided

#: Activations of the gates: others are no gates of this kind.
_GATES = ("sigmoid", "clip")
#: Activations behind the multiplication that a kernel may apply.
_BEHIND = ("none", "relu", "clip")


class SqueezeExcitePattern(Pattern):
    """From the mean of the pixels of 16 bits to the multiplication with a sigmoid or clip of two
    GEMMs, each a 1x1 convolution or a matmul with constant weights; and on to the residual and
    the activation behind it."""

    name = "squeeze_excite"
    optional = False

    def sites(self, graph: GraphView) -> Iterator[Site]:
        for binding in graph.bindings:
            x = _averaged(graph, binding.var)
            squeeze = _gemm_of(graph, binding.var) if x is not None else None
            excite = _gemm_of(graph, squeeze.chain.end) if squeeze is not None else None
            if x is None or squeeze is None or excite is None:
                continue
            scaled = _scaled(graph, x, excite.chain.end)
            if scaled is not None and excite.chain.epilogue.activation in _GATES:
                found = [binding.var, *squeeze.covered, *excite.covered, *scaled]
                for behind in _behind(graph, scaled[-1]):
                    yield _site(x, squeeze, excite, found, behind)


@dataclasses.dataclass(frozen=True)
class _Gemm:
    """A GEMM with the chain behind it, and the variables of both and of the views before."""

    root: Root
    chain: Chain
    covered: tuple[relax.Var, ...]


def _averaged(graph: GraphView, var: relax.Var) -> relax.Var | None:
    """The image (n,h,w,c) of whose pixels a variable is the mean."""
    call = graph.value[var]
    if op_name(call) != "relax.mean" or call.attrs.axis is None:
        return None
    (x,) = call.args
    axes = sorted(axis % len(shape_of(x)) for axis in ints(call.attrs.axis))
    is_image = isinstance(x, relax.Var) and len(shape_of(x)) == 4 and axes == [1, 2]
    return x if is_image and dtype_of(x) == dtype_of(var) and dtype_of(x) in HALF_DTYPES else None


def _gemm_of(graph: GraphView, var: relax.Var) -> _Gemm | None:
    """The GEMM with constant weights that alone reads a vector of each image, if only through
    reshapes."""
    read, views = var, list[relax.Var]()
    while (reader := graph.only_reader(read)) is not None:
        if op_name(graph.value[reader]) != "relax.reshape":
            break
        read, views = reader, [*views, reader]
    root = find_root(graph.bindings[graph.position[reader]], graph) if reader is not None else None
    if reader is None or root is None or not root.inputs[0].same_as(read):
        return None
    w = root.workload
    is_gemm = w.op in ("fprop", "matmul") and is_pointwise(w) and w.h * w.w == 1
    same = (w.n, w.c) == (shape_of(var)[0], shape_of(var)[-1]) and not used_vars(root.inputs[1])
    if not is_gemm or not same or not w.dtype == w.out_dtype == dtype_of(var):
        return None
    chain = chain_of(graph, reader)
    return _Gemm(root, chain, (*views, *chain.covered))


def _scaled(graph: GraphView, x: relax.Var, gates: relax.Var) -> list[relax.Var] | None:
    """The views of gates, and the image times these."""
    views, reader = list[relax.Var](), graph.only_reader(gates)
    while reader is not None and op_name(graph.value[reader]) in _VIEWS:
        views, reader = [*views, reader], graph.only_reader(reader)
    if reader is None or op_name(graph.value[reader]) != "relax.multiply":
        return None
    args, end = graph.value[reader].args, (views or [gates])[-1]
    others = [arg for arg in args if not arg.same_as(end)]
    if len(others) != 1 or not others[0].same_as(x) or shape_of(reader) != shape_of(x):
        return None
    return [*views, reader] if _is_spread(graph, end, gates, shape_of(x)) else None


_VIEWS = ("relax.reshape", "relax.permute_dims", "relax.broadcast_to")


def _is_spread(graph: GraphView, view: relax.Var, gates: relax.Var, image: tuple[int, ...]) -> bool:
    """Return whether a view of gates has one for each channel of each image, whatever the pixel."""
    n, _, _, c = image
    for source in sources(graph, view):
        if source.tensor.same_as(gates):
            vectors = Strided.compact((n, 1, 1, c))
            return _strides(source.layout.spread(image)) == _strides(vectors.spread(image))
    return False


def _strides(layout: Strided) -> list[list[tuple[int, int]]]:
    """Extents and strides of a view with a factor for each dimension, without extents of 1."""
    return [[factor for factor in factors if factor[0] > 1] for factors in layout.dims]


def _behind(graph: GraphView, scaled: relax.Var) -> Iterator[Chain]:
    """The chains of a multiplication: with the residual and the activation, where there are any,
    and alone."""
    chain = longest = Chain([scaled], scaled)
    while (longer := extended(graph, longest)) is not None:
        e = longer.epilogue
        if e.bias or e.residual_last or e.activation not in _BEHIND:
            break
        longest = longer
    if longest is not chain:
        yield longest
    yield chain


def _site(
    x: relax.Var, squeeze: _Gemm, excite: _Gemm, covered: list[relax.Var], behind: Chain
) -> Site:
    n, h, w, c = shape_of(x)
    own = SqueezeExcite(squeeze.root.workload.k, squeeze.chain.epilogue, excite.chain.epilogue)
    workload = Workload(
        "squeeze_excite", n, h, w, c, c, 1, 1, dtype=dtype_of(x), out_dtype=dtype_of(x),
        epilogue=behind.epilogue, squeeze_excite=own,
    )  # fmt: skip
    added = [behind.residual, squeeze.chain.bias, excite.chain.bias]
    weights = [squeeze.root.inputs[1], excite.root.inputs[1]]
    inputs = [x, *weights, *(value for value in added if value is not None)]
    return Site(
        covered=(*covered, *behind.covered[1:]),
        outputs=(behind.end,),
        workload=workload,
        inputs=fitted(inputs, workload),
        joint=True,
    )
