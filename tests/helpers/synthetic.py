"""Match graphs with random measurements: the search is tested without a GPU.

``random_graph`` makes small graphs of any shape with subgraphs of any shape, for comparison with
brute force. ``network`` makes large ones that look like known families of networks.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

from convoy.ir.candidate import Candidate
from convoy.ir.measurement import Measurement
from convoy.ir.offer import Offer
from convoy.partition.dependencies import bits
from convoy.partition.match_graph import MatchGraph, Op, Subgraph

BACKENDS = ("cudnn", "cutlass", "tvm")


def random_measurement(rng: random.Random, most: int = 9, spread: float = 0.0) -> Measurement:
    """Small whole microseconds, so that equal sums are frequent."""
    kernel, enqueue = rng.randint(0, most), rng.randint(0, most)
    return Measurement(
        kernel_us=float(kernel),
        kernel_spread_us=spread,
        enqueue_us=float(enqueue),
        enqueue_spread_us=spread,
        e2e_us=float(max(kernel, enqueue) + rng.randint(0, 4)),
        e2e_spread_us=spread,
        samples=1,
    )


def random_graph(rng: random.Random, ops: int, groups: int = 8, spread: float = 0.0) -> MatchGraph:
    """A graph of any shape: up to ``groups`` subgraphs of 2 to 4 ops beside those of one op.

    Subgraphs may have several outputs, cover parallel branches, write what nobody reads, and form
    cycles with one another. Some ops may have no subgraph of their own, so that it can happen that
    nothing covers the graph.
    """
    names = [f"op{i}" for i in range(ops)]
    nodes = []
    for i, name in enumerate(names):
        near = names[max(0, i - rng.choice((1, 3, ops))) : i]
        inputs = sorted(set(rng.sample(near, min(len(near), rng.choice((0, 1, 1, 1, 2))))))
        nodes.append(Op(name, tuple(inputs) or ("x",), rng.randint(1, 3)))
    bare = MatchGraph(tuple(nodes), (), ("x",))
    known = bare.dependencies
    sinks = [name for i, name in enumerate(names) if not known.consumers[i]]
    results = dict.fromkeys(sinks)
    if rng.random() < 0.5:
        results[rng.choice(names)] = None
    bare = MatchGraph(tuple(nodes), (), bare.inputs, tuple(results))
    sets: list[tuple[str, ...]] = [
        (name,) for name in names for _ in range(0 if rng.random() < 0.04 else rng.choice((1, 2)))
    ]
    sets += [_grown(rng, bare) for _ in range(groups)]
    sets += _crossing(rng, bare) if groups else []
    found = [_random_subgraph(rng, bare, i, taken, spread) for i, taken in enumerate(sets)]
    return MatchGraph(bare.ops, bare.legal(found), bare.inputs, bare.results)


def with_chains(rng: random.Random, graph: MatchGraph, share: float = 0.7) -> MatchGraph:
    """The graph with a time as a link of a chain for a share of the offers that are not TVM's,
    and with some operations of TVM that take no time."""
    views = {op.name for op in graph.ops if rng.random() < 0.15}

    def of(subgraph: Subgraph, offer: Offer) -> Offer:
        measured = offer.measurement
        if offer.candidate.backend == "tvm":
            if views.issuperset(subgraph.ops):
                measured = dataclasses.replace(measured, kernel_us=0.0)
        elif rng.random() < share:
            chained = float(rng.randint(0, int(measured.kernel_us or 0)))
            measured = dataclasses.replace(measured, chained_us=chained)
        return Offer(offer.candidate, measured)

    found = [
        dataclasses.replace(s, offers=tuple(of(s, offer) for offer in s.offers))
        for s in graph.subgraphs
    ]
    return dataclasses.replace(graph, subgraphs=tuple(found))


def _grown(rng: random.Random, graph: MatchGraph) -> tuple[str, ...]:
    """2 to 4 ops: mostly neighbours or siblings, at times anything."""
    known, count = graph.dependencies, len(graph.ops)
    taken = {rng.randrange(count)}
    for _ in range(rng.choice((1, 1, 2, 3))):
        near: set[int] = set()
        for i in taken:
            above = [j for j in range(count) if known.consumers[j] >> i & 1]
            near.update(bits(known.consumers[i]), above)
            near.update(*(bits(known.consumers[j]) for j in above))
        choices = sorted(near - taken)
        taken.add(rng.choice(choices) if choices and rng.random() < 0.85 else rng.randrange(count))
    return tuple(graph.ops[i].name for i in sorted(taken))


def _crossing(rng: random.Random, graph: MatchGraph) -> list[tuple[str, ...]]:
    """Pairs over two edges, each pair with one's start and the other's end: convex each, and a
    cycle together."""
    edges = [(source, op.name) for op in graph.ops for source in op.inputs if source != "x"]
    if len(edges) < 2:
        return []
    pairs: list[tuple[str, ...]] = []
    for _ in range(3):
        (a, b), (c, d) = rng.sample(edges, 2)
        if len({a, b, c, d}) == 4:
            pairs += [(a, d), (c, b)]
    return pairs


def _random_subgraph(
    rng: random.Random, graph: MatchGraph, number: int, taken: tuple[str, ...], spread: float
) -> Subgraph:
    known, inside = graph.dependencies, graph.dependencies.mask(taken)
    read_outside = [
        name
        for name in taken
        if known.consumers[known.position[name]] & ~inside
        or known.results >> known.position[name] & 1
        or rng.random() < 0.1
    ]
    offers = tuple(
        Offer(
            Candidate(backend, f"k{rng.randint(0, 3)}", deterministic=rng.random() < 0.8),
            random_measurement(rng, 4 + 5 * len(taken), spread * rng.random()),
        )
        for backend in rng.sample(BACKENDS, rng.choice((1, 1, 2)))
    )
    return Subgraph(f"{'+'.join(taken)}#{number}", taken, tuple(read_outside), offers=offers)


# -- networks ------------------------------------------------------------------------------------


class _Net:
    """Collects ops (kind by name) as a network is written down."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.kind: dict[str, str] = {}

    def add(self, kind: str, *inputs: str, elements: int = 1 << 18) -> str:
        name = f"{kind}{len(self.ops)}"
        self.ops.append(Op(name, inputs or ("x",), elements))
        self.kind[name] = kind
        return name

    def conv_bn_relu(self, value: str) -> str:
        return self.add("relu", self.add("bias", self.add("conv", value)))


