"""Dependencies between the operations of a match graph, as bit masks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ..errors import InvalidMatchGraph

if TYPE_CHECKING:
    from .match_graph import Op


def bits(mask: int) -> Iterator[int]:
    """Positions of the ones of a bit mask, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def closures(consumers: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return all ancestors and all descendants of each operation of a topological order, as bit
    masks."""
    ancestors, descendants = [0] * len(consumers), [0] * len(consumers)
    for op, mask in enumerate(consumers):
        for reader in bits(mask):
            ancestors[reader] |= ancestors[op] | 1 << op
    for op in reversed(range(len(consumers))):
        for reader in bits(consumers[op]):
            descendants[op] |= descendants[reader] | 1 << reader
    return ancestors, descendants


class Dependencies:
    """Dependences of operations, as bit masks over positions in ``ops``, a topological order.

    Raises InvalidMatchGraph for two values of one name, an op that reads a value before it is made,
    and a result that no op makes.
    """

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
        """Bit mask of operations by name."""
        found = 0
        for name in names:
            found |= 1 << self.position[name]
        return found

    def above(self, mask: int) -> int:
        """Operations outside ``mask`` on which some operation of it depends."""
        found = 0
        for i in bits(mask):
            found |= self.ancestors[i]
        return found & ~mask

    def below(self, mask: int) -> int:
        """Operations outside ``mask`` that depend on some operation of it."""
        found = 0
        for i in bits(mask):
            found |= self.descendants[i]
        return found & ~mask
