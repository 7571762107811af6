"""Natural numbers as data (`std/nat.rly`) from and to Python's."""

from __future__ import annotations

from convoy.relay.adt import ConstructorValue
from convoy.relay.ast import Call, Expr
from convoy.relay.prelude import Prelude, import_from_std


def add_nat_definitions(prelude: Prelude) -> None:
    """Add the type and its functions to the prelude's module."""
    if "nat_double" not in prelude.mod:
        import_from_std(prelude.mod, "nat.rly")


def count(prelude: Prelude, n: ConstructorValue) -> int:
    """Return the number that a value of `nat` stands for."""
    _, zero, _ = prelude.mod.get_type("nat")
    found = 0
    while n.tag != zero.tag:
        n = n.fields[0]
        found += 1
    return found


def make_nat_value(prelude: Prelude, n: int) -> ConstructorValue:
    """Return a number as a value of `nat`."""
    _, zero, succ = prelude.mod.get_type("nat")
    value = ConstructorValue(zero.tag, [], zero)
    for _ in range(n):
        value = ConstructorValue(succ.tag, [value], succ)
    return value


def make_nat_expr(prelude: Prelude, n: int) -> Expr:
    """Return a number as an expression of type `nat`."""
    _, zero, succ = prelude.mod.get_type("nat")
    expr: Expr = Call(zero, ())
    for _ in range(n):
        expr = Call(succ, [expr])
    return expr
