"""Times as links of a chain: which candidates have one, and what is estimated."""

from __future__ import annotations

import pytest

from convoy import programmatic
from convoy.backends import registry
from convoy.cost.chained import as_links, estimate_us
from convoy.ir.device import Device
from convoy.ir.measurement import Measurement
from convoy.ir.objective import best_case_us, device_us, own_cost, saved_us
from convoy.ir.offer import Offer, Offers
from convoy.ir.workload import Workload

WORKLOAD = Workload("fprop", 1, 14, 14, 256, 256, 3, 3, padding=(1, 1, 1, 1))
#: us alone and as a link, of a chain of 20 launches (docs/design/sm90-kernels.md).
CHAINS = (
    (4.01, 2.95), (4.56, 3.61), (4.84, 4.06), (3.11, 2.19),
    (4.19, 3.09), (4.90, 4.18), (5.15, 4.49), (4.45, 3.13),
)  # fmt: skip


def offers(*chained: float | None) -> dict[Workload, Offers]:
    """Offers of the first kernels of the native backend, all of which take 6 us alone."""
    candidates = registry.get("hopper").propose(WORKLOAD, Device())
    measured = [
        Offer(candidate, Measurement(6.0, cold_us=7.0, samples=1, chained_us=us))
        for candidate, us in zip(candidates, chained, strict=False)
    ]
    return {WORKLOAD: Offers(WORKLOAD, measured)}


def test_estimates_are_near_what_was_measured() -> None:
    for alone, link in CHAINS:
        assert estimate_us(alone) == pytest.approx(link, abs=0.35)
    assert estimate_us(100.0) == 99.0 and estimate_us(1.0) == pytest.approx(0.7)


@pytest.mark.parametrize(("wanted", "expected"), [("1", [4.5, 5.0]), ("0", [None, None])])
def test_kernels_that_start_early_have_a_time_as_links(
    monkeypatch: pytest.MonkeyPatch, wanted: str, expected: list[float | None]
) -> None:
    monkeypatch.setenv(programmatic.VARIABLE, wanted)
    backends = {"hopper": registry.get("hopper")}
    found = as_links(offers(4.5, None), backends, Device())[WORKLOAD].measured
    assert [offer.measurement.chained_us for offer in found] == expected


def test_kernels_of_a_library_have_none() -> None:
    other = Workload("dgrad", 8, 14, 14, 64, 64, 3, 3, padding=(1, 1, 1, 1))
    (candidate, *_) = registry.get("hopper").propose(other, Device())
    found = {other: Offers(other, [Offer(candidate, Measurement(6.0, samples=1, chained_us=1.0))])}
    (offer,) = as_links(found, {"hopper": registry.get("hopper")}, Device())[other].measured
    assert offer.measurement.chained_us is None and saved_us(offer.measurement) == 0.0


def test_a_link_reads_its_weights_ahead() -> None:
    link = Measurement(6.0, cold_us=7.0, chained_us=4.5)
    assert own_cost(link, "graph", linked=True)[0] == best_case_us(link) == 4.5
    assert own_cost(link, "graph", linked=False)[0] == device_us(link) > 6.0
    assert own_cost(link, "stream", linked=True) == own_cost(link, "stream")
    slower = Measurement(6.0, chained_us=6.5)
    assert own_cost(slower, "graph", linked=True)[0] == best_case_us(slower) == 6.0
