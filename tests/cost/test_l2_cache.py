"""Times inside a network, between a warm and a cold L2 l2_cache."""

from __future__ import annotations

import dataclasses

import pytest
import tvm
from tvm import relax

from convoy.cost import l2_cache
from convoy.ir.candidate import Candidate
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.expansion import Expansion
from convoy.ir.measurement import Measurement
from convoy.ir.objective import device_us
from convoy.ir.offer import Offer, Offers
from convoy.ir.operands import operand_bytes, weight_bytes
from convoy.ir.workload import Workload
from convoy.normalize.forms import normal_forms

from ..helpers.placer import Placer
from ..helpers.random_cost import RandomCost

SMALL = Workload("fprop", 1, 14, 14, 256, 256, 3, 3, padding=(1, 1, 1, 1))


def options(workload: Workload, **cold: float | None) -> Offers:
    """One candidate of 4 us for each name, with its time with a cold l2_cache."""
    scored = [
        Offer(Candidate("cudnn", name), Measurement(kernel_us=4.0, cold_us=us))
        for name, us in cold.items()
    ]
    return Offers(workload, scored)


def added_of(found: Offers) -> dict[str, float]:
    """What each kernel of 4 us takes longer in its network."""
    return {s.candidate.kernel: device_us(s.measurement) - 4.0 for s in found.measured}


def share(workload: Workload) -> float:
    """The share of a cold cache's additional time that a network adds."""
    weights = weight_bytes(workload) / operand_bytes(workload)
    return l2_cache.NO_WEIGHTS * (1 - weights) + l2_cache.ONLY_WEIGHTS * weights


def test_what_lacks_a_cold_figure_gets_what_its_rivals_take_longer() -> None:
    given = {SMALL: options(SMALL, a=5.0, b=None, c=4.6, d=4.7)}
    own = share(SMALL)
    assert added_of(l2_cache.in_network(given)[SMALL]) == pytest.approx(
        {"a": own, "b": 0.7 * own, "c": 0.6 * own, "d": 0.7 * own}
    )
    assert added_of(given[SMALL])["b"] == 0.0, "what was given stays as it is"


def test_without_rivals_that_have_one_other_workloads_tell() -> None:
    other = dataclasses.replace(SMALL, k=512)
    found = l2_cache.in_network(
        {SMALL: options(SMALL, a=None), other: options(other, a=4.5, b=5.5)}
    )
    assert added_of(found[SMALL]) == {"a": pytest.approx(share(SMALL))}
    assert added_of(l2_cache.in_network({SMALL: options(SMALL, a=None)})[SMALL]) == {"a": 0.0}


def test_results_of_other_kernels_are_in_the_cache_and_weights_are_not() -> None:
    deep = dataclasses.replace(SMALL, h=2, w=2, c=2048, k=2048)
    wide = dataclasses.replace(SMALL, n=64, h=56, w=56, c=64, k=64)
    found = l2_cache.in_network({w: options(w, a=5.0) for w in (deep, wide)})
    assert added_of(found[deep])["a"] == pytest.approx(l2_cache.ONLY_WEIGHTS, rel=0.01)
    assert added_of(found[wide])["a"] == pytest.approx(l2_cache.NO_WEIGHTS, rel=0.02)


def test_where_data_stay_in_the_cache_kernels_are_as_quick_as_alone() -> None:
    given = {SMALL: options(SMALL, a=5.0, b=None)}
    assert added_of(l2_cache.in_network(given, staying=True)[SMALL]) == {"a": 0.0, "b": 0.0}


def test_a_library_that_does_much_for_a_launch_takes_longer_after_others() -> None:
    measured = Measurement(kernel_us=4.0, enqueue_us=6.0, e2e_us=14.0)
    pairs = [(Candidate(name, "k"), measured) for name in ("slow", "quick")]
    pairs.append((Candidate("slow", "unknown"), Measurement(kernel_us=4.0)))
    given = {SMALL: Offers(SMALL, [Offer(*pair) for pair in pairs])}
    found = l2_cache.in_network(given, after_others_us={"slow": (2.5, 5.0)})[SMALL].measured
    assert [(s.measurement.enqueue_us, s.measurement.e2e_us) for s in found] == [
        (8.5, 19.0), (6.0, 14.0), (None, None),
    ]  # fmt: skip
    assert all(s.measurement.kernel_us == 4.0 for s in found)


