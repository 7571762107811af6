"""The dataflow graph as the placer sees it: ops, and the matches that may cover them.

Plain data: nothing here knows Relax, a GPU or a backend. An op makes one value, which has the
op's name; a match says which ops one kernel launch would replace, which of their values it
writes, in which form (layout and dtype) it reads and writes them, and what it costs with each
candidate.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidMatchGraph
from ..ir.offer import Offer
from ..ir.workload import Workload


@dataclass(frozen=True, order=True)
class Form:
    """How a value lies in memory. Empty text means that it does not matter."""

    layout: str = ""
    dtype: str = ""

    def __str__(self) -> str:
        return ".".join(part for part in (self.layout, self.dtype) if part) or "any"


FormOf = tuple[tuple[str, Form], ...]


@dataclass(frozen=True)
class Op:
    """One operator; ``inputs`` are names of ops or graph inputs, ``elements`` its value's size."""

    name: str
    inputs: tuple[str, ...] = ()
    elements: int = 1


@dataclass(frozen=True)
class Match:
    """A pattern that was found: one launch that would compute ``ops``.

    ops           names of the ops that it covers
    outputs       values that it writes: each one that an op outside, or the caller, needs
    options       candidates with their figures, of one backend or of several
    input_forms   (value, form) of what it reads from outside; values not named: ``Form()``
    output_forms  (value, form) of what it writes; values not named: ``Form()``
    workload      what backends were asked for; None for ops that nobody offloads
    launches      kernel launches that it takes
    """

    pattern: str
    ops: tuple[str, ...]
    outputs: tuple[str, ...]
    options: tuple[Offer, ...]
    input_forms: FormOf = ()
    output_forms: FormOf = ()
    workload: Workload | None = None
    launches: int = 1

    def reads_as(self, value: str) -> Form:
        """Form in which a value from outside is read."""
        return dict(self.input_forms).get(value, Form())

    def writes_as(self, value: str) -> Form:
        """Form in which an output is written."""
        return dict(self.output_forms).get(value, Form())

    def to_json(self) -> dict[str, Any]:
        data = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        data["options"] = [scored.to_json() for scored in self.options]
        for name in ("input_forms", "output_forms"):
            data[name] = [[value, form.layout, form.dtype] for value, form in data[name]]
        data["workload"] = self.workload.to_json() if self.workload else None
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Match:
        fields = dict(data)
        fields["ops"], fields["outputs"] = tuple(data["ops"]), tuple(data["outputs"])
        fields["options"] = tuple(map(Offer.from_json, data["options"]))
        for name in ("input_forms", "output_forms"):
            fields[name] = tuple(
                (value, Form(layout, dtype)) for value, layout, dtype in data[name]
            )
        if data["workload"]:
            fields["workload"] = Workload.from_json(data["workload"])
        return cls(**fields)


