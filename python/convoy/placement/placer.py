"""One network placed: its normal forms, how much each subgraph covers, and what runs it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..backends.base import Backend
from ..cost.model import CostModel
from ..errors import InvalidOption
from ..ir import objective as objectives
from ..ir.candidate import Decline
from ..ir.device import Device
from ..ir.plan import Plan

if TYPE_CHECKING:
    from ..ir.offer import Offers
    from ..ir.workload import Workload
    from ..partition.match_graph import MatchGraph
    from .cover import Cover
    from .explanation import Explanation
    from .refine import Refined


@dataclass(frozen=True)
class Native:
    """A convolution or product that is left to TVM's own kernels, and why nobody takes it."""

    root: str
    workload: Workload
    declines: tuple[Decline, ...]

    def __str__(self) -> str:
        reasons = "; ".join(f"{d.backend}: {d.reason}" for d in self.declines)
        return f"{self.workload.key} ({reasons or 'every candidate failed'})"


@dataclass(frozen=True)
class Placement:
    """A normalised module with its chosen subgraphs and their plan.

    ``native`` are the convolutions and products that no backend's candidate can run and TVM
    compiles itself. ``cover`` is what the exact search found, TVM's own kernels among its matches
    (None: each subgraph was chosen by itself); ``refined`` what the second level weighed against
    each other, ``explanation`` why each operation went where it did (where that was asked for).
    """

    module: Any
    subgraphs: Sequence[Any]
    plan: Plan
    native: tuple[Native, ...] = ()
    cover: Cover | None = None
    refined: Refined | None = None
    explanation: Explanation | None = None

    def total_us(self) -> float:
        """Predicted time under the plan's objective, with TVM's kernels where they are known."""
        return self.plan.total_us() if self.cover is None else self.cover.total_us()


def normal_forms(mod: Any, params: Mapping[str, Any] | None, precision: str) -> list[Any]:
    """The ways to present a network that are weighed against each other."""
    return _distinct(every_form(mod, params, precision))


def every_form(mod: Any, params: Mapping[str, Any] | None, precision: str) -> Iterator[Any]:
    """The same one by one, alike ones too."""
    from ..normalize.normal_form import normalize

    yield normalize(mod, params, dtype=precision)
    if precision in ("float16", "bfloat16"):  # other ways to present the first convolution
        yield normalize(mod, params, dtype=precision, space_to_depth=True)
        yield normalize(mod, params, dtype=precision, pad_channels=1)


def plausible_groups(
    subgraphs: Any, backends: Sequence[Backend], device: Device
) -> list[list[Any]]:
    """For each root the subgraphs worth considering, one root at a time: none that are split."""
    from ..partition import alternatives

    subgraphs = [subgraph for subgraph in subgraphs if not subgraph.split]
    accepts = [lambda w, b=b: b.accepts(w, device) is None for b in backends]
    return alternatives.plausible(subgraphs, accepts)


def joint_workloads(subgraphs: Any, backends: Sequence[Backend], device: Device) -> list[Workload]:
    """Workloads of subgraphs that take several roots at once, as far as a backend accepts them."""
    found = dict.fromkeys(subgraph.workload for subgraph in subgraphs if subgraph.split)
    return [w for w in found if any(b.accepts(w, device) is None for b in backends)]


def _order(placement: Placement) -> tuple[int, int, float]:
    """Cheapest first; what a plan's total does not hold (TVM's own kernels, choices without
    figures) goes before it."""
    unknown = sum(not choice.chosen.measurement.ok for choice in placement.plan.choices)
    return len(placement.native), unknown, placement.total_us()


def _distinct(forms: Iterable[Any]) -> list[Any]:
    """Normal forms without those that offer the same workloads as an earlier one."""
    from ..partition.subgraphs import find_subgraphs

    seen: list[list[Workload]] = []
    kept = []
    for form in forms:
        workloads = [subgraph.workload for subgraph in find_subgraphs(form)]
        if workloads not in seen:
            seen.append(workloads)
            kept.append(form)
    return kept


class _Form:
    """One of the normal forms of a network, and what can be known of it before any figures."""

    def __init__(self, normal: Any) -> None:
        from ..partition.subgraphs import find_subgraphs

        self.module = normal
        self.subgraphs = find_subgraphs(normal)

    @functools.cached_property
    def dataflow(self) -> Any:
        from ..partition.dataflow import dataflow

        return dataflow(self.module)


