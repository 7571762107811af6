"""Measuring within a budget: what comes first, what always comes, what never does."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from tvm.relax import op

from convoy.backends.base import Backend, Binary
from convoy.cost.measured import MeasuredCost
from convoy.cost.offers import price_workloads
from convoy.cost.price import price
from convoy.errors import CompileFailed
from convoy.ir.candidate import Candidate, Decline
from convoy.ir.device import Device
from convoy.ir.measurement import Measurement
from convoy.ir.workload import Workload
from convoy.normalize.normal_form import normalize
from convoy.partition.partition import partition

from ..graph.nets import Net
from ..helpers.unrecorded import Unrecorded

SMALL = Workload("fprop", 1, 8, 8, 8, 8, 3, 3)
LARGE = Workload("fprop", 8, 56, 56, 64, 64, 3, 3)
SECONDS = 1.0  # that a measurement takes


class Listed(Backend):
    """A backend of five candidates, of which some are compiled already."""

    def __init__(self, name: str, ready: Sequence[str] = ("k0", "k1", "k2", "k3", "k4")) -> None:
        self.name, self.compiled, self.prepared = name, ready, []

    def accepts(self, workload, device):
        return None

    def propose(self, workload, device):
        return [Candidate(self.name, f"k{i}", priority=i) for i in range(5)]

    def is_ready(self, candidate):
        return candidate.kernel in self.compiled

    def build(self, workload, candidate, device):
        return Binary({}, {})

    def prepare(self, jobs, device):
        self.prepared += [candidate.kernel for _, candidate in jobs]
        return {}


@pytest.fixture
def measured(monkeypatch):
    """(workload, backend, kernel) in the order of measuring; each takes a second. What promises
    most is waited for, however busy the machine is."""
    done = []
    monkeypatch.setattr("convoy.cost.builds_ahead.PATIENCE_S", 60.0)

    def measure(workload, candidate, binary, device, **_):
        done.append((workload, candidate.backend, candidate.kernel))
        if candidate.kernel == "broken":
            raise CompileFailed("an error", "a kernel")
        return Measurement(kernel_us=10.0 + len(done), samples=1)

    monkeypatch.setattr("convoy.measure.protocol.measure", measure)
    return done


def costs(backends, measured, budget, recorded=None):
    recorded = Unrecorded() if recorded is None else recorded
    return MeasuredCost(
        backends, Device(), recorded, budget=budget, clock=lambda: SECONDS * len(measured)
    )


def test_every_workload_comes_first_and_then_what_is_far_from_the_least(measured):
    backends = [Listed("a"), Listed("b")]
    price_workloads([SMALL, LARGE], backends, Device(), costs(backends, measured, 6.0))
    first = [(LARGE, "a", "k0"), (SMALL, "a", "k0")]
    assert measured[:2] == first and len(measured) == 6
    assert measured[2] == (SMALL, "b", "k0"), "12 us, where its bytes and arithmetic take 2"


class Estimated(Unrecorded):
    """Estimates one workload, kernel k3 of backend b as the fastest."""

    workload = SMALL

    def estimates(self, workload, candidates):
        if workload != self.workload:
            return [None] * len(candidates)
        return [Measurement(kernel_us=2.0 if c.key == "b:k3" else 5.0) for c in candidates]


def test_of_estimated_candidates_the_most_promising_comes_first(measured):
    backends = [Listed("a"), Listed("b")]
    model = costs(backends, measured, 3.0, Estimated())
    found = price_workloads([SMALL, LARGE], backends, Device(), model)
    assert measured[0] == (LARGE, "a", "k0"), "nothing is known of it"
    assert [(b, k) for workload, b, k in measured if workload == SMALL][:1] in ([], [("b", "k3")])
    assert len(measured) == 3
    measured.clear()
    found = price_workloads(
        [SMALL], backends, Device(), costs(backends, measured, 1.0, Estimated())
    )
    assert measured == [(SMALL, "b", "k3")]
    assert len(found[SMALL].unmeasured) == 9, "an estimate is no measurement"


def test_a_slow_kernel_is_a_word_about_its_kind(measured, monkeypatch):
    """cuDNN rearranges tensors around an engine, whatever its knobs; estimates did not know."""

    class Optimistic(Estimated):
        def estimates(self, workload, candidates):
            return [Measurement(kernel_us=2.0 if c.backend == "a" else 5.0) for c in candidates]

    class OneEngine(Listed):
        def propose(self, workload, device):
            return [Candidate(self.name, f"eng41_k2={i}", priority=i) for i in range(5)]

    def measure(workload, candidate, binary, device, **_):
        measured.append((candidate.backend, candidate.kernel))
        return Measurement(kernel_us=80.0 if candidate.backend == "a" else 6.0, samples=1)

    monkeypatch.setattr("convoy.measure.protocol.measure", measure)
    backends = [OneEngine("a"), Listed("b")]
    model = costs(backends, measured, 2.0, Optimistic())
    price_workloads([SMALL], backends, Device(), model)
    assert [backend for backend, _ in measured] == ["a", "b"]


def test_where_the_best_estimate_does_not_build_the_next_one_is_measured(measured):
    class Refusing(Listed):
        def build(self, workload, candidate, device):
            raise CompileFailed("this engine", "another one")

    backends = [Listed("a"), Refusing("b")]
    model = costs(backends, measured, 0.0, Estimated())
    found = price_workloads([SMALL], backends, Device(), model, operations=[[SMALL]])[SMALL]
    assert measured == [(SMALL, "a", "k0")]
    assert [offer.candidate.key for offer in found.failed] == ["b:k3"]


def test_an_operation_that_occurs_often_counts_as_often(measured):
    class Both(Estimated):
        def estimates(self, workload, candidates):
            us = 5.0 if workload == SMALL else 10.0
            return [Measurement(kernel_us=us) for _ in candidates]

    backends = [Listed("a")]
    for times, first in ((1, LARGE), (9, SMALL)):
        measured.clear()
        model = costs(backends, measured, 1.0, Both())
        operations = [[SMALL]] * times + [[LARGE]]
        price_workloads([SMALL, LARGE], backends, Device(), model, operations=operations)
        assert measured[0][0] == first


def test_measuring_ends_where_nothing_is_to_be_gained(measured):
    class Slow(Estimated):
        def estimates(self, workload, candidates):
            return [Measurement(kernel_us=5.0 if c.kernel == "k0" else 500.0) for c in candidates]

    backends = [Listed("a")]
    price_workloads([SMALL], backends, Device(), costs(backends, measured, 100.0, Slow()))
    assert len(measured) < 5


@pytest.mark.parametrize("recorded", [None, Estimated()])
def test_one_candidate_of_each_workload_is_measured_without_a_budget(measured, recorded):
    """An estimate of an engine that rearranges tensors may be wrong by ten times."""
    backends = [Listed("a")]
    model = costs(backends, measured, 0.0, recorded)
    found = price_workloads([SMALL, LARGE], backends, Device(), model)
    assert sorted(measured, key=str) == [(SMALL, "a", "k0"), (LARGE, "a", "k0")]
    assert [len(offers.measured) for offers in found.values()] == [1, 1]
    assert [len(offers.unmeasured) for offers in found.values()] == [4, 4]


def test_a_slow_first_guess_is_not_the_last_word(measured, monkeypatch):
    """cuDNN may run a depthwise convolution by one block; the kernels for it come behind."""

    def measure(workload, candidate, binary, device, **_):
        measured.append((workload, candidate.backend, candidate.kernel))
        slow = workload == SMALL and candidate.backend == "a"
        return Measurement(kernel_us=80.0 if slow else 4.0, samples=1)

    monkeypatch.setattr("convoy.measure.protocol.measure", measure)
    backends = [Listed("a"), Listed("b"), Listed("c")]
    price_workloads([SMALL, LARGE], backends, Device(), costs(backends, measured, 0.0))
    assert measured == [(LARGE, "a", "k0"), (SMALL, "a", "k0"), (SMALL, "b", "k0")]


def test_where_the_first_guess_fails_the_next_one_is_measured(measured):
    class Broken(Listed):
        def propose(self, workload, device):
            return [Candidate(self.name, "broken"), Candidate(self.name, "k1", priority=1)]

    backends = [Broken("a")]
    found = price_workloads([SMALL], backends, Device(), costs(backends, measured, 0.0))
    assert [kernel for _, _, kernel in measured] == ["broken", "k1"]
    assert len(found[SMALL].measured) == len(found[SMALL].failed) == 1


def test_recorded_backends_are_neither_asked_nor_measured(measured):
    class Known(Unrecorded):
        def candidates(self, workload):
            return [Candidate("a", "k3")] if workload == LARGE else []

        def measurements(self, workload, candidates):
            known = [c.key for c in self.candidates(workload)]
            return [Measurement(kernel_us=99.0) if c.key in known else None for c in candidates]

    backends = [Listed("a"), Listed("b")]
    model = costs(backends, measured, 100.0, Known())
    found = price_workloads([LARGE], backends, Device(), model)
    assert {backend for _, backend, _ in measured} == {"b"}
    assert [o.candidate.kernel for o in found[LARGE].measured if o.candidate.backend == "a"] == [
        "k3"
    ]


def test_others_are_measured_while_one_is_built(measured, monkeypatch):
    """cuDNN compiles plans of some engines for a second."""
    monkeypatch.setattr("convoy.cost.builds_ahead.PATIENCE_S", 0.0)
    others = threading.Event()

    class Slow(Listed):
        def prepare(self, jobs, device):
            if any(workload == LARGE for workload, _ in jobs):
                assert others.wait(60.0)
            return {}

    def measure(workload, candidate, binary, device, **_):
        measured.append(workload)
        others.set()
        return Measurement(kernel_us=10.0, samples=1)

    monkeypatch.setattr("convoy.measure.protocol.measure", measure)
    price_workloads([LARGE, SMALL], [Slow("a")], Device(), costs([Slow("a")], measured, 6.0))
    assert measured[0] == SMALL and LARGE in measured


def test_everything_is_measured_where_there_is_no_budget(measured):
    backends = [Listed("a"), Listed("b")]
    price_workloads([SMALL, LARGE], backends, Device(), costs(backends, measured, None))
    assert len(measured) == 20


def test_only_compiled_kernels_count_by_default(measured):
    backends = [Listed("a", ["k2"]), Listed("b", [])]
    found = price_workloads([SMALL], backends, Device(), costs(backends, measured, None), True)
    assert measured == [(SMALL, "a", "k2")]
    assert [d.backend for d in found[SMALL].declines] == ["b"]
    assert 'kernels="all"' in found[SMALL].declines[0].remedy


def offers_by_epilogue(backends, measured):
    """What a convolution with SiLU is offered where only compiled kernels count."""
    net = Net((1, 8, 8, 8))
    mod = normalize(net.finish(net.emit(op.nn.silu(net.conv(net.x, 8, 3)))))
    graph = partition(mod, backends, Device())
    found = price([graph], backends, Device(), costs(backends, measured, None), compiled=True)
    return {workload.epilogue.name or "none": offers for workload, offers in found.items()}


def test_kernels_are_compiled_for_what_nothing_else_takes(measured):
    class Declining(Listed):
        def accepts(self, workload, device):
            return Decline(self.name, "never")

    backends = [Listed("a", []), Declining("b")]
    found = offers_by_epilogue(backends, measured)
    assert len(measured) == 5 and backends[0].prepared
    assert len(found["silu"].measured) == 5, "the longest subgraph alone"


def test_an_alternative_that_is_compiled_already_spares_the_compiler(measured):
    class Fused(Listed):
        """Takes the fused alternative alone."""

        def accepts(self, workload, device):
            fused = workload.epilogue.activation == "silu"
            return None if fused else Decline(self.name, "nothing is fused")

    class Bare(Listed):
        def accepts(self, workload, device):
            fused = workload.epilogue.activation == "silu"
            return Decline(self.name, "something is fused") if fused else None

    backends = [Fused("a", []), Bare("b", ["k0"])]
    found = offers_by_epilogue(backends, measured)
    assert not found["silu"].measured and not backends[0].prepared
    assert [offer.candidate.kernel for offer in found["none"].measured] == ["k0"]
    backends[1].compiled = []
    found = offers_by_epilogue(backends, measured)
    assert len(found["silu"].measured) == 5, "now nothing else takes the operation"


def test_less_is_fused_where_that_spares_the_compiler(measured):
    """By a backend that takes both and has compiled one."""

    class Both(Listed):
        def propose(self, workload, device):
            return [Candidate(self.name, workload.epilogue.name or "none")]

    backends = [Both("a", ["none"])]
    found = offers_by_epilogue(backends, measured)
    assert backends[0].prepared == ["none"]
    assert [kernel for _, _, kernel in measured] == ["none"]
    assert not found["silu"].measured


class Chained(Listed):
    """Kernels that are launched programmatically."""

    def is_programmatic(self, candidate, device):
        return True


class Plain(Unrecorded):
    """Records of kernels alone, none as a link of a chain: of SMALL k1 is the best kernel of ``a``,
    of LARGE ``a`` is much slower than the other backend."""

    TIMES = {("small", "a"): 4.0, ("small", "b"): 4.0, ("large", "a"): 9.0, ("large", "b"): 5.0}

    def measurements(self, workload, candidates):
        size = "small" if workload == SMALL else "large"
        return [
            Measurement(self.TIMES[size, c.backend] + (c.kernel != "k1"), samples=1)
            for c in candidates
        ]


@pytest.mark.parametrize(
    ("budget", "again"), [(5.0, [(SMALL, "a", "k1")]), (0.0, []), (None, [(SMALL, "a", "k1")])]
)
def test_a_link_that_should_be_faster_is_measured_again(measured, budget, again):
    """As a link k1 is estimated to take 3.24 us, where the best known kernel takes 4."""
    backends = [Chained("a"), Listed("b")]
    price_workloads([SMALL, LARGE], backends, Device(), costs(backends, measured, budget, Plain()))
    assert measured == again


def test_a_recorded_kernel_is_measured_as_a_link_where_that_promises_most(measured):
    class Programmatic(Listed):
        def is_programmatic(self, candidate, device):
            return True

    class Plain(Unrecorded):
        """Kernels of SMALL without times as links; of LARGE one backend is estimated."""

        def measurements(self, workload, candidates):
            known = Measurement(kernel_us=9.0, samples=1)
            return [known if workload == SMALL or c.backend == "b" else None for c in candidates]

        def estimates(self, workload, candidates):
            near = {"k0": 8.0, "k1": 8.4}
            return [Measurement(kernel_us=near.get(c.kernel, 400.0)) for c in candidates]

    backends = [Programmatic("a"), Listed("b")]
    for times, first in ((1, LARGE), (9, SMALL)):
        measured.clear()
        model = costs(backends, measured, 1.0, Plain())
        operations = [[SMALL]] * times + [[LARGE]]
        price_workloads([SMALL, LARGE], backends, Device(), model, operations=operations)
        assert measured == [(first, "a", "k0")]
