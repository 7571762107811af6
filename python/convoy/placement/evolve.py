"""Evolutionary search over whole placements, by the cost of the scheduled whole.

The exact cover minimises a sum. What overlaps on several streams, shares the cache or waits for
the host does not add up, and is known only of the whole: from a simulated schedule, or measured.
Collage (Jeon and others, PACT 2022) refines its first level the same way, with one bit per group
of ops for one graph-level backend; here a gene is any way to cover a group (groups.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from deap import base, tools  # type: ignore[import-untyped]

from ..errors import ConvoyError, InvalidOption, NoCandidate
from ..partition.match_graph import MatchGraph
from .assignment import Pick
from .cover import Cover, cover_of, find_cover, single_backend, usable_offers
from .evaluations import Evaluations, Genes
from .groups import Group, make_groups

Fitness = Callable[[Cover], float]


@dataclass(frozen=True)
class Budget:
    """When to stop: whichever comes first.

    ``evaluations`` counts calls of the fitness function, ``seconds`` is checked between calls
    (with it the result depends on the machine's speed), ``patience`` is the number of
    generations without a better individual. The seeds are always evaluated.
    """

    evaluations: int = 500
    seconds: float = math.inf
    patience: int = 20


@dataclass(frozen=True)
class Settings:
    """Of the evolution; crossover and the chance of a gene to change are Collage's.

    ``ways`` is the most ways that one group may have; ``gene_chance`` the chance that mutation
    changes a gene, ``run_length`` the mean number of neighbouring groups taken over from a seed;
    ``finalists`` how many of the best are handed back beside the winner.
    """

    population: int = 24
    crossover: float = 0.5
    mutation: float = 0.6
    gene_chance: float = 0.05
    run_length: float = 4.0
    tournament: int = 3
    ways: int = 12
    finalists: int = 4


@dataclass(frozen=True)
class Evolved:
    """The best placement, its fitness in microseconds, and how it was found.

    ``seeds`` gives the fitness of each seed by name; ``history`` the best fitness after each
    generation. ``confirmed`` tells whether a winner other than a seed was measured again;
    ``finalists`` are the best distinct placements with their fitness, best first.
    """

    cover: Cover
    fitness_us: float
    seeds: dict[str, float]
    history: tuple[float, ...]
    evaluations: int
    groups: int
    confirmed: bool = False
    finalists: tuple[tuple[Cover, float], ...] = ()


class _Lower(base.Fitness):
    weights = (-1.0,)


class _Individual(list[int]):
    """Genes with a fitness, as DEAP wants them."""

    def __init__(self, genes: Sequence[int]) -> None:
        super().__init__(genes)
        self.fitness = _Lower()


def seed_covers(
    graph: MatchGraph,
    objective: str,
    backends: Sequence[str],
    fallback: Sequence[str] = (),
) -> dict[str, Cover]:
    """The exact cover, and for each backend the cover that uses it wherever it can, with the
    others (``fallback`` first) for what it declines. Backends that cannot start are left out."""
    covers = {"exact": find_cover(graph, objective, backends)}
    for name in backends:
        behind = [*fallback, *backends]
        order = list(dict.fromkeys([name, *behind]))
        with contextlib.suppress(NoCandidate):
            covers[name] = single_backend(graph, order, objective)
    return covers


def evolve(
    seeds: dict[str, Cover],
    fitness: Fitness,
    budget: Budget | None = None,
    settings: Settings | None = None,
    seed: int = 0,
    cache: Path | None = None,
    confirm: int = 0,
    progress: Callable[[int, float], None] | None = None,
) -> Evolved:
    """Refine covers of one graph by a fitness of the whole, in microseconds, lower is better.

    Never returns a placement that is worse than the best seed. ``confirm`` guards this against
    noise of a measured fitness: winner and best seed are evaluated so many times again, in turns,
    and the seed stays unless the winner's median is lower. The same arguments and an exact
    ``fitness`` give the same result, whatever else uses the random module. A ConvoyError from
    ``fitness`` counts as infinitely slow.

    Raises InvalidOption where there is no seed, NoCandidate where no seed could be evaluated.
    """
    if not seeds:
        raise InvalidOption("no seeds", "at least one cover", "Make them with seed_covers()")
    search = _Search(
        seeds, fitness, budget or Budget(), settings or Settings(), seed, cache, progress,
    )  # fmt: skip
    return search.run(confirm)


class _Search:
    def __init__(
        self,
        seeds: dict[str, Cover],
        fitness: Fitness,
        budget: Budget,
        settings: Settings,
        seed: int,
        cache: Path | None,
        progress: Callable[[int, float], None] | None,
    ) -> None:
        first = next(iter(seeds.values()))
        self._seeds, self._fitness, self._budget = seeds, fitness, budget
        self._settings, self._progress = settings, progress
        self._first = first
        usable = usable_offers(first.graph)
        covers = [cover.picks for cover in seeds.values()]
        ways = max(settings.ways, len(seeds))
        self.groups = make_groups(first.graph, covers, usable, ways)
        self._evaluations = Evaluations(_fingerprint(first, self.groups), cache)
        self._random = random.Random(seed)
        self._started = time.monotonic()
        self._seed_genes: list[Genes] = []

    def run(self, confirm: int) -> Evolved:
        seed_genes = {name: self._genes(cover.picks) for name, cover in self._seeds.items()}
        seed_us = {name: self._value(genes) for name, genes in seed_genes.items()}
        if math.isinf(min(seed_us.values())):
            raise NoCandidate(
                "no seed whose fitness could be evaluated", "at least one placement that runs"
            )
        self._seed_genes = list(dict.fromkeys(seed_genes.values()))
        history = self._generations(self._seed_genes)
        genes, best = self._evaluations.best()
        seed_name = min(seed_us, key=seed_us.__getitem__)
        confirmed = False
        if best >= seed_us[seed_name]:
            genes, best = seed_genes[seed_name], seed_us[seed_name]
        elif confirm:
            confirmed = True
            genes, best = self._confirmed(genes, seed_genes[seed_name], confirm)
        cover = self._cover(genes)
        assert cover is not None, "only feasible placements have a finite fitness"
        ranked = self._evaluations.ranked()[: self._settings.finalists]
        finalists = [(self._cover(genes), us) for genes, us in ranked]
        return Evolved(
            cover, best, seed_us, tuple(history), self._evaluations.added, len(self.groups),
            confirmed, tuple((found, us) for found, us in finalists if found is not None),
        )  # fmt: skip

    def _generations(self, seeds: list[Genes]) -> list[float]:
        """Evolve until the budget is spent; the best individual always stays."""
        if all(len(group.parts) == 1 for group in self.groups):
            return [self._evaluations.best()[1]]
        settings, toolbox = self._settings, base.Toolbox()
        toolbox.register("mate", tools.cxTwoPoint if len(self.groups) > 1 else _no_crossover)
        toolbox.register("mutate", self._mutate)
        toolbox.register("select", tools.selTournament, tournsize=settings.tournament)
        population = [_Individual(genes) for genes in seeds]
        while len(population) < settings.population:
            child = _Individual(self._random.choice(seeds))
            population.append(self._mutate(child)[0])
        history: list[float] = []
        idle = 0
        while self._assess(population):
            best = self._evaluations.best()
            idle = idle + 1 if history and best[1] >= history[-1] else 0
            history.append(best[1])
            if self._progress:
                self._progress(self._evaluations.added, best[1])
            if idle >= self._budget.patience:
                break
            with self._deap_random():
                chosen = toolbox.select(population, settings.population - 1)
            population = [_Individual(best[0]), *self._offspring(chosen, toolbox)]
        return history or [self._evaluations.best()[1]]

    def _offspring(self, chosen: Sequence[_Individual], toolbox: base.Toolbox) -> list[_Individual]:
        children = [_Individual(parent) for parent in chosen]
        with self._deap_random():
            for left, right in zip(children[::2], children[1::2], strict=False):
                if random.random() < self._settings.crossover:
                    toolbox.mate(left, right)
        for child in children:
            if self._random.random() < self._settings.mutation:
                toolbox.mutate(child)
        return children

    def _mutate(self, individual: _Individual) -> tuple[_Individual]:
        """Half of the time a run of groups as some seed has it, because what does not add up is
        mostly between neighbours; else another way for single groups, at least for one."""
        draw = self._random
        if draw.random() < 0.5:
            seed = draw.choice(self._seed_genes)
            start = draw.randrange(len(self.groups))
            length = 1 + int(draw.expovariate(1.0 / self._settings.run_length))
            individual[start : start + length] = seed[start : start + length]
            return (individual,)
        open_groups = [i for i, group in enumerate(self.groups) if len(group.parts) > 1]
        places = [i for i in open_groups if draw.random() < self._settings.gene_chance]
        for place in places or [draw.choice(open_groups)]:
            ways = range(len(self.groups[place].parts))
            individual[place] = draw.choice([way for way in ways if way != individual[place]])
        return (individual,)

    def _assess(self, population: Sequence[_Individual]) -> bool:
        """Give every individual its fitness; False where the budget ended before the last."""
        for individual in population:
            known = self._evaluations.get(individual)
            if known is None:
                late = time.monotonic() - self._started > self._budget.seconds
                if late or self._evaluations.added >= self._budget.evaluations:
                    return False
                known = self._value(tuple(individual))
            individual.fitness.values = (known,)
        return True

    def _value(self, genes: Genes) -> float:
        known = self._evaluations.get(genes)
        if known is None:
            known, failure = self._measured(genes)
            self._evaluations.add(genes, known, failure)
        return known

    def _measured(self, genes: Genes) -> tuple[float, str]:
        cover = self._cover(genes)
        if cover is None:
            return math.inf, "the subgraphs wait for each other in a circle"
        try:
            value = float(self._fitness(cover))
        except ConvoyError as err:
            return math.inf, str(err)
        return (math.inf, "the fitness is not a number") if math.isnan(value) else (value, "")

    def _confirmed(self, winner: Genes, seed: Genes, times: int) -> tuple[Genes, float]:
        samples: dict[Genes, list[float]] = {winner: [], seed: []}
        for _ in range(times):
            for genes, values in samples.items():
                values.append(self._measured(genes)[0])
        medians = {genes: sorted(values)[len(values) // 2] for genes, values in samples.items()}
        better = winner if medians[winner] < medians[seed] else seed
        return better, medians[better]

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

    @contextlib.contextmanager
    def _deap_random(self) -> Iterator[None]:
        """DEAP draws from the global random module: lend it our state, and leave no trace."""
        outside = random.getstate()
        random.setstate(self._random.getstate())
        try:
            yield
        finally:
            self._random.setstate(random.getstate())
            random.setstate(outside)


def _no_crossover(left: list[int], right: list[int]) -> tuple[list[int], list[int]]:
    """One gene leaves nothing to exchange."""
    return left, right


def _fingerprint(cover: Cover, groups: Sequence[Group]) -> str:
    """Names a search space: graph, subgraphs, measurements and the ways of every group."""
    text = repr((cover.graph.ops, cover.graph.subgraphs, [group.parts for group in groups]))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
