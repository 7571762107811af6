"""From passes of the cover search to a proven optimum, or a cover with a stated bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import NoCandidate
from .assignment import Layouts, Pick, owners
from .frontier import Found, Search
from .problem import Cost, Problem, cost_of, value_of

LIMITS = (64, 2048)  # partial covers kept at a cut, in the first and the second pass
WEIGHT = 4096  # weights of a Lagrangian relaxation are whole numbers that sum up to about this
ROUNDS = 16


@dataclass(frozen=True)
class Solved:
    """Picks, their cost in picoseconds, and a lower bound on the value of any cover."""

    picks: tuple[Pick, ...]
    cost: Cost
    bound: int
    states: int

    @property
    def value(self) -> int:
        return value_of(self.cost)


def solve(problem: Problem, layouts: Layouts, limits: Sequence[int] = LIMITS) -> Solved:
    """The cover of least value: the sum of costs, or of two sides the larger sum.

    Raises NoCandidate where no set of matches covers every op exactly once without a cycle.
    """
    if problem.sides == 1:
        return _one_sided(problem, problem, layouts, limits)
    return _two_sided(problem, layouts, limits)


def true_cost(problem: Problem, layouts: Layouts, picks: Sequence[Pick]) -> Cost:
    """Cost of picks with all their transitions, recomputed from the figures."""
    graph = problem.graph
    figures = [graph.matches[n].options[i].measurement for n, i in picks]
    needed = layouts.needed(layouts.readers, owners(graph, picks))
    assert needed is not None, "the search takes no impossible transition"
    figures += [transition.measurement for transition in needed]
    return tuple(map(sum, zip(*(cost_of(f, problem.objective) for f in figures), strict=True)))


def _picks(found: Found) -> tuple[Pick, ...]:
    return tuple((option.match, option.index) for option in found.options)


def _one_sided(
    problem: Problem, original: Problem, layouts: Layouts, limits: Sequence[int]
) -> Solved:
    """A narrow pass, which is exact where its limit is never met; otherwise a wide one, helped by
    the value of the first."""
    best: Found | None = None
    bound, states = 0, 0
    for limit in limits:
        search = Search(problem, limit, value_of(best.cost) if best else None)
        found = search.run()
        states += found.states if found else 0
        if found and (best is None or (found.cost, found.priority) < (best.cost, best.priority)):
            best = found
        if search.dropped is None:
            if best is None:
                raise _no_cover(original)
            bound = value_of(best.cost)
            break
        bound = max(bound, min(search.dropped, value_of(best.cost) if best else search.dropped))
    if best is None:
        raise _no_cover(original, limits[-1])
    picks = _picks(best)
    return Solved(picks, true_cost(original, layouts, picks), bound, states)


def _no_cover(problem: Problem, limit: int | None = None) -> NoCandidate:
    why = "no set of the matches covers every op exactly once, without a cycle and with"
    if limit is not None:
        why = f"among {limit} partial covers at each cut none can be completed with"
    return NoCandidate(
        f"{len(problem.graph.ops)} ops and {len(problem.graph.matches)} matches: {why} possible"
        " transitions only",
        "matches that leave a way through",
        "Give every op a match that covers it alone, and transitions between all forms",
    )


def _two_sided(problem: Problem, layouts: Layouts, limits: Sequence[int]) -> Solved:
    """max(sum of one side, sum of the other).

    For weights a, b >= 0 with a + b = 1 the least weighted sum is a lower bound on the least
    maximum (Lagrangian relaxation), and costs one search each. The best weights are found by
    intersecting the lines of the two covers that are best so far on either side (Handler and
    Zang, Networks 10, 1980). The gap that is left is closed by a search that keeps Pareto fronts.
    """
    relaxed = _relaxed(problem, layouts, limits)
    best, bound, states = relaxed.best, relaxed.bound, relaxed.states
    weighted = problem.weighted(relaxed.weights)
    for limit in limits:
        search = Search(problem, limit, best.value, (relaxed.weights, weighted))
        found = search.run()
        states += found.states if found else 0
        complete = search.dropped is None
        if found and (complete or value_of(found.cost) < best.value):
            best = Solved(_picks(found), found.cost, bound, states)
        if complete:
            return Solved(best.picks, best.cost, best.value, states)
        bound = max(bound, min(search.dropped or 0, best.value))
        if bound >= best.value:
            break
    return Solved(best.picks, best.cost, min(bound, best.value), states)


@dataclass
class _Relaxed:
    best: Solved
    bound: int
    weights: tuple[int, int]
    states: int


def _relaxed(problem: Problem, layouts: Layouts, limits: Sequence[int]) -> _Relaxed:
    def at(weights: tuple[int, int]) -> Solved:
        return _one_sided(problem.weighted(weights), problem, layouts, limits)

    first, second = at((1, 0)), at((0, 1))
    best = min(first, second, key=lambda s: (s.value, sum(s.cost)))
    states = first.states + second.states
    if first.cost[0] >= first.cost[1]:
        return _Relaxed(best, max(first.bound, second.bound), (1, 0), states)
    if second.cost[1] >= second.cost[0]:
        return _Relaxed(best, max(first.bound, second.bound), (0, 1), states)
    bound, at_bound = max((first.bound, (1, 0)), (second.bound, (0, 1)))
    for _ in range(ROUNDS):
        rise, fall = first.cost[1] - second.cost[1], second.cost[0] - first.cost[0]
        weight = round(WEIGHT * rise / (rise + fall))
        weights = (weight, WEIGHT - weight)
        found = at(weights)
        states += found.states
        bound, at_bound = max((bound, at_bound), (-(-found.bound // WEIGHT), weights))
        best = min(best, found, key=lambda s: (s.value, sum(s.cost)))
        if found.cost in (first.cost, second.cost):
            break
        if found.cost[1] > found.cost[0]:
            first = found
        else:
            second = found
    return _Relaxed(best, bound, at_bound, states)
