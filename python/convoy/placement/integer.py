"""The cover problem as an integer program, for graphs too wide for the search over cuts.

    minimize    sum of cost * x                              (one-sided objectives)
    or          z,  z >= either side's sum                   (stream)
    subject to  sum of x over the steps that cover an op          =  1   for every op
                sum of x over a set of moves that form a cycle    <= size of the set - 1
                link  <=  x of the step that saves,
                link  <=  sum of x over the early steps that cover its predecessor

``x`` chooses a step, whose ``link`` subtracts what it saves if its predecessor lets it start
early. The first constraint is set partitioning: its linear relaxation is integral
for most networks, so that the solver (HiGHS, through scipy) needs no branching. Cycles are rare and
are cut off when one is met.

Real networks need it under ``stream``, whose two-sided costs make the Pareto fronts of the search
wider than it keeps: GoogLeNet and DenseNet-121 at N=1 and 8, ResNeXt-50 at N=1, Inception v3 and a
training step of ResNet-50 at N=8, from the shipped records of an H200. Under ``graph`` and ``sync``
none of the shipped workload lists' networks does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ..partition.dependencies import bits
from .assignment import Pick
from .problem import UNIT, Cost, Move, Problem, Step

if TYPE_CHECKING:
    from scipy.optimize import OptimizeResult

# Microseconds: twice the solver's own absolute tolerance, once for the gap between its solution and
# its bound, once for the constraints that the solution may miss (those of ``stream``'s two sides).
TOLERANCE = 2e-6
CYCLE_ROUNDS = 200


@dataclass(frozen=True)
class Solution:
    """Picks of a cover and a lower bound, in picoseconds, on the value of any cover."""

    picks: tuple[Pick, ...]
    bound: float


@dataclass
class _Rows:
    """Sparse constraint rows ``low <= sum of coefficients <= high``."""

    row: list[int] = field(default_factory=list)
    column: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)

    def add(self, terms: Sequence[tuple[int, float]], low: float, high: float) -> None:
        self.row += [len(self.low)] * len(terms)
        self.column += [column for column, _ in terms]
        self.value += [value for _, value in terms]
        self.low.append(low)
        self.high.append(high)


class IntegerProgram:
    """A single problem; :meth:`solve` may be called once."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._choices: list[tuple[Move, Step]] = [
            (move, step) for there in problem.moves_at for move in there for step in move.steps
        ]
        self._costs: list[Cost] = [step.cost for _, step in self._choices]
        self._rows = _Rows()
        self._cover_rows()
        self._link_rows()
        self._columns = len(self._costs)
        if problem.sides == 2:
            self._side_rows()

    def solve(self, seconds: float) -> Solution | None:
        """The optimum, or the best cover found within the time limit with a bound; None if there is
        no cover or none was found in time."""
        left = seconds
        for _ in range(CYCLE_ROUNDS):
            result = self._run(left)
            if result.x is None:
                return None
            chosen = [i for i in range(len(self._choices)) if result.x[i] > 0.5]
            cycle = self._cycle(chosen)
            if not cycle:
                bound = result.mip_dual_bound if result.mip_dual_bound is not None else 0.0
                picks = tuple(self._choices[i][1].pick for i in chosen)
                return Solution(picks, (bound + TOLERANCE) * UNIT)
            masks = {self._choices[i][0].mask for i in cycle}
            terms = [(i, 1.0) for i, (move, _) in enumerate(self._choices) if move.mask in masks]
            self._rows.add(terms, -np.inf, len(masks) - 1)
        return None

    def _run(self, seconds: float) -> OptimizeResult:
        from scipy.optimize import Bounds, LinearConstraint, milp  # 0.4 s, and seldom needed
        from scipy.sparse import csr_array

        rows, count = self._rows, self._columns
        if self.problem.sides == 2:
            weights = np.zeros(count + 1)
            weights[count] = 1.0
        else:
            weights = np.array([cost[0] / UNIT for cost in self._costs])
        matrix = csr_array(
            (rows.value, (rows.row, rows.column)), shape=(len(rows.low), len(weights))
        )
        upper, whole = np.ones(len(weights)), np.zeros(len(weights))
        upper[count:] = np.inf
        whole[: len(self._choices)] = 1
        return milp(
            weights,
            constraints=LinearConstraint(matrix, rows.low, rows.high),
            bounds=Bounds(np.zeros(len(weights)), upper),
            integrality=whole,
            options={"mip_rel_gap": 0.0, "time_limit": seconds},
        )

    def _cover_rows(self) -> None:
        covering: list[list[tuple[int, float]]] = [[] for _ in self.problem.graph.ops]
        for i, (move, _) in enumerate(self._choices):
            for op in bits(move.mask):
                covering[op].append((i, 1.0))
        for terms in covering:
            self._rows.add(terms, 1.0, 1.0)

    def _link_rows(self) -> None:
        """Add a column of negative cost for each step that saves time as a link."""
        early: list[list[tuple[int, float]]] = [[] for _ in self.problem.graph.ops]
        for i, (move, step) in enumerate(self._choices):
            for op in bits(move.mask) if step.early else ():
                early[op].append((i, -1.0))
        for i, (move, step) in enumerate(self._choices):
            if move.anchor >= 0 and step.saving and early[move.anchor]:
                link = (len(self._costs), 1.0)
                self._costs.append((-step.saving,))
                self._rows.add([link, (i, -1.0)], -np.inf, 0.0)
                self._rows.add([link, *early[move.anchor]], -np.inf, 0.0)

    def _side_rows(self) -> None:
        for side in range(2):
            terms = [
                (column, -cost[side] / UNIT)
                for column, cost in enumerate(self._costs)
                if cost[side]
            ]
            self._rows.add([*terms, (self._columns, 1.0)], 0.0, np.inf)

    def _cycle(self, chosen: Sequence[int]) -> list[int]:
        """Choices that wait for each other in a circle; empty where all can be launched."""
        moves = [self._choices[i][0] for i in chosen]
        of_op = {op: j for j, move in enumerate(moves) for op in bits(move.mask)}
        needs = [{of_op[op] for op in bits(move.read_mask)} for move in moves]
        left = set(range(len(moves)))
        while True:
            able = {j for j in left if not needs[j] & left}
            if not able:
                break
            left -= able
        if not left:
            return []
        at, path = min(left), []
        while at not in path:
            path.append(at)
            at = min(needs[at] & left)
        return [chosen[j] for j in path[path.index(at) :]]