class Placer:
    """Places one network, as often as wanted: every figure is asked for once.

    ``forms`` are its normal forms, ``costs`` the model that gives the figures, ``environment``
    the id of what they were taken in.
    """

    def __init__(
        self,
        forms: Sequence[Any],
        backends: Sequence[Backend],
        device: Device,
        costs: CostModel,
        environment: str = "",
    ) -> None:
        self._forms = [_Form(normal) for normal in forms]
        self._backends, self._device = list(backends), device
        self._costs, self._environment = costs, environment
        self._options: dict[Workload, Offers] = {}

    def place(
        self, objective: str = "graph", search: str = "exact", backends: Sequence[str] = ()
    ) -> Placement:
        """The cheapest placement of all forms. ``backends`` may name some of the placer's."""
        objectives.check(objective)
        used = [b for b in self._backends if not backends or b.name in backends]
        placements = [self._place(form, objective, search, used) for form in self._forms]
        return min(placements, key=_order)  # of equal ones the first

    def evolve(
        self,
        objective: str = "graph",
        timed: Callable[[Placement], Sequence[float]] | None = None,
        seconds: float = 60.0,
        backends: Sequence[str] = (),
    ) -> Placement:
        """The exact placement refined by the second level (placement/refine.py).

        ``timed`` runs a whole placement and gives samples in microseconds; without it the
        simulated schedule decides. The exact placement stays where some subgraph has no figures.
        """
        from ..partition.from_subgraphs import plan_to_cover
        from .refine import refine

        exact = self.place(objective, "exact", backends)
        if exact.cover is None:
            return exact
        form = next(form for form in self._forms if form.module is exact.module)
        used = [b for b in self._backends if not backends or b.name in backends]
        names = [*(backend.name for backend in used), "tvm"]  # TVM behind each for the rest
        options = self._restricted(form, used)

        def measured(cover: Cover) -> Sequence[float]:
            assert timed is not None
            return timed(self._covered(form, cover, options, used))

        greedy = plan_to_cover(exact.cover.graph, self._place(form, objective, "greedy", used).plan)
        refined = refine(
            exact.cover.graph, objective, names, self._device,
            measured if timed else None, seconds=seconds,
            seeds={"greedy": greedy} if greedy else {},
        )  # fmt: skip
        placed = self._covered(form, refined.cover, options, used)
        return dataclasses.replace(placed, refined=refined)

    def explain(self, placed: Placement, search: str = "exact") -> Explanation:
        """Why a placement of this placer is as it is. ``search`` finds what the other objectives
        would take."""
        from .explanation import explain

        form = next(form for form in self._forms if form.module is placed.module)
        others = {
            name: self._place(form, name, search, self._backends).plan
            for name in objectives.OBJECTIVES
            if name != placed.plan.objective
        }
        options = self._restricted(form, self._backends)
        return explain(placed.plan, form.subgraphs, options, others, self._device)

    def finalists(self, objective: str = "graph", most: int = 3) -> list[tuple[Plan, float]]:
        """The plans that the second level would compile beside its seeds, with their simulated
        time in microseconds, best first."""
        placed = self.evolve(objective)
        if placed.refined is None:
            return []
        form = next(form for form in self._forms if form.module is placed.module)
        options = self._restricted(form, self._backends)
        evolved = [c for c in placed.refined.contenders if c.evolved]
        evolved.sort(key=lambda c: c.simulated_us)
        return [
            (self._covered(form, c.cover, options, self._backends).plan, c.simulated_us)
            for c in evolved[:most]
        ]

    def _restricted(
        self, form: _Form, backends: Sequence[Backend], every: bool = True
    ) -> dict[Workload, Offers]:
        """What these backends offer for the plausible subgraphs of a form; with ``every`` also for
        those of several roots and, as far as their figures take no measuring, all others."""

        groups = plausible_groups(form.subgraphs, backends, self._device)
        asked = [r.workload for group in groups for r in group]
        if every:
            asked += joint_workloads(form.subgraphs, backends, self._device)
        if every and self._costs.free:
            asked += [
                workload
                for workload in dict.fromkeys(subgraph.workload for subgraph in form.subgraphs)
                if self._costs.measures or self._costs.candidates(workload)
            ]
        known = self._gathered(list(dict.fromkeys(asked)))
        names = [backend.name for backend in backends]
        return {workload: offers.only(names) for workload, offers in known.items()}

    def _gathered(self, workloads: Sequence[Workload]) -> dict[Workload, Offers]:
        from ..cost.cache import in_network
        from ..cost.price import price

        new = [workload for workload in workloads if workload not in self._options]
        found = price(new, self._backends, self._device, self._costs)
        later = {backend.name: backend.after_others_us for backend in self._backends}
        self._options.update(in_network(found, self._staying, later))
        return self._options

    @functools.cached_property
    def _staying(self) -> bool:
        """Whether what the network touches stays in the L2 cache from one run to the next."""
        from ..cost.cache import stays, touched_bytes

        # Of each root the shortest subgraph: every weight once.
        subgraphs = [r for r in self._forms[0].subgraphs if not r.split]
        bare = {subgraph.root: subgraph.workload for subgraph in subgraphs}
        return stays(touched_bytes(bare.values()), self._device)

    def _place(
        self, form: _Form, objective: str, search: str, backends: Sequence[Backend]
    ) -> Placement:
        """Choose how much each subgraph of a form covers and what runs it."""
        from ..partition import alternatives
        from .place import place as choose
        from .place import rank

        groups = plausible_groups(form.subgraphs, backends, self._device)
        options = self._restricted(form, backends, every=search != "greedy")

        def cheapest(workload: Workload) -> float | None:
            found = options[workload]
            if ranked := rank(found.measured, objective):
                return objectives.own_cost(ranked[0].measurement, objective)[0]
            return None if found.unmeasured else float("inf")

        chosen = alternatives.choose(groups, cheapest, self._device)
        runnable = [r for r in chosen if cheapest(r.workload) != float("inf")]
        named = [(r.id, r.workload) for r in runnable]
        plan = choose(
            named, backends, self._device, self._costs, objective, self._environment, options
        )
        cover = self._exact(form, options, plan) if search == "exact" else None
        if cover is None:
            return _placement(form, runnable, plan, backends)
        return self._covered(form, cover, options, backends)

    def _exact(self, form: _Form, options: Mapping[Workload, Offers], greedy: Plan) -> Cover | None:
        """The cheapest cover of the whole graph; None where the greedy plan has subgraphs without
        figures, whose sums would say nothing."""
        from .cover import find_cover

        if not all(choice.chosen.measurement.ok for choice in greedy.choices):
            return None
        graph = self._match_graph(form, options)
        return find_cover(graph, greedy.objective, backend_order=[b.name for b in self._backends])

    def _match_graph(self, form: _Form, options: Mapping[Workload, Offers]) -> MatchGraph:
        from ..partition.from_subgraphs import subgraphs_to_graph
        from ..partition.match_graph import Form, Op

        flow = form.dataflow
        made = {op.name for op in flow.operations}  # an input may be a result as it is
        matches, _ = subgraphs_to_graph(
            [Op(op.name, op.inputs, op.elements) for op in flow.operations],
            tuple((name, Form()) for name in flow.parameters),
            [(name, None) for name in flow.results if name in made],
            form.subgraphs,
            options,
            self._device,
            flow.native_bytes({name for subgraph in form.subgraphs for name in subgraph.covered}),
            flow.gathered(),
        )
        return matches

    def _covered(
        self,
        form: _Form,
        cover: Cover,
        options: Mapping[Workload, Offers],
        backends: Sequence[Backend],
    ) -> Placement:
        from ..partition.from_subgraphs import cover_to_plan

        known = any(s.measurement.ok for match, s in cover.matches if match.workload is not None)
        source = self._costs.source if known else "none"
        plan = cover_to_plan(cover, options, self._device, source, self._environment)
        chosen = [form.subgraphs.by_id[choice.subgraph] for choice in plan.choices]
        return _placement(form, chosen, plan, backends, cover)


