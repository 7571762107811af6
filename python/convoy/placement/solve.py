"""From a problem to a proven optimum, or to a cover with a stated bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import NoCandidate
from .assignment import Layouts, Pick, owners
from .frontier import Search, TooWide
from .integer import IntegerProgram
from .problem import Cost, Option, Problem, cost_of, value_of

WIDTH = 256  # partial covers at one cut beyond which the integer program takes over


@dataclass(frozen=True)
class Solved:
    """Picks, their cost in picoseconds, and a lower bound on the value of any cover.

    ``preferred`` says whether, of all covers of this value, it is one of the best priority.
    """

    picks: tuple[Pick, ...]
    cost: Cost
    bound: int
    states: int
    preferred: bool

    @property
    def value(self) -> int:
        return value_of(self.cost)


def solve(problem: Problem, layouts: Layouts, width: int = WIDTH, seconds: float = 60.0) -> Solved:
    """The cover of least value: the sum of costs, or of two sides the larger sum.

    The search over cuts is exact, in priority among equal costs too, and needs no solver; where
    the graph is too wide for it, the integer program is exact to a millionth of a microsecond,
    or, where its time runs out, within the bound that it returns.

    Raises NoCandidate where no set of matches covers every op exactly once without a cycle.
    """
    try:
        found = Search(problem, width).run()
    except TooWide:
        solution = IntegerProgram(problem).solve(seconds)
        if solution is None:
            raise _no_cover(problem) from None
        picks = _picks(solution.options)
        cost = _cost(problem, layouts, picks)
        return Solved(picks, cost, min(value_of(cost), int(solution.bound)), 0, False)
    if found is None:
        raise _no_cover(problem)
    return Solved(_picks(found.options), found.cost, value_of(found.cost), found.states, True)


def _picks(options: Sequence[Option]) -> tuple[Pick, ...]:
    return tuple((option.match, option.index) for option in options)


def _cost(problem: Problem, layouts: Layouts, picks: Sequence[Pick]) -> Cost:
    """Cost of picks with all their transitions, from the figures themselves."""
    graph = problem.graph
    figures = [graph.matches[n].options[i].measurement for n, i in picks]
    needed = layouts.needed(layouts.readers, owners(graph, picks))
    assert needed is not None, "the program takes no impossible transition"
    figures += [transition.measurement for transition in needed]
    return tuple(map(sum, zip(*(cost_of(f, problem.objective) for f in figures), strict=True)))


def _no_cover(problem: Problem) -> NoCandidate:
    return NoCandidate(
        f"{len(problem.graph.ops)} ops and {len(problem.graph.matches)} matches: no set of the"
        " matches covers every op exactly once, without a cycle, with possible transitions only",
        "matches that leave a way through",
        "Give every op a match that covers it alone, and transitions between all forms",
    )
