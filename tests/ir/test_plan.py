"""Plans that were saved by earlier versions still load."""

from __future__ import annotations

import json
from pathlib import Path

from convoy.ir.plan import Plan

SAVED = Path(__file__).with_name("plan_format_1.json")


def test_a_plan_of_format_1_loads_and_is_saved_as_it_was() -> None:
    text = SAVED.read_text(encoding="utf-8")
    plan = Plan.loads(text)
    now, then = json.loads(plan.dumps()), json.loads(text)
    device = then.pop("device")
    assert device.items() <= now.pop("device").items(), "fields may be added, with defaults"
    assert now == then
    assert plan.objective == "stream" and plan.device.name == "NVIDIA H200"
    saved = json.loads(text)["choices"]
    assert [choice.subgraph for choice in plan.choices] == [choice["region"] for choice in saved]
    assert all(choice.chosen.measurement.ok for choice in plan.choices)
    assert plan.choices[0].declines and plan.choices[0].near