def _placement(
    form: _Form,
    chosen: Sequence[Any],
    plan: Plan,
    backends: Sequence[Backend],
    cover: Cover | None = None,
) -> Placement:
    """A placement of the chosen subgraphs, with the reasons for what is left to TVM."""
    placed = {name for r in chosen for name in r.covered}
    # Of each root the shortest.
    bare = {r.root: r.workload for r in form.subgraphs if not r.optional and not r.split}
    native = tuple(
        Native(root, workload, _declines(workload, backends, plan.device))
        for root, workload in bare.items()
        if root not in placed
    )
    return Placement(form.module, chosen, plan, native, cover)


def restore(forms: Iterable[Any], plan: Plan, backends: Sequence[Backend]) -> Placement:
    """The placement that a plan describes, in the form of the network that it was made for."""
    for normal in forms:
        form = _Form(normal)
        chosen = [form.subgraphs.by_id.get(choice.subgraph) for choice in plan.choices]
        found = [subgraph.workload if subgraph else None for subgraph in chosen]
        if found == [choice.workload for choice in plan.choices]:
            offload = [backend for backend in backends if backend.name != "tvm"]
            return _placement(form, chosen, plan, offload)
    raise InvalidOption(
        f"a plan of {len(plan.choices)} subgraphs that are not all of this network",
        "the plan of the same network, batch size and precision",
    )


def _declines(
    workload: Workload, backends: Sequence[Backend], device: Device
) -> tuple[Decline, ...]:
    if not backends:
        return (Decline("tvm", "no other backend was named", "name more in backends"),)
    answers = [backend.accepts(workload, device) for backend in backends]
    return tuple(answer for answer in answers if answer is not None)
