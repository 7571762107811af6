"""Base classes of the parsers, graphs and plotters of drawings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from convoy.relay.ast import Expr


@dataclass(frozen=True)
class VizNode:
    """An expression of a drawing.

    Attributes:
        identity: Its number, unique in the module.
        type_name: Its kind, such as "Call".
        detail: What else to show, in lines.
    """

    identity: str
    type_name: str
    detail: str


@dataclass(frozen=True)
class VizEdge:
    """An edge from an operand to the expression that uses it, by their identities."""

    start: str
    end: str


class VizParser(ABC):
    """Describes expressions."""

    @abstractmethod
    def get_node_edges(
        self, node: Expr, relay_param: Mapping[str, Any], node_to_id: Mapping[Expr, str]
    ) -> tuple[VizNode | None, list[VizEdge]]:
        """Return the node of an expression, None to leave it out, and the edges to it."""


class VizGraph(ABC):
    """A drawing of one function; operands are added before the expressions that use them."""

    @abstractmethod
    def node(self, viz_node: VizNode) -> None:
        """Add a node."""

    @abstractmethod
    def edge(self, viz_edge: VizEdge) -> None:
        """Add an edge."""


class Plotter(ABC):
    """Makes the graphs of a module's functions and draws them."""

    @abstractmethod
    def create_graph(self, name: str) -> VizGraph:
        """Make the graph of a function."""

    @abstractmethod
    def render(self, filename: str | None) -> None:
        """Draw all graphs, into a file if it has a name."""
