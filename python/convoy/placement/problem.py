"""The cover problem in whole numbers: moves along an order of ops, and what they cost.

Costs are integers of a picosecond, so that sums do not depend on the order in which they are
taken, equal costs are equal, and the same graph gives the same cover on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..errors import NoCandidate
from ..ir.measurement import Measurement
from ..ir.objective import own_cost, stream_sides
from ..partition.match_graph import Form, Match, MatchGraph, bits, closures
from .order import narrow_order
from .transition import Transitions

UNIT = 1_000_000  # picoseconds in a microsecond
IMPOSSIBLE = 1 << 58
# Written priority among equal costs, as one integer: candidates that are not deterministic, then
# launches, then the places of the backends in their order. Fields are wide enough for 2^20 ops.
NONDETERMINISTIC, LAUNCH = 1 << 42, 1 << 21

Cost = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]
Usable = Sequence[Sequence[int]]  # for each match the options that may be taken


def cost_of(figure: Measurement, objective: str) -> Cost:
    """Cost of one launch in picoseconds: (kernel,) or (e2e,), for stream (device, host)."""
    if objective == "stream":
        device, host = stream_sides(figure)
        return round(device * UNIT), round(host * UNIT)
    return (round(own_cost(figure, objective)[0] * UNIT),)


def spread_of(figure: Measurement, objective: str) -> Cost:
    """Spread of :func:`cost_of`."""
    kernel = round((figure.kernel_spread_us or 0.0) * UNIT)
    if objective == "graph" or (objective == "sync" and figure.e2e_us is None):
        return (kernel,)
    if objective == "sync":
        return (round((figure.e2e_spread_us or 0.0) * UNIT),)
    return kernel, round((figure.enqueue_spread_us or 0.0) * UNIT)


def value_of(cost: Sequence[int]) -> int:
    """What an objective makes of summed costs: the larger side counts."""
    return max(cost)


@dataclass(frozen=True)
class Option:
    """A candidate of a match: where it stands, its cost and its priority among equals."""

    match: int
    index: int
    cost: Cost
    priority: int


@dataclass
class Move:
    """All matches that cover the same ops in the same forms, along the order.

    ``mask`` are the positions covered, ``reads`` and ``writes`` (value, form) of values that come
    in more than one form, ``above`` and ``below`` the ops outside that it depends on, and that
    depend on it.
    """

    mask: int
    reads: tuple[tuple[int, int], ...]
    writes: tuple[tuple[int, int], ...]
    read_mask: int
    above: int
    below: int
    options: list[Option]


@dataclass
class Value:
    """A value that occurs in several forms.

    ``pay[f][g]`` is the cost of a transition from form f to g; ``demanded[c]`` the forms (bit
    mask) in which consumer c may read it; ``result`` the form that the caller wants, or -1.
    """

    forms: tuple[Form, ...]
    pay: list[list[Cost]]
    demanded: dict[int, int] = field(default_factory=dict)
    result: int = -1


class Problem:
    """A MatchGraph under an objective, ready to be searched.

    Positions count along a narrow topological order; values of ops have their op's position,
    graph inputs come behind. ``usable`` names for each match the options that may be taken.

    Raises NoCandidate where no match covers an op.
    """

    def __init__(
        self,
        graph: MatchGraph,
        objective: str,
        transitions: Transitions,
        backend_order: Sequence[str],
        usable: Usable,
    ) -> None:
        self.graph, self.objective, self.transitions = graph, objective, transitions
        self.sides = 2 if objective == "stream" else 1
        self._rank = {name: i for i, name in enumerate(backend_order)}
        known = graph.dependencies
        found = [(i, self._options(i, indices)) for i, indices in enumerate(usable) if indices]
        self._check_covered(found)
        forms = self._forms([graph.matches[i] for i, _ in found])
        weights = [float(len(forms.get(op.name, ())) > 1) for op in graph.ops]
        order = narrow_order(known, weights)
        self.size = len(order)
        place = {op: position for position, op in enumerate(order)}
        names = [graph.ops[op].name for op in order] + [name for name, _ in graph.inputs]
        self.where = {name: position for position, name in enumerate(names)}

        self.consumers = [_bits_at(place, known.consumers[op]) for op in order]
        for name, _ in graph.inputs:
            readers = (1 << place[i] for i, op in enumerate(graph.ops) if name in op.inputs)
            self.consumers.append(sum(readers))
        self.ancestors, self.descendants = closures(self.consumers[: self.size])
        self.values = self._values(forms)
        self._read_masks = [
            sum(
                1 << self.where[name]
                for name in set(graph.ops[op].inputs)
                if name in known.position
            )
            for op in order
        ]
        self.moves_at: list[list[Move]] = [[] for _ in order]
        self._add_moves(found)

    def _options(self, number: int, indices: Sequence[int]) -> list[Option]:
        match, found = self.graph.matches[number], []
        for index in indices:
            scored = match.options[index]
            unsure = not scored.candidate.deterministic
            rank = self._rank.get(scored.candidate.backend, len(self._rank))
            priority = unsure * NONDETERMINISTIC + match.launches * LAUNCH + rank
            cost = cost_of(scored.measurement, self.objective)
            found.append(Option(number, index, cost, priority))
        return found

    def _check_covered(self, usable: Sequence[tuple[int, list[Option]]]) -> None:
        matches = self.graph.matches
        covered = {name for i, _ in usable for name in matches[i].ops}
        missing = [op.name for op in self.graph.ops if op.name not in covered]
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise NoCandidate(
                f"{', '.join(missing[:3])}{more}, which no match with figures covers",
                "a match with at least one measured candidate for every op",
            )

    def _forms(self, matches: Sequence[Match]) -> dict[str, list[Form]]:
        """All forms in which each value is written, read, brought or taken."""
        found: dict[str, set[Form]] = {name: {form} for name, form in self.graph.inputs}
        for match in matches:
            for name in self.graph.reads(match):
                found.setdefault(name, set()).add(match.reads_as(name))
            for name in match.outputs:
                found.setdefault(name, set()).add(match.writes_as(name))
        for name, form in self.graph.results:
            if form is not None:
                found.setdefault(name, set()).add(form)
        return {name: sorted(forms) for name, forms in found.items()}

    def _values(self, forms: dict[str, list[Form]]) -> dict[int, Value]:
        elements = {op.name: op.elements for op in self.graph.ops}
        wanted = dict(self.graph.results)
        values = {}
        for name, several in forms.items():
            if len(several) < 2:
                continue
            pay = [[self._pay(elements.get(name, 1), a, b) for b in several] for a in several]
            values[self.where[name]] = value = Value(tuple(several), pay)
            if (form := wanted.get(name)) is not None:
                value.result = several.index(form)
        return values

    def _pay(self, elements: int, source: Form, target: Form) -> Cost:
        figure = self.transitions.between(elements, source, target)
        if figure is None:
            return (IMPOSSIBLE,) * self.sides
        return cost_of(figure, self.objective)

    def _add_moves(self, usable: Sequence[tuple[int, list[Option]]]) -> None:
        options_of: dict[tuple[int, Pairs, Pairs], list[Option]] = {}
        for number, options in usable:
            match = self.graph.matches[number]
            mask = sum(1 << self.where[name] for name in match.ops)
            reads = self._several((name, match.reads_as(name)) for name in self.graph.reads(match))
            writes = self._several((name, match.writes_as(name)) for name in match.outputs)
            options_of.setdefault((mask, reads, writes), []).extend(options)
        for (mask, reads, writes), options in options_of.items():
            above = below = read_mask = 0
            for op in bits(mask):
                above |= self.ancestors[op]
                below |= self.descendants[op]
                read_mask |= self._read_masks[op]
            for value, form in reads:
                demanded = self.values[value].demanded
                for reader in bits(self.consumers[value] & mask):
                    demanded[reader] = demanded.get(reader, 0) | 1 << form
            outside = (above & ~mask, below & ~mask)
            move = Move(mask, reads, writes, read_mask & ~mask, *outside, useful(options))
            self.moves_at[next(bits(mask))].append(move)

    def _several(self, pairs: Iterable[tuple[str, Form]]) -> Pairs:
        """(value, form) by position and index, of the values that have several forms."""
        known = ((self.where[name], form) for name, form in pairs)
        return tuple(
            sorted((v, self.values[v].forms.index(form)) for v, form in known if v in self.values)
        )


def _bits_at(place: dict[int, int], mask: int) -> int:
    """A bit mask with every bit moved to its place."""
    found = 0
    for op in bits(mask):
        found |= 1 << place[op]
    return found


def useful(options: Sequence[Option]) -> list[Option]:
    """Options that no other beats on every side, cheapest first; of equals the preferred one."""
    kept: list[Option] = []
    for option in sorted(options, key=lambda o: (o.cost, o.priority, o.match, o.index)):
        if not any(all(a <= b for a, b in zip(k.cost, option.cost, strict=True)) for k in kept):
            kept.append(option)
    return kept
