"""Drawings as text: one line for each expression, its operands indented below it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from convoy.relay import ast
from convoy.relay.ast import Expr
from convoy.relay.tvm018.contrib.relay_viz.interface import (
    Plotter,
    VizEdge,
    VizGraph,
    VizNode,
    VizParser,
)


def _describe(expr: Expr, params: Mapping[str, Any]) -> tuple[str, str, list[Expr]]:
    """Return kind, detail and operands of an expression."""
    if isinstance(expr, ast.Call):
        return "Call", "", [expr.op, *expr.args]
    if isinstance(expr, ast.Op):
        return expr.name, "", []
    if isinstance(expr, ast.Function):
        names = ", ".join(f"%{p.name_hint}" for p in expr.params)
        return "Func", names, [expr.body]
    if isinstance(expr, ast.GlobalVar):
        return "GlobalVar", expr.name_hint, []
    if isinstance(expr, ast.Var):
        kind = "Var(Param)" if expr.name_hint in params else "Var(Input)"
        type_ = "" if expr.type_annotation is None else f"\ntype: {expr.type_annotation}"
        return kind, f"name_hint: {expr.name_hint}{type_}", []
    if isinstance(expr, ast.Let):
        return "Let", "(var, val, body)", [expr.var, expr.value, expr.body]
    if isinstance(expr, ast.If):
        return "If", "(cond, true, false)", [expr.cond, expr.true_branch, expr.false_branch]
    if isinstance(expr, ast.Tuple):
        return "Tuple", "", list(expr.fields)
    if isinstance(expr, ast.TupleGetItem):
        return "TupleGetItem", f"index: {expr.index}", [expr.tuple_value]
    if isinstance(expr, ast.Constant):
        return "Const", f"shape: {expr.value.shape}\ndtype: {expr.value.dtype}", []
    return type(expr).__name__, "", []


class TermVizParser(VizParser):
    """Describes every expression in a line."""

    def get_node_edges(
        self, node: Expr, relay_param: Mapping[str, Any], node_to_id: Mapping[Expr, str]
    ) -> tuple[VizNode | None, list[VizEdge]]:
        """Return the node of an expression, and an edge for each operand."""
        kind, detail, operands = _describe(node, relay_param)
        identity = node_to_id[node]
        return VizNode(identity, kind, detail), [
            VizEdge(node_to_id[operand], identity) for operand in operands
        ]


class TermGraph(VizGraph):
    """A function as indented lines."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._nodes: dict[str, VizNode] = {}
        self._operands: dict[str, list[str]] = {}

    def node(self, viz_node: VizNode) -> None:
        """Add a node."""
        self._nodes[viz_node.identity] = viz_node
        self._operands.setdefault(viz_node.identity, [])

    def edge(self, viz_edge: VizEdge) -> None:
        """Add an operand to a node."""
        self._operands.setdefault(viz_edge.end, []).append(viz_edge.start)

    def render(self) -> str:
        """Return the lines; operands of an expression that occurs again are not repeated."""
        root = next(reversed(self._nodes))
        lines = [f"@{self._name}({self._nodes[root].detail})"]
        seen = {root}
        open_ = [(operand, "   ") for operand in reversed(self._operands[root])]
        while open_:
            identity, indent = open_.pop()
            node = self._nodes[identity]
            lines.append(f"{indent}{node.type_name} {node.detail}".replace("\n", ", ").rstrip())
            if identity not in seen:
                seen.add(identity)
                below = reversed(self._operands[identity])
                open_ += [(operand, indent + "   ") for operand in below]
        return "\n".join(lines)


class TermPlotter(Plotter):
    """Prints the functions of a module one below the other."""

    def __init__(self) -> None:
        self._name_to_graph: dict[str, TermGraph] = {}

    def create_graph(self, name: str) -> TermGraph:
        """Make the graph of a function."""
        self._name_to_graph[name] = TermGraph(name)
        return self._name_to_graph[name]

    def render(self, filename: str | None = None) -> None:
        """Print the lines, or write them to a file."""
        text = "\n".join(graph.render() for graph in self._name_to_graph.values())
        if filename is None:
            print(text)
        else:
            Path(filename).write_text(text + "\n")
