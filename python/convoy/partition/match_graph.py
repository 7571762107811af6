"""The match graph: the operations of a network, and the subgraphs that one kernel could compute.

It is the only form of a network between Relax and the plan. An operation makes one value, which has
the operation's name. A subgraph is a match of a pattern: the operations that one kernel launch
would replace, the values that it writes, the workload that backends are asked for and, once it has
been priced, the candidates that can run it. Subgraphs overlap; the search covers every operation
once.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import InvalidMatchGraph
from ..ir.candidate import Decline
from ..ir.device import Device
from ..ir.offer import Offer
from ..ir.workload import Workload
from .dependencies import Dependencies, bits

if TYPE_CHECKING:
    import tvm
    from tvm import relax


@dataclass(frozen=True)
class Op:
    """One operation of a network.

    Attributes:
        name: Name of the variable that it is bound to.
        inputs: Names of the operations and graph inputs that it reads.
        elements: Elements of its result; 1 for a tuple.
        moved_bytes: Bytes that a kernel of TVM moves for it; 0 where TVM launches none, where the
            kernel of another operation does its work, and where a subgraph may cover it.
        gathered: Whether its result is read only to be concatenated with others: what is cut out of
            a larger tensor, TVM copies in the same kernel.
    """

    name: str
    inputs: tuple[str, ...] = ()
    elements: int = 1
    moved_bytes: int = 0
    gathered: bool = False


@dataclass(frozen=True)
class Subgraph:
    """Operations that one kernel launch could compute.

    Attributes:
        id: Unique in its graph, and the same for equal modules.
        ops: Names of the operations that it replaces, in program order.
        outputs: Names of the values that it writes, in the workload's order: each one that an
            operation outside, or the caller, needs.
        workload: What backends are asked for; None for kernels of TVM.
        root: The operation by which alternatives are known, such as the convolution; the
            subgraph's own id where it is an alternative to subgraphs of several roots.
        inputs: Operands in the workload's order: expressions over variables from outside and
            constants.
        optional: Whether it may as well be left to TVM's own kernels.
        split: Where it computes several roots at once, sizes of the parts into which its result is
            cut along the last axis; its outputs are these parts.
        declines: Backends that do not take the workload, and why.
        offers: Candidates with their measurements; none before it has been priced.
        launches: Kernel launches that it takes.
        layer: Names of the model's layers that it computes, empty where none is known.
    """

    id: str
    ops: tuple[str, ...]
    outputs: tuple[str, ...]
    workload: Workload | None = None
    root: str = ""
    inputs: tuple[relax.Expr, ...] = field(default=(), compare=False, repr=False)
    optional: bool = False
    split: tuple[int, ...] = ()
    declines: tuple[Decline, ...] = ()
    offers: tuple[Offer, ...] = ()
    launches: int = 1
    layer: str = field(default="", compare=False)

    @property
    def is_alternative(self) -> bool:
        """Whether it computes several roots, which have subgraphs of their own."""
        return self.root == self.id

    def require_workload(self) -> Workload:
        """Return the workload of a subgraph that is no kernel of TVM."""
        assert self.workload is not None, f"{self.id} is a kernel of TVM"
        return self.workload

    def accepted_by(self, backend: str) -> bool:
        """Return whether a backend that was asked takes the workload."""
        return all(decline.backend != backend for decline in self.declines)


@dataclass(frozen=True)
class MatchGraph:
    """Operations in topological order and the subgraphs found in them.

    Attributes:
        ops: The operations.
        subgraphs: Roots in program order, of each root the longest first.
        inputs: Names of the values that the caller brings.
        results: Names of the operations whose values the caller takes.
        module: The module that it was made from, for rewriting.
        backends: Names of the backends that were asked, in order of preference.
        device: The GPU for which they were asked.

    Raises:
        InvalidMatchGraph: The parts do not fit together, or a subgraph is illegal
            (:meth:`why_illegal`).
    """

    ops: tuple[Op, ...]
    subgraphs: tuple[Subgraph, ...]
    inputs: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    module: tvm.IRModule | None = field(default=None, compare=False, repr=False)
    backends: tuple[str, ...] = ()
    device: Device = field(default_factory=Device)

    def __post_init__(self) -> None:
        for subgraph in self.subgraphs:
            if reason := self.why_illegal(subgraph):
                raise InvalidMatchGraph(
                    f"subgraph {subgraph.id!r} of {', '.join(subgraph.ops)}: {reason}",
                    "a convex subgraph that writes what others read",
                    "Leave such subgraphs out with legal()",
                )

    @functools.cached_property
    def dependencies(self) -> Dependencies:
        """Dependences of the operations."""
        return Dependencies(self.ops, self.inputs, self.results)

    @functools.cached_property
    def by_id(self) -> dict[str, Subgraph]:
        """The subgraphs by id."""
        return {subgraph.id: subgraph for subgraph in self.subgraphs}

    @functools.cached_property
    def by_root(self) -> dict[str, list[Subgraph]]:
        """The alternatives of each root, longest first."""
        found: dict[str, list[Subgraph]] = {}
        for subgraph in self.subgraphs:
            found.setdefault(subgraph.root, []).append(subgraph)
        return found

    @functools.cached_property
    def folded(self) -> dict[relax.Expr, relax.Expr]:
        """Operands that were folded into constants when the module was rewritten; it is rewritten
        more than once, and copies of all weights take their time."""
        return {}

    def workloads(self) -> list[Workload]:
        """Return the distinct workloads of all subgraphs, in program order."""
        found = (subgraph.workload for subgraph in self.subgraphs)
        return list(dict.fromkeys(workload for workload in found if workload is not None))

    def reads(self, subgraph: Subgraph) -> list[str]:
        """Values that a subgraph reads from outside, in order of first use."""
        inside = set(subgraph.ops)
        position = self.dependencies.position
        found: dict[str, None] = {}
        for i in sorted(position[name] for name in subgraph.ops):
            found.update(dict.fromkeys(n for n in self.ops[i].inputs if n not in inside))
        return list(found)

    def why_illegal(self, subgraph: Subgraph) -> str:
        """Reason why a subgraph cannot be one kernel; empty where it can.

        It must be convex: no path of dependencies leaves it and comes back. Every value that is
        read outside must be written; one that is not read outside may be written or not.
        """
        known = self.dependencies
        if not subgraph.ops or len(set(subgraph.ops)) != len(subgraph.ops):
            return "it covers no op, or one twice"
        if unknown := [name for name in subgraph.ops if name not in known.position]:
            return f"there is no op {unknown[0]!r}"
        if not set(subgraph.outputs) <= set(subgraph.ops):
            return "it writes a value of an op that it does not cover"
        mask = known.mask(subgraph.ops)
        if between := known.above(mask) & known.below(mask):
            name = self.ops[next(bits(between))].name
            return f"it is not convex: a path leaves it and comes back through {name!r}"
        for i in bits(mask & ~known.mask(subgraph.outputs)):
            if known.consumers[i] & ~mask or known.results >> i & 1:
                return f"{self.ops[i].name!r} is needed outside and not written"
        return ""

    def legal(self, subgraphs: Iterable[Subgraph]) -> tuple[Subgraph, ...]:
        """Return those of the subgraphs that may be added to this graph."""
        return tuple(subgraph for subgraph in subgraphs if not self.why_illegal(subgraph))

    def offering(self) -> list[str]:
        """Return the names of all backends with an offer, in order of first appearance."""
        names = (o.candidate.backend for s in self.subgraphs for o in s.offers)
        return list(dict.fromkeys(names))