def test_touched_are_all_weights_and_the_largest_step() -> None:
    tail = Workload("matmul", 1, 1, 1, 64, 10, 1, 1)
    weights = 2 * (256 * 256 * 9 + 640)
    assert l2_cache.touched_bytes([SMALL, tail]) == weights + 2 * (2 * 14 * 14 * 256)
    summed = dataclasses.replace(SMALL, epilogue=Epilogue(residual=True))
    assert l2_cache.touched_bytes([summed]) == 2 * (256 * 256 * 9 + 3 * 14 * 14 * 256)
    limit = Device().l2_bytes * l2_cache.STAYING
    many = int(limit // (2 * 256 * 256 * 9))
    assert l2_cache.stays(l2_cache.touched_bytes([SMALL] * (many - 1)), Device())
    assert not l2_cache.stays(l2_cache.touched_bytes([SMALL] * (many + 1)), Device())


def network(channels: int, layers: int) -> tvm.IRModule:
    x = relax.Var("x", relax.TensorType((1, channels, 7, 7), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            y: relax.Expr = x
            for i in range(layers):
                weights = tvm.runtime.empty((channels, channels, 3, 3), "float32")
                weights.copyfrom(weights.numpy() * 0 + i)
                y = builder.emit(relax.op.nn.conv2d(y, relax.const(weights), padding=1))
            out = builder.emit_output(y)
        builder.emit_func_output(out)
    return builder.get()


class WithCold(RandomCost):
    """A microsecond more with a cold l2_cache."""

    def measurements(self, workload, candidates):  # type: ignore[no-untyped-def]
        found = super().measurements(workload, candidates)
        return [dataclasses.replace(f, cold_us=f.kernel_us + 1.0) for f in found]


@pytest.mark.parametrize(("layers", "stays"), [(1, True), (6, False)])
def test_a_placer_knows_whether_its_network_stays(layers: int, stays: bool) -> None:
    """A layer has 4.7 MB of weights in float16."""
    from convoy.backends.kernels.cutlass.family import cutlass_backend

    forms = list(normal_forms(network(512, layers), None, "float16"))
    placed = Placer(forms, [cutlass_backend()], Device(), WithCold()).place("graph")
    for choice in placed.plan.choices:
        measured = choice.chosen.measurement
        longer = 0.0 if stays else share(choice.workload)
        assert device_us(measured) - measured.kernel_us == pytest.approx(longer)


@pytest.mark.parametrize("staying", [False, True])
def test_depthwise_convolutions_take_longer_behind_other_kernels(staying: bool) -> None:
    """By themselves and behind a 1x1; not those of more channels in a group."""
    depthwise = dataclasses.replace(SMALL, c=96, k=96, groups=96)
    joint = dataclasses.replace(depthwise, op="expand_depthwise", expansion=Expansion(16))
    grouped = dataclasses.replace(depthwise, groups=12)
    measured = Measurement(kernel_us=4.0, cold_us=4.0, chained_us=3.0, enqueue_us=2.0)
    workloads = (depthwise, joint, grouped)
    given = {w: Offers(w, [Offer(Candidate("hopper", "k"), measured)]) for w in workloads}
    found = {w: o.measured[0].measurement for w, o in l2_cache.in_network(given, staying).items()}
    assert found[grouped] == measured
    more = l2_cache.DEPTHWISE_US
    longer = Measurement(
        kernel_us=4.0 + more, cold_us=4.0 + more, chained_us=3.0 + more, enqueue_us=2.0
    )
    assert found[depthwise] == found[joint] == longer
