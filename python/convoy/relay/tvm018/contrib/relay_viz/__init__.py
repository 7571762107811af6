"""Draw the functions of a module, by a parser and a plotter that a script may replace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from convoy.relay.analysis import post_order_visit
from convoy.relay.ast import Expr
from convoy.relay.module import IRModule
from convoy.relay.removed import Removed
from convoy.relay.tvm018.contrib.relay_viz.interface import Plotter, VizParser
from convoy.relay.tvm018.contrib.relay_viz.terminal import TermPlotter, TermVizParser

__all__ = ["RelayVisualizer", "TermPlotter", "TermVizParser"]


def __getattr__(name: str) -> Any:
    if name in ("DotPlotter", "DotVizParser"):
        return Removed(f"contrib.relay_viz.{name}")
    raise AttributeError(f"relay_viz has no {name}")


class RelayVisualizer:
    """A drawing of each function of a module.

    Args:
        relay_mod: The module.
        relay_param: Parameters by name, which a parser may mark.
        plotter: Draws graphs; None prints them as text.
        parser: Describes expressions; None is the parser of the text.
    """

    def __init__(
        self,
        relay_mod: IRModule,
        relay_param: Mapping[str, Any] | None = None,
        plotter: Plotter | None = None,
        parser: VizParser | None = None,
    ) -> None:
        self._plotter = plotter or TermPlotter()
        self._parser = parser or TermVizParser()
        self._params = dict(relay_param or {})
        names = [v.name_hint for v in relay_mod.get_global_vars()]
        count = 0
        for name in sorted(names, key=lambda n: n != "main"):
            ids: dict[Expr, str] = {}

            def number(expr: Expr, ids: dict[Expr, str] = ids, first: int = count) -> None:
                ids.setdefault(expr, str(first + len(ids)))

            post_order_visit(relay_mod[name], number)
            self._draw(self._plotter.create_graph(name), ids)
            count += len(ids)

    def _draw(self, graph: Any, ids: dict[Expr, str]) -> None:
        for expr in ids:
            node, edges = self._parser.get_node_edges(expr, self._params, ids)
            if node is not None:
                graph.node(node)
            for edge in edges:
                graph.edge(edge)

    def render(self, filename: str | None = None) -> None:
        """Print the drawing, or write it to a file."""
        self._plotter.render(filename)