def bits(mask: int) -> Iterator[int]:
    """Positions of the ones of a bit mask, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def closures(consumers: Sequence[int]) -> tuple[list[int], list[int]]:
    """All ancestors and all descendants of each op of a topological order, as bit masks."""
    ancestors, descendants = [0] * len(consumers), [0] * len(consumers)
    for op, mask in enumerate(consumers):
        for reader in bits(mask):
            ancestors[reader] |= ancestors[op] | 1 << op
    for op in reversed(range(len(consumers))):
        for reader in bits(consumers[op]):
            descendants[op] |= descendants[reader] | 1 << reader
    return ancestors, descendants


class Dependencies:
    """Who needs whom, as bit masks over positions in ``ops`` (which is a topological order)."""

    def __init__(self, ops: Sequence[Op], inputs: Sequence[str], results: Iterable[str]) -> None:
        self.position = {op.name: i for i, op in enumerate(ops)}
        if len(self.position) != len(ops) or set(self.position) & set(inputs):
            raise InvalidMatchGraph("two values of one name", "a name of its own for each value")
        known = set(inputs)
        self.consumers = [0] * len(ops)  # positions that read the value
        for i, op in enumerate(ops):
            for name in op.inputs:
                if name not in known:
                    raise InvalidMatchGraph(
                        f"op {op.name!r} that reads {name!r} before anything has made it",
                        "ops in topological order and all graph inputs named",
                    )
                if name in self.position:
                    self.consumers[self.position[name]] |= 1 << i
            known.add(op.name)
        self.ancestors, self.descendants = closures(self.consumers)
        self.results = 0
        for name in results:
            if name not in self.position:
                raise InvalidMatchGraph(f"result {name!r}", "the name of an op")
            self.results |= 1 << self.position[name]

    def mask(self, names: Iterable[str]) -> int:
        """Bit mask of ops by name."""
        found = 0
        for name in names:
            found |= 1 << self.position[name]
        return found

    def above(self, mask: int) -> int:
        """Ops outside ``mask`` on which some op of it depends."""
        found = 0
        for i in bits(mask):
            found |= self.ancestors[i]
        return found & ~mask

    def below(self, mask: int) -> int:
        """Ops outside ``mask`` that depend on some op of it."""
        found = 0
        for i in bits(mask):
            found |= self.descendants[i]
        return found & ~mask


@dataclass(frozen=True)
class MatchGraph:
    """Ops in topological order, the matches found in them, and the form of what comes and goes.

    ``inputs`` are (name, form) of the values that the caller brings; ``results`` are (op, form)
    of those it takes, ``None`` where any form will do.

    Raises InvalidMatchGraph where they do not fit together, or a match is illegal
    (:meth:`why_illegal`).
    """

    ops: tuple[Op, ...]
    matches: tuple[Match, ...]
    inputs: FormOf = ()
    results: tuple[tuple[str, Form | None], ...] = ()

    def __post_init__(self) -> None:
        for match in self.matches:
            if reason := self.why_illegal(match):
                raise InvalidMatchGraph(
                    f"match {match.pattern!r} of {', '.join(match.ops)}: {reason}",
                    "a convex match that writes what others read",
                    "Leave such matches out with split_legal()",
                )

    @functools.cached_property
    def dependencies(self) -> Dependencies:
        return Dependencies(
            self.ops, [name for name, _ in self.inputs], [name for name, _ in self.results]
        )

    def reads(self, match: Match) -> list[str]:
        """Values that a match reads from outside, in order of first use."""
        inside = set(match.ops)
        position = self.dependencies.position
        found: dict[str, None] = {}
        for i in sorted(position[name] for name in match.ops):
            found.update(dict.fromkeys(n for n in self.ops[i].inputs if n not in inside))
        return list(found)

    def why_illegal(self, match: Match) -> str:
        """What stands in the way of a match; empty when it is legal.

        It must be convex: no path of dependencies leaves it and comes back. Every value that is
        read outside must be written. A value that is not read outside may be written or not.
        """
        known = self.dependencies
        if not match.ops or len(set(match.ops)) != len(match.ops):
            return "it covers no op, or one twice"
        if unknown := [name for name in match.ops if name not in known.position]:
            return f"there is no op {unknown[0]!r}"
        if not set(match.outputs) <= set(match.ops):
            return "it writes a value of an op that it does not cover"
        mask = known.mask(match.ops)
        if between := known.above(mask) & known.below(mask):
            name = self.ops[next(bits(between))].name
            return f"it is not convex: a path leaves it and comes back through {name!r}"
        for i in bits(mask & ~known.mask(match.outputs)):
            if known.consumers[i] & ~mask or known.results >> i & 1:
                return f"{self.ops[i].name!r} is needed outside and not written"
        return ""

    def backends(self) -> list[str]:
        """Names of all backends with an option, in order of first appearance."""
        names = (s.candidate.backend for match in self.matches for s in match.options)
        return list(dict.fromkeys(names))

    def to_json(self) -> dict[str, Any]:
        return {
            "ops": [[op.name, list(op.inputs), op.elements] for op in self.ops],
            "matches": [match.to_json() for match in self.matches],
            "inputs": [[name, form.layout, form.dtype] for name, form in self.inputs],
            "results": [
                [name, [form.layout, form.dtype] if form else None] for name, form in self.results
            ],
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> MatchGraph:
        """Inverse of :meth:`to_json`."""
        return cls(
            ops=tuple(Op(name, tuple(inputs), elements) for name, inputs, elements in data["ops"]),
            matches=tuple(map(Match.from_json, data["matches"])),
            inputs=tuple((name, Form(layout, dtype)) for name, layout, dtype in data["inputs"]),
            results=tuple((name, Form(*form) if form else None) for name, form in data["results"]),
        )


def split_legal(
    graph: MatchGraph, matches: Iterable[Match]
) -> tuple[list[Match], list[tuple[Match, str]]]:
    """Matches that may be added to a graph, and those that may not, each with the reason."""
    legal: list[Match] = []
    declined: list[tuple[Match, str]] = []
    for match in matches:
        if reason := graph.why_illegal(match):
            declined.append((match, reason))
        else:
            legal.append(match)
    return legal, declined
