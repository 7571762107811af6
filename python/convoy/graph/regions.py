"""Regions: the parts of a normal-form graph that a backend can take over, each as a Workload.

A region grows from its root (a convolution or matrix product) along single-reader edges through
the additions and the activation behind it. Every prefix of that chain is a region of its own, so
each root yields nested alternatives, longest first, and whoever places them chooses.

Legality needs no cycle search: the only value of a region that others read is the end of its chain
``y`` (and ``y2``, a function of ``y`` and constants alone; or ``y2`` only), hence an edge between
two regions always goes from the earlier to the later end and disjoint regions stay acyclic.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import tvm
from tvm import relax

from ..workload import Epilogue, Workload
from .affine import channel_constant
from .expr import (
    FLOAT_DTYPES,
    as_numpy,
    dtype_of,
    ints,
    is_const,
    make_const,
    numpy_dtype,
    op_name,
    padding4,
    rank_of,
    shape_of,
)
from .normalize import POLICY_ATTR
from .ops import DGRAD, WGRAD, forward_workload
from .rewriter import bindings_of, main_function, result_of, used_vars


@dataclass(frozen=True)
class Region:
    """One root with a prefix of the operations behind it.

    ``id`` is unique in its graph; ``root`` is the variable of the convolution or product;
    ``covered`` are the variables whose bindings the region replaces, in program order; ``outputs``
    the variables that it produces, in the workload's order; ``inputs`` the operands in the
    workload's order, expressions over the graph's other variables and constants.
    """

    id: str
    root: str
    covered: tuple[str, ...]
    outputs: tuple[str, ...]
    workload: Workload
    inputs: tuple[relax.Expr, ...] = field(compare=False, repr=False)


class Regions(Sequence[Region]):
    """All regions of a graph: roots in program order, of each root the longest first."""

    def __init__(self, regions: Sequence[Region]) -> None:
        self._all = list(regions)
        self.by_id = {region.id: region for region in self._all}
        self.by_root: dict[str, list[Region]] = defaultdict(list)
        for region in self._all:
            self.by_root[region.root].append(region)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self._all[index]

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Region]:
        return iter(self._all)


def find_regions(mod: tvm.IRModule) -> Regions:
    """All regions of a module in normal form (see ``normalize``); the same for equal modules."""
    _, func = main_function(mod)
    graph = _Graph(func)
    math = "tf32" if (mod.attrs or {}).get(POLICY_ATTR) == "tf32" else "default"
    found: list[Region] = []
    for binding in graph.bindings:
        root = _conv_root(binding) or _gradient_root(binding) or _matmul_root(binding, graph)
        if root is not None:
            if math == "tf32" and root.workload.dtype == "float32":
                root.workload = dataclasses.replace(root.workload, math="tf32")
            found += _alternatives(graph, binding.var, root)
    return Regions(found)


def select(regions: Regions, supported: Callable[[Workload], bool]) -> list[Region]:
    """Greedy cover: for each root in program order the longest region whose workload is supported
    and none of whose operations is taken yet. Roots without such a region are left out."""
    taken: set[str] = set()
    chosen = []
    for alternatives in regions.by_root.values():
        for region in alternatives:
            if taken.isdisjoint(region.covered) and supported(region.workload):
                taken.update(region.covered)
                chosen.append(region)
                break
    return chosen


# -- the graph ---------------------------------------------------------------------------------


class _Graph:
    """Bindings by variable, with their readers and positions."""

    def __init__(self, func: relax.Function) -> None:
        self.bindings = bindings_of(func)
        self.value: dict[relax.Var, relax.Expr] = {}
        self.position: dict[relax.Var, int] = dict.fromkeys(func.params, -1)
        self.readers: dict[relax.Var, list[relax.Var]] = defaultdict(list)
        for index, binding in enumerate(self.bindings):
            self.value[binding.var] = binding.value
            self.position[binding.var] = index
            for var in used_vars(binding.value):
                self.readers[var].append(binding.var)
        self.returned = set(used_vars(result_of(func)))

    def only_reader(self, var: relax.Var) -> relax.Var | None:
        """The one variable computed from ``var``, if it is read once and not returned."""
        readers = self.readers[var]
        return readers[0] if len(readers) == 1 and var not in self.returned else None


@dataclass
class _Root:
    workload: Workload
    inputs: list[relax.Expr]


def _conv_root(binding: relax.Binding) -> _Root | None:
    call = binding.value
    if op_name(call) != "relax.nn.conv2d":
        return None
    x, w = call.args
    attrs = call.attrs
    layouts = (str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout or "NHWC"))
    dtypes = {dtype_of(x), dtype_of(w)}
    if layouts != ("NHWC", "OHWI", "NHWC") or len(dtypes) != 1 or not dtypes <= {*FLOAT_DTYPES}:
        return None
    if dtype_of(binding.var) not in FLOAT_DTYPES:
        return None
    n, h, width, c = shape_of(x)
    k, r, s, _ = shape_of(w)
    stride, dilation = ints(attrs.strides), ints(attrs.dilation)
    workload = Workload(
        "fprop", n, h, width, c, k, r, s,
        stride=(stride[0], stride[-1]),
        padding=padding4(attrs.padding),
        dilation=(dilation[0], dilation[-1]),
        groups=int(attrs.groups),
        dtype=dtype_of(x),
        out_dtype=dtype_of(binding.var),
    )  # fmt: skip
    return _Root(workload, [x, w])


def _gradient_root(binding: relax.Binding) -> _Root | None:
    """The gradient of a convolution; it has no epilogue."""
    call = binding.value
    if op_name(call) not in (DGRAD, WGRAD):
        return None
    fields = forward_workload(call)
    return None if fields is None else _Root(Workload(**fields), list(call.args))


def _matmul_root(binding: relax.Binding, graph: _Graph) -> _Root | None:
    """(n, c) x (c, k); the weights become (k, c), at compile time where they are constant."""
    call = binding.value
    if op_name(call) != "relax.matmul":
        return None
    a, b = call.args
    if rank_of(a) != 2 or rank_of(b) != 2 or dtype_of(a) != dtype_of(b):
        return None
    if dtype_of(a) not in FLOAT_DTYPES or dtype_of(binding.var) not in FLOAT_DTYPES:
        return None
    (n, c), (_, k) = shape_of(a), shape_of(b)
    made = graph.value.get(b) if isinstance(b, relax.Var) else None
    if is_const(b):
        weights = make_const(as_numpy(b).T)
    elif made is not None and op_name(made) == "relax.permute_dims":
        weights = made.args[0]  # the only permutation of two axes that does something
    else:
        weights = relax.op.permute_dims(b, [1, 0])
    workload = Workload(
        "matmul", n, 1, 1, c, k, 1, 1, dtype=dtype_of(a), out_dtype=dtype_of(binding.var)
    )
    return _Root(workload, [a, weights])


# -- growing a region --------------------------------------------------------------------------


@dataclass
class _Chain:
    """A root and the epilogue taken so far."""

    covered: list[relax.Var]
    end: relax.Var
    epilogue: Epilogue = field(default_factory=Epilogue)
    residual: relax.Expr | None = None
    bias: relax.Expr | None = None
    affine: tuple[relax.Var, relax.Expr, relax.Expr] | None = None


def _alternatives(graph: _Graph, var: relax.Var, root: _Root) -> list[Region]:
    chains = [_Chain([var], var)]
    if root.workload.op in ("dgrad", "wgrad"):
        return [_region(graph, root, chains[0], 0)]
    while (longer := _extended(graph, chains[-1])) is not None:
        chains.append(longer)
    chains += [dual for chain in chains if (dual := _with_affine_relu(graph, chain)) is not None]
    # Longest first; of two as long, the one with fewer outputs.
    chains.sort(key=lambda c: (-len(c.covered), c.affine is not None))
    return [_region(graph, root, chain, i) for i, chain in enumerate(chains)]


def _region(graph: _Graph, root: _Root, chain: _Chain, index: int) -> Region:
    inputs = list(root.inputs)
    inputs += [e for e in (chain.residual, chain.bias) if e is not None]
    outputs = [chain.end.name] if chain.epilogue.writes_y else []
    if chain.affine is not None:
        inputs += chain.affine[1:]
        outputs.append(chain.affine[0].name)
    covered = sorted(chain.covered, key=lambda v: graph.position[v])
    name = chain.covered[0].name
    return Region(
        id=f"{name}#{index}",
        root=name,
        covered=tuple(v.name for v in covered),
        outputs=tuple(outputs),
        workload=dataclasses.replace(root.workload, epilogue=chain.epilogue),
        inputs=tuple(inputs),
    )


def _extended(graph: _Graph, chain: _Chain) -> _Chain | None:
    """The chain with the operation behind it, if an epilogue can take that."""
    reader = graph.only_reader(chain.end)
    if reader is None or chain.epilogue.activation != "none":
        return None
    call = graph.value[reader]
    covered = [*chain.covered, reader]
    epilogue = _activation(call, chain.epilogue)
    if epilogue is not None:
        return dataclasses.replace(chain, covered=covered, end=reader, epilogue=epilogue)
    if op_name(call) != "relax.add" or dtype_of(reader) != dtype_of(chain.end):
        return None
    other = call.args[1] if call.args[0].same_as(chain.end) else call.args[0]
    if shape_of(reader) != shape_of(chain.end):
        return None
    bias = None if chain.bias is not None else _per_channel(other, chain.end)
    if bias is not None:
        epilogue = dataclasses.replace(chain.epilogue, bias=True)
        return dataclasses.replace(chain, covered=covered, end=reader, epilogue=epilogue, bias=bias)
    if chain.residual is None and shape_of(other) == shape_of(chain.end):
        epilogue = dataclasses.replace(chain.epilogue, residual=True)
        return dataclasses.replace(
            chain, covered=covered, end=reader, epilogue=epilogue, residual=other
        )
    return None


def _activation(call: relax.Expr, epilogue: Epilogue) -> Epilogue | None:
    names = {"relax.nn.relu": "relu", "relax.sigmoid": "sigmoid", "relax.nn.silu": "silu"}
    name = op_name(call)
    if name in names:
        return dataclasses.replace(epilogue, activation=names[name])
    if name == "relax.clip":
        low, high = (float(_number(arg)) for arg in call.args[1:3])
        return dataclasses.replace(epilogue, activation="clip", clip_min=low, clip_max=high)
    return None


def _number(expr: relax.Expr) -> float:
    return expr.value.value if hasattr(expr.value, "value") else expr.value


def _per_channel(expr: relax.Expr, y: relax.Var) -> relax.Expr | None:
    """``expr`` as a (k,) operand of y's dtype when it broadcasts along y's last axis only."""
    k = shape_of(y)[-1]
    if is_const(expr):
        values = channel_constant(expr, y)
        if values is None:
            return None
        return make_const(np.broadcast_to(values, (k,)).astype(numpy_dtype(dtype_of(y))))
    shape = shape_of(expr)
    if dtype_of(expr) != dtype_of(y) or not shape or shape == shape_of(y):
        return None
    if shape[-1] != k or any(d != 1 for d in shape[:-1]) or len(shape) > rank_of(y):
        return None
    return expr if shape == (k,) else relax.op.reshape(expr, (k,))


def _with_affine_relu(graph: _Graph, chain: _Chain) -> _Chain | None:
    """The chain with ``relu(y * scale + shift)`` as a second output where y has other readers, as
    the only one where it has none; a missing scale or shift counts as ones or zeros."""
    y = chain.end
    alone = graph.only_reader(y) is not None
    if len(graph.readers[y]) == 1 and chain.epilogue.activation == "none":
        reader = graph.value[graph.readers[y][0]]
        if op_name(reader) in ("relax.add", "relax.nn.relu") and y not in graph.returned:
            return None  # a plain bias or relu: one output does
    for first in dict.fromkeys(graph.readers[y]):
        taken: list[relax.Var] = []
        scale, shift, at = None, None, first
        if op_name(graph.value[at]) == "relax.multiply":
            scale = _coefficient(graph, at, y, y)
            nxt = graph.only_reader(at)
            if scale is None or nxt is None:
                continue
            taken, before, at = [*taken, at], at, nxt
        else:
            before = y
        if op_name(graph.value[at]) == "relax.add":
            shift = _coefficient(graph, at, before, y)
            nxt = graph.only_reader(at)
            if shift is None or nxt is None:
                continue
            taken, at = [*taken, at], nxt
        if op_name(graph.value[at]) != "relax.nn.relu" or at in chain.covered:
            continue
        ones = np.ones(shape_of(y)[-1], numpy_dtype(dtype_of(y)))
        scale = make_const(ones) if scale is None else scale
        shift = make_const(ones * 0) if shift is None else shift
        return dataclasses.replace(
            chain,
            covered=[*chain.covered, *taken, at],
            epilogue=dataclasses.replace(chain.epilogue, affine_relu=True, affine_only=alone),
            affine=(at, scale, shift),
        )
    return None


def _coefficient(
    graph: _Graph, at: relax.Var, before: relax.Var, y: relax.Var
) -> relax.Expr | None:
    """The per-channel operand of ``at`` next to ``before``, known by the time y is computed."""
    args = graph.value[at].args
    other = args[1] if args[0].same_as(before) else args[0]
    if other.same_as(before) or shape_of(at) != shape_of(y):
        return None
    operand = _per_channel(other, y)
    if operand is None:
        return None
    ready = all(graph.position[v] < graph.position[y] for v in used_vars(operand))
    return operand if ready else None
