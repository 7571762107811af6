"""The matches of a pattern in an expression that do not overlap, each as a function.

The search goes from the result inwards. A match is dropped where one of its nodes, other than the
last, is used outside: unless that user is itself computed for the match alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from convoy.relay import ast
from convoy.relay.ast import Expr, Function, Var
from convoy.relay.dataflow_pattern.graph import Graph
from convoy.relay.dataflow_pattern.matching import Matching, Pattern
from convoy.relay.visit import children, post_order, rebuild

#: The attribute of functions that `partition` made; their bodies are not matched again.
PARTITIONED = "PartitionedFromPattern"


@dataclass
class Group:
    """A match.

    Attributes:
        root: The expression that matched.
        matched: The expressions that each pattern matched.
        function: The match as a function of its inputs.
        args: The inputs, for the parameters of `function`.
        name: The operators in it: `nn.conv2d_nn.relu_`.
    """

    root: Expr
    matched: dict[Pattern, list[Expr]]
    function: Function
    args: list[Expr]
    name: str


def group_matches(pattern: Pattern, expr: Expr) -> dict[Expr, Group]:
    """Return the matches by their roots."""
    grouper = _Grouper(pattern, expr)
    partitioned: set[Expr] = set()
    for node in reversed(grouper.graph.nodes):
        if node in grouper.grouped:
            continue
        if isinstance(node, Function) and PARTITIONED in (node.attrs or {}):
            partitioned.add(node)
            partitioned.update(post_order(node.body))
        if node not in partitioned and grouper.matching.match(pattern, node):
            grouper.add(node)
    return grouper.groups


def ordered_parts(pattern: Pattern) -> list[Pattern]:
    """Return a pattern's parts and itself, inner ones first, each once."""
    found: dict[Pattern, None] = {}
    seen: set[Pattern] = set()
    stack = [(pattern, False)]
    while stack:
        part, done = stack.pop()
        if done:
            found[part] = None
        elif part not in seen:
            seen.add(part)
            stack.append((part, True))
            stack.extend((p, False) for p in reversed(part.parts()))
    return list(found)


class _Grouper:
    def __init__(self, pattern: Pattern, expr: Expr) -> None:
        self.graph = Graph(expr)
        self.matching = Matching(self.graph)
        self.parts = ordered_parts(pattern)
        self.grouped: set[Expr] = set()
        self.groups: dict[Expr, Group] = {}

    def add(self, root: Expr) -> None:
        """Make a group of the last match, if it overlaps with none and has one result."""
        inputs = self._inputs(self.matching.matched)
        body, inside, name = _extract(root, inputs)
        computed = {n for n in inside if not isinstance(n, (ast.Op, Function, ast.Constant))}
        for node in computed:
            if node in self.grouped:
                return
            if node is not root and not self._ends_inside(node, inside, root):
                return
        self.grouped.update(inside)
        function = Function(list(inputs.values()), body)
        matched = dict(self.matching.matched)
        self.groups[root] = Group(root, matched, function, list(inputs), name)

    def _ends_inside(self, node: Expr, inside: set[Expr], root: Expr) -> bool:
        return all(
            user in inside or self.graph.dominates(root, user) for user in self.graph.users_of(node)
        )

    def _inputs(self, matched: dict[Pattern, list[Expr]]) -> dict[Expr, Var]:
        """Return the inputs of a match and the variables of its function for them."""
        matched = dict(matched)
        interior: set[Expr] = set()
        for part in self.parts:
            interior.update(part.interior(matched))
        found: dict[Expr, Var] = {}
        for part in self.parts:
            for expr in matched.get(part, ()):
                for value in part.free_inputs(expr):
                    if value in interior or value in found:
                        continue
                    if isinstance(value, (ast.Op, Function)):
                        continue
                    if isinstance(value, ast.Constant) and part.keeps_constant(value):
                        continue
                    name = f"FunctionVar_{len(self.groups)}_{len(found)}"
                    found[value] = Var(name)
        return found


def _extract(root: Expr, inputs: dict[Expr, Var]) -> tuple[Expr, set[Expr], str]:
    """Rebuild a match on its variables.

    Returns:
        The body, the nodes of the match without its inputs, and its name.
    """
    if root in inputs:
        return inputs[root], set(), ""
    memo: dict[int, Expr] = {}
    inside: set[Expr] = set()
    name = ""
    stack: list[tuple[Expr, bool]] = [(root, False)]
    while stack:
        node, done = stack.pop()
        if done:
            memo[id(node)] = rebuild(node, memo)
            name += _label(node)
        elif node in inputs:
            memo[id(node)] = inputs[node]
        elif node not in inside:
            inside.add(node)
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(children(node)))
    return memo[id(root)], inside, name


def _label(node: Expr) -> str:
    if isinstance(node, ast.Call):
        return f"{node.op.name}_" if isinstance(node.op, ast.Op) else "FunctionCall_"
    if isinstance(node, ast.TupleGetItem):
        return f"TupleGetItem{node.index}_"
    if isinstance(node, (ast.Tuple, ast.If, ast.Let)):
        return f"{type(node).__name__}_"
    return ""
