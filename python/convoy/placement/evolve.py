"""Evolutionary search over placements of a network, by the cost of its schedule.

The exact cover minimizes a sum. Overlap on several streams, sharing of the cache and waiting for
the host are not sums: they are known only for the whole network, from a simulated schedule or a
measurement. Collage (Jeon and others, PACT 2022) refines its first level in the same way, with one
bit per group of ops for one graph-level backend; here a gene is any way to cover a group
(groups.py).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ..errors import ConvoyError, InvalidOption, NoCandidate
from ..partition.match_graph import MatchGraph
from .assignment import Pick
from .cover import Cover, cover_of, find_cover, single_backend, usable_offers
from .groups import make_groups
from .variation import Genes, Individual, Settings, Variation

Fitness = Callable[[Cover], float]


@dataclass(frozen=True)
class Budget:
    """Limits of a search, which stops at the first that it reaches.

    ``evaluations`` counts calls of the fitness function, ``patience`` is the number of generations
    without a better individual. The seeds are always evaluated.
    """

    evaluations: int = 300
    patience: int = 12


@dataclass(frozen=True)
class Evolved:
    """The best placement, its fitness in microseconds, and how it was found.

    ``seeds`` gives the fitness of each seed by name; ``history`` the best fitness after each
    generation; ``finalists`` are the best distinct placements with their fitness, best first.
    """

    cover: Cover
    fitness_us: float
    seeds: dict[str, float]
    history: tuple[float, ...]
    evaluations: int
    groups: int
    finalists: tuple[tuple[Cover, float], ...] = ()


def seed_covers(graph: MatchGraph, objective: str, backends: Sequence[str]) -> dict[str, Cover]:
    """The exact cover, and for each backend the cover that uses it wherever possible and the others
    for the workloads that it declines. Backends that cannot start are omitted."""
    covers = {"exact": find_cover(graph, objective, backends)}
    for name in backends:
        order = list(dict.fromkeys([name, *backends]))
        with contextlib.suppress(NoCandidate):
            covers[name] = single_backend(graph, order, objective)
    return covers


def evolve(
    seeds: dict[str, Cover],
    fitness: Fitness,
    budget: Budget | None = None,
    settings: Settings | None = None,
    seed: int = 0,
) -> Evolved:
    """Refine covers of one graph by a fitness of the whole, in microseconds, lower is better.

    Never returns a placement that is worse than the best seed. The same arguments give the same
    result, whatever else uses the random module. A ConvoyError from ``fitness`` counts as
    infinitely slow.

    Raises InvalidOption if there is no seed, NoCandidate if no seed could be evaluated.
    """
    if not seeds:
        raise InvalidOption("no seeds", "at least one cover", "Make them with seed_covers()")
    return _Search(seeds, fitness, budget or Budget(), settings or Settings(), seed).run()


class _Search:
    def __init__(
        self,
        seeds: dict[str, Cover],
        fitness: Fitness,
        budget: Budget,
        settings: Settings,
        seed: int,
    ) -> None:
        first = next(iter(seeds.values()))
        self._seeds, self._fitness, self._budget = seeds, fitness, budget
        self._settings, self._seed, self._first = settings, seed, first
        usable = usable_offers(first.graph)
        covers = [cover.picks for cover in seeds.values()]
        ways = max(settings.ways, len(seeds))
        self.groups = make_groups(first.graph, covers, usable, ways)
        self._known: dict[Genes, float] = {}  # fitness; infinite for a failure

    def run(self) -> Evolved:
        seed_genes = {name: self._genes(cover.picks) for name, cover in self._seeds.items()}
        seed_us = {name: self._value(genes) for name, genes in seed_genes.items()}
        if math.isinf(min(seed_us.values())):
            raise NoCandidate(
                "no seed whose fitness could be evaluated", "at least one placement that runs"
            )
        history = self._generations(list(dict.fromkeys(seed_genes.values())))
        genes, best = self._best()
        seed_name = min(seed_us, key=seed_us.__getitem__)
        if best >= seed_us[seed_name]:
            genes, best = seed_genes[seed_name], seed_us[seed_name]
        cover = self._cover(genes)
        assert cover is not None, "only feasible placements have a finite fitness"
        return Evolved(
            cover, best, seed_us, tuple(history), len(self._known), len(self.groups),
            tuple(self._finalists()),
        )  # fmt: skip

    def _best(self) -> tuple[Genes, float]:
        """Lowest fitness; of equals the one evaluated first."""
        return min(self._known.items(), key=lambda item: item[1])

    def _finalists(self) -> Iterator[tuple[Cover, float]]:
        """The best individuals, lowest fitness first; ties in order of evaluation."""
        ranked = sorted(self._known.items(), key=lambda item: item[1])
        for genes, us in ranked[: self._settings.finalists]:
            if math.isfinite(us) and (cover := self._cover(genes)) is not None:
                yield cover, us

    def _generations(self, seeds: list[Genes]) -> list[float]:
        """Evolve until the budget is spent; the best individual always survives."""
        ways = [len(group.parts) for group in self.groups]
        if max(ways) == 1:
            return [self._best()[1]]
        variation = Variation(ways, seeds, self._settings, self._seed)
        population = variation.first()
        history: list[float] = []
        idle = 0
        while self._assess(population):
            best = self._best()
            idle = idle + 1 if history and best[1] >= history[-1] else 0
            history.append(best[1])
            if idle >= self._budget.patience:
                break
            population = variation.next(population, best[0])
        return history or [self._best()[1]]

    def _assess(self, population: Sequence[Individual]) -> bool:
        """Give every individual its fitness; False if the budget ended before the last."""
        for individual in population:
            genes = tuple(individual)
            if genes not in self._known and len(self._known) >= self._budget.evaluations:
                return False
            individual.fitness.values = (self._value(genes),)
        return True

    def _value(self, genes: Genes) -> float:
        if genes not in self._known:
            self._known[genes] = self._evaluated(genes)
        return self._known[genes]

    def _evaluated(self, genes: Genes) -> float:
        """The fitness of an individual; infinite for subgraphs that wait for each other in a
        circle, and for a fitness that fails or is not a number."""
        cover = self._cover(genes)
        if cover is None:
            return math.inf
        try:
            value = float(self._fitness(cover))
        except ConvoyError:
            return math.inf
        return math.inf if math.isnan(value) else value

    def _cover(self, genes: Sequence[int]) -> Cover | None:
        picks = [
            p for group, gene in zip(self.groups, genes, strict=True) for p in group.parts[gene]
        ]
        return cover_of(
            self._first.graph,
            self._first.objective,
            picks,
            self._first.optimum_us,
            self._first.bound_us,
        )

    def _genes(self, picks: Sequence[Pick]) -> Genes:
        chosen = set(picks)
        return tuple(
            next(i for i, part in enumerate(group.parts) if chosen.issuperset(part))
            for group in self.groups
        )
