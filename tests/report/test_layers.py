"""Where the time goes: layers by time, predicted and measured told apart."""

from __future__ import annotations

import dataclasses
import re

import pytest
from report_examples import plan, schedule

from convoy.ir.plan import Plan
from convoy.report import html, layers, timeline


def named() -> Plan:
    """The example's plan with names from the model."""
    found = plan()
    names = ("body.0.conv", "head")
    choices = [
        dataclasses.replace(choice, layer=name)
        for choice, name in zip(found.choices, names, strict=True)
    ]
    return dataclasses.replace(found, choices=tuple(choices))


MEASURED = [(0.5, 1.0), (2.0, 5.0), (2.0, 7.5), (10.0, 1.5)]


def test_predicted_layers_are_sorted_and_add_up() -> None:
    found = layers.of_timelines([timeline.predicted(schedule(), named())])
    assert [(x.name, x.backend, x.us) for x in found[:2]] == [
        ("body.0.conv", "cudnn", 4.0), ("head", "cutlass", 3.0)
    ]  # fmt: skip
    assert sum(x.share for x in found) == pytest.approx(1.0)
    assert not any(x.measured for x in found) and found[0].kernel == "engine 5, 1 knob"


def test_measured_times_lead_and_keep_the_predicted_ones() -> None:
    run = timeline.observed(schedule(), MEASURED, 11.5, "by a clock", named())
    first = layers.of_timelines([timeline.predicted(schedule(), named()), run])[0]
    assert (first.name, first.us, first.predicted_us, first.measured) == ("head", 7.5, 3.0, True)
    assert first.share == pytest.approx(7.5 / 15)


def test_page_opens_with_bars_by_layer() -> None:
    report = html.Report("net", named(), schedule())
    page = html.render(report)
    assert page.index('id="layers"') < page.index('id="timelines"')
    assert re.findall(r'data-layer="([^"]*)"', page)[:2] == ["body.0.conv", "head"]
    assert "predicted; the share" in page and 'class="guess" style' not in page
    run = timeline.observed(schedule(), MEASURED, 11.5, "by a clock", named())
    page = html.render(dataclasses.replace(report, measured=run))
    assert re.findall(r'data-layer="([^"]*)"', page)[0] == "head"
    assert "measured; the share" in page and page.count('class="guess" style') == 4


def test_page_of_a_deep_network_counts_what_it_leaves_out() -> None:
    ops = schedule().ops * 20
    page = html.render(html.Report("net", named(), dataclasses.replace(schedule(), ops=ops)))
    assert page.count("data-layer=") == html.MOST_LAYERS
    assert f"and {len(ops) - html.MOST_LAYERS} more, together" in page
