"""Regions: the parts of a function between `compiler_begin` and `compiler_end`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from convoy.errors import RelayTypeError
from convoy.relay import ast
from convoy.relay.ast import Call, Expr, Function, Op
from convoy.relay.visit import children, post_order

BEGIN, END = "annotation.compiler_begin", "annotation.compiler_end"


def annotation(expr: Expr) -> tuple[str, str] | None:
    """Return the operator and the compiler of an annotation, None for anything else."""
    if isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name in (BEGIN, END):
        assert expr.attrs is not None
        return expr.op.name, expr.attrs["compiler"]
    return None


def is_end(expr: Expr) -> bool:
    """Check for a compiler_end."""
    found = annotation(expr)
    return found is not None and found[0] == END


@dataclass(eq=False)
class AnnotatedRegion:
    """A connected part of a function that one compiler takes.

    Attributes:
        id: Its number in the function.
        target: The compiler.
        args: The compiler_begin calls.
        rets: The compiler_end calls.
        nodes: All expressions in it, annotations included.
    """

    id: int
    target: str
    args: list[Expr] = field(default_factory=list)
    rets: list[Expr] = field(default_factory=list)
    nodes: set[Expr] = field(default_factory=set)


class AnnotatedRegionSet(Sequence[AnnotatedRegion]):
    """The regions of an expression.

    Args:
        expr: The expression.
        begin, end: The operators of annotations, which are always the two of Relay.

    Raises:
        RelayTypeError: A compiler_end whose argument no region, or one of another compiler, has.
    """

    def __init__(self, expr: Expr, begin: Op | None = None, end: Op | None = None) -> None:
        del begin, end
        self._regions: dict[int, AnnotatedRegion] = {}
        self._of: dict[Expr, AnnotatedRegion] = {}
        self._count = 0
        for node in post_order(expr):
            self._place(node)

    def __len__(self) -> int:
        return len(self._regions)

    def __getitem__(self, index: int) -> AnnotatedRegion:  # type: ignore[override]
        return list(self._regions.values())[index]

    def __iter__(self) -> Iterator[AnnotatedRegion]:
        return iter(list(self._regions.values()))

    def get_region(self, expr: Expr) -> AnnotatedRegion | None:
        """Return the region that an expression is in, or None."""
        return self._of.get(expr)

    def merge(self, source: AnnotatedRegion, into: AnnotatedRegion) -> None:
        """Move all of a region into another one; annotations between them are no longer edges."""
        if source is into:
            return
        into.nodes |= source.nodes
        into.args += source.args
        into.rets += source.rets
        for node in source.nodes:
            self._of[node] = into
        into.args = [a for a in into.args if children(a)[1] not in into.nodes]
        del self._regions[source.id]

    def _place(self, node: Expr) -> None:
        found = annotation(node)
        if found is None:
            self._with_parts(node)
        elif found[0] == BEGIN:
            region = AnnotatedRegion(self._count, found[1], [node])
            self._count += 1
            self._regions[region.id] = region
            self._add(region, node)
        else:
            inner = self._of.get(node.args[0])  # type: ignore[attr-defined]
            if inner is None or inner.target != found[1]:
                raise RelayTypeError(
                    f'compiler_end(compiler="{found[1]}") of a value outside its region',
                    "a compiler_begin for every input of the value",
                )
            inner.rets.append(node)
            self._add(inner, node)

    def _add(self, region: AnnotatedRegion, node: Expr) -> None:
        region.nodes.add(node)
        self._of[node] = region

    def _with_parts(self, node: Expr) -> None:
        """Put a node in the region of its parts that are not closed, merged into one."""
        if isinstance(node, (Function, Op, ast.Var)):
            return
        parts = children(node)[1:] if isinstance(node, Call) else children(node)
        inside = [self._of[p] for p in parts if p in self._of and not is_end(p)]
        if not inside:
            return
        for other in inside[1:]:
            if other is not inside[0] and other.id in self._regions:
                if other.target != inside[0].target:
                    raise RelayTypeError(
                        f"a {type(node).__name__} of values of two compilers, "
                        f"{inside[0].target} and {other.target}",
                        "a compiler_end between",
                    )
                self.merge(other, inside[0])
        self._add(inside[0], node)