def _chain(net: _Net, size: int, rng: random.Random) -> str:
    value = "x"
    while len(net.ops) < size:
        value = net.conv_bn_relu(value)
    return value


def _resnet(net: _Net, size: int, rng: random.Random) -> str:
    """Bottleneck blocks, each fourth with a projection shortcut (He and others, 2016)."""
    value, block = net.conv_bn_relu("x"), 0
    while len(net.ops) < size:
        inner = net.conv_bn_relu(net.conv_bn_relu(value))
        inner = net.add("bias", net.add("conv", inner))
        if block % 4 == 0:
            value = net.add("bias", net.add("conv", value))
        value = net.add("relu", net.add("add", inner, value))
        block += 1
    return value


def _nasnet(net: _Net, size: int, rng: random.Random) -> str:
    """Cells of five blocks over the last two cells, like NASNet-A (Zoph and others, 2018)."""
    before = net.conv_bn_relu("x")
    value = net.conv_bn_relu(before)
    while len(net.ops) < size:
        hidden = [net.conv_bn_relu(before), net.conv_bn_relu(value)]
        unused = set(hidden)
        for _ in range(5):
            sides = []
            for _ in range(2):
                source = rng.choice(hidden)
                unused.discard(source)
                kind = rng.choice(("separable", "separable", "pool", "same"))
                if kind == "separable":
                    source = net.conv_bn_relu(net.conv_bn_relu(source))
                elif kind == "pool":
                    source = net.add("pool", source)
                sides.append(source)
            if sides[0] == sides[1]:
                sides[1] = net.add("pool", sides[1])
            hidden.append(net.add("add", *sides))
            unused.add(hidden[-1])
        before, value = value, net.add("concat", *sorted(unused))
    return value


