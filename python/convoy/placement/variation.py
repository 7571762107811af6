"""Generations of an evolutionary search, with DEAP: selection, crossover and mutation."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deap import base, tools  # type: ignore[import-untyped]

Genes = tuple[int, ...]  # for each group the number of the way to cover it


@dataclass(frozen=True)
class Settings:
    """Parameters of the evolution; ``crossover`` and ``gene_chance`` are Collage's.

    Attributes:
        population: Individuals of a generation.
        crossover: Probability that two parents are crossed.
        mutation: Probability that a child is mutated.
        gene_chance: Probability that mutation changes a gene.
        run_length: Mean number of neighbouring groups that are copied from a seed.
        tournament: Individuals that compete for each place among the parents.
        ways: Most ways to cover one group.
        finalists: Number of best placements returned beside the winner.
    """

    population: int = 24
    crossover: float = 0.5
    mutation: float = 0.6
    gene_chance: float = 0.05
    run_length: float = 4.0
    tournament: int = 3
    ways: int = 12
    finalists: int = 4


class _Lower(base.Fitness):
    weights = (-1.0,)


class Individual(list[int]):
    """Genes with a fitness, in the form that DEAP expects."""

    def __init__(self, genes: Sequence[int]) -> None:
        super().__init__(genes)
        self.fitness = _Lower()


class Variation:
    """Makes generations of individuals; the same arguments give the same ones.

    ``ways`` is the number of ways to cover each group, which bounds its gene; ``seeds`` are the
    individuals to start from.
    """

    def __init__(
        self, ways: Sequence[int], seeds: Sequence[Genes], settings: Settings, seed: int
    ) -> None:
        self._ways, self._seeds, self._settings = ways, seeds, settings
        self._random = random.Random(seed)

    def first(self) -> list[Individual]:
        """Make the first generation: the seeds, and mutations of them."""
        population = [Individual(genes) for genes in self._seeds]
        while len(population) < self._settings.population:
            child = Individual(self._random.choice(self._seeds))
            self._mutate(child)
            population.append(child)
        return population

    def next(self, population: Sequence[Individual], best: Genes) -> list[Individual]:
        """Make a generation from the last one, whose fitness is known, and the best individual."""
        count, size = self._settings.population - 1, self._settings.tournament
        with self._deap_random():
            chosen = tools.selTournament(population, count, tournsize=size)
        return [Individual(best), *self._offspring(chosen)]

    def _offspring(self, chosen: Sequence[Individual]) -> list[Individual]:
        children = [Individual(parent) for parent in chosen]
        with self._deap_random():
            for left, right in zip(children[::2], children[1::2], strict=False):
                if random.random() < self._settings.crossover:
                    self._mate(left, right)
        for child in children:
            if self._random.random() < self._settings.mutation:
                self._mutate(child)
        return children

    def _mate(self, left: Individual, right: Individual) -> None:
        if len(self._ways) > 1:  # one gene leaves nothing to exchange
            tools.cxTwoPoint(left, right)

    def _mutate(self, individual: Individual) -> None:
        """Half of the time, copy a run of neighbouring groups from a seed, because costs that do
        not add up are mostly between neighbours; otherwise change single groups, at least one."""
        draw = self._random
        if draw.random() < 0.5:
            seed = draw.choice(self._seeds)
            start = draw.randrange(len(self._ways))
            length = 1 + int(draw.expovariate(1.0 / self._settings.run_length))
            individual[start : start + length] = seed[start : start + length]
            return
        open_groups = [i for i, count in enumerate(self._ways) if count > 1]
        places = [i for i in open_groups if draw.random() < self._settings.gene_chance]
        for place in places or [draw.choice(open_groups)]:
            others = [way for way in range(self._ways[place]) if way != individual[place]]
            individual[place] = draw.choice(others)

    @contextlib.contextmanager
    def _deap_random(self) -> Iterator[None]:
        """Lend this object's state to the global random module, from which DEAP draws."""
        outside = random.getstate()
        random.setstate(self._random.getstate())
        try:
            yield
        finally:
            self._random.setstate(random.getstate())
            random.setstate(outside)
