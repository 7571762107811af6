"""Solve a problem to a proven optimum, or find a cover with a bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import NoCandidate
from .assignment import Pick
from .frontier import Search, TooWide
from .integer import IntegerProgram
from .problem import Cost, Problem, summed, value_of

WIDTH = 256  # partial covers at one cut beyond which the integer program takes over


@dataclass(frozen=True)
class Solved:
    """Picks, their cost in picoseconds, and a lower bound on the value of any cover. ``preferred``:
    among all covers of this value, it has the best priority."""

    picks: tuple[Pick, ...]
    cost: Cost
    bound: int
    states: int
    preferred: bool

    @property
    def value(self) -> int:
        return value_of(self.cost)


def solve(problem: Problem, width: int = WIDTH, seconds: float = 60.0) -> Solved:
    """The cover of least value: the sum of costs, or of two sides the larger sum.

    The search over cuts is exact, in priority among equal costs too, and needs no solver; where
    the graph is too wide for it, the integer program is exact to a millionth of a microsecond,
    or, where its time runs out, within the bound that it returns.

    Raises:
        NoCandidate: No set of subgraphs covers every operation exactly once without a cycle.
    """
    try:
        found = Search(problem, width).run()
    except TooWide:
        solution = IntegerProgram(problem).solve(seconds)
        if solution is None:
            raise _no_cover(problem) from None
        cost = _cost(problem, solution.picks)
        return Solved(solution.picks, cost, min(value_of(cost), int(solution.bound)), 0, False)
    if found is None:
        raise _no_cover(problem)
    return Solved(found.picks, found.cost, value_of(found.cost), found.states, True)


def _cost(problem: Problem, picks: Sequence[Pick]) -> Cost:
    """Cost of picks, from the measurements themselves."""
    first, *rest = summed(problem.steps[pick].cost for pick in picks)
    return (first - sum(problem.steps[pick].saving for pick in problem.links.of(picks)), *rest)


def _no_cover(problem: Problem) -> NoCandidate:
    return NoCandidate(
        f"{len(problem.graph.ops)} ops and {len(problem.graph.subgraphs)} subgraphs: no set of"
        " these covers every op exactly once, without a cycle",
        "subgraphs that leave a way through",
        "Give every op a subgraph that covers it alone",
    )