def _randwire(net: _Net, size: int, rng: random.Random) -> str:
    """Stages of 32 nodes wired by the Watts-Strogatz model WS(4, 0.75) (Xie and others, 2019)."""
    value = net.conv_bn_relu("x")
    while len(net.ops) < size:
        nodes, near, rewired = 32, 4, 0.75
        edges: set[tuple[int, int]] = set()
        for step in range(1, near // 2 + 1):
            for i in range(nodes):
                j = (i + step) % nodes
                if rng.random() < rewired:
                    free = [
                        k for k in range(nodes) if k != i and (min(i, k), max(i, k)) not in edges
                    ]
                    j = rng.choice(free)
                edges.add((min(i, j), max(i, j)))
        made: list[str] = []
        for i in range(nodes):
            source = [made[a] for a, b in sorted(edges) if b == i] or [value]
            total = source[0]
            for other in source[1:]:
                total = net.add("add", total, other)
            made.append(net.add("bias", net.add("conv", net.add("relu", total))))
        inner = {a for a, _ in edges}
        value, *last = [made[i] for i in range(nodes) if i not in inner]
        for other in last:
            value = net.add("add", value, other)
    return value


_BUILDERS: dict[str, Callable[[_Net, int, random.Random], str]] = {
    "chain": _chain,
    "resnet": _resnet,
    "nasnet": _nasnet,
    "randwire": _randwire,
}
FAMILIES = tuple(_BUILDERS)


def network(family: str, size: int, seed: int = 0, speed: float = 1.0) -> MatchGraph:
    """At least ``size`` ops of a family, with subgraphs as fusing backends would offer them.

    Every op has a subgraph of its own. A convolution also has one with every prefix of the bias,
    addition and activation behind it that nobody else reads. Kernel times are drawn per op and
    backend, so that no two ops agree on what is best; ``speed`` divides them, to bring device time
    near to host time.
    """
    rng, net = random.Random(seed), _Net()
    result = _BUILDERS[family](net, size, rng)
    graph = MatchGraph(tuple(net.ops), (), ("x",), (result,))
    found: list[Subgraph] = []
    for taken in _fusions(net, graph):
        root = net.kind[taken[0]]
        backends = BACKENDS if root == "conv" else ("tvm",)
        work = (rng.uniform(4, 30) if root == "conv" else rng.uniform(1.5, 4)) / speed
        offers = tuple(_network_offer(rng, backend, work, len(taken)) for backend in backends)
        kinds = "+".join(net.kind[name] for name in taken)
        found.append(Subgraph(f"{taken[0]}:{kinds}", taken, taken[-1:], offers=offers))
    return MatchGraph(graph.ops, tuple(found), graph.inputs, graph.results)


def _fusions(net: _Net, graph: MatchGraph) -> list[tuple[str, ...]]:
    known, found = graph.dependencies, []
    for i, op in enumerate(graph.ops):
        taken = [op.name]
        found.append(tuple(taken))
        at = i
        while net.kind[op.name] == "conv" and known.consumers[at].bit_count() == 1:
            at = next(bits(known.consumers[at]))
            name = graph.ops[at].name
            if net.kind[name] not in ("bias", "add", "relu"):
                break
            taken.append(name)
            found.append(tuple(taken))
    return found


def _network_offer(rng: random.Random, backend: str, work: float, fused: int) -> Offer:
    """Fusing costs little on top."""
    kernel = work * rng.uniform(0.8, 1.3) + 0.3 * (fused - 1)
    enqueue = rng.uniform(1.5, 4.0) + {"cudnn": 2.0, "cutlass": 0.0, "tvm": 0.5}[backend]
    measurement = Measurement(
        kernel_us=round(kernel, 3),
        kernel_spread_us=round(0.01 * kernel, 3),
        enqueue_us=round(enqueue, 3),
        enqueue_spread_us=0.1,
        e2e_us=round(max(kernel, enqueue) + rng.uniform(4, 8), 3),
        e2e_spread_us=0.3,
        samples=1,
    )
    return Offer(Candidate(backend, f"{backend}_kernel"), measurement)
