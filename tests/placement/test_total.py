"""The total of a placement counts what it lacks."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from convoy import relay
from convoy.ir.device import Device
from convoy.ir.measurement import Measurement
from convoy.ir.offer import Offer
from convoy.pipeline import place
from convoy.relay.convert import to_relax

TEXT = """#[version = "0.0.5"]
def @main(%data: Tensor[(3, 64, 20, 20), float32], %v: Tensor[(64, 64, 3, 3), float32],
          %w: Tensor[(72, 64, 1, 1), float32]) {
  %0 = nn.relu(nn.conv2d(%data, %v, padding=[1, 1, 1, 1], channels=64, kernel_size=[3, 3]));
  nn.conv2d(%0, %w, padding=[0, 0, 0, 0], channels=72, kernel_size=[1, 1])
}
"""


def test_unmeasured_operations_are_estimated_and_counted(tmp_path: Path) -> None:
    options = {
        "device": Device(),
        "records": tmp_path / "own.jsonl",
        "backends": ("cutlass", "tvm"),
    }
    mod = to_relax(relay.parse(TEXT))
    for precision in ("float16", "bfloat16"):
        placement = place(mod, precision=precision, **options)
        total = placement.total()
        assert (total.timed, total.estimated, total.untimed, total.native) == (2, 2, 0, 0)
        assert placement.plan.source == "predicted"
        assert total.us > 0 and total.complete and "2 kernels of 2 estimated" in str(total)
    nothing = place(mod, costs="recorded", **options)
    total = nothing.total()
    assert (total.timed, total.untimed, total.us) == (0, 2, 0.0)
    assert not total.complete and "without 2 of 2 kernels" in str(total)
    assert nothing.plan.untimed() == list(nothing.plan.choices)


def test_a_measured_choice_is_neither_estimated_nor_missing(tmp_path: Path) -> None:
    placed = place(
        to_relax(relay.parse(TEXT)), device=Device(), records=tmp_path / "own.jsonl",
        backends=("cutlass", "tvm"),
    )  # fmt: skip
    first, second = placed.plan.choices
    measured = Offer(first.chosen.candidate, Measurement(kernel_us=5.0, samples=20))
    plan = dataclasses.replace(
        placed.plan, choices=(dataclasses.replace(first, chosen=measured), second)
    )
    assert plan.estimated() == [second] and not plan.untimed()
