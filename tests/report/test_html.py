"""The page as text: whole, self-contained, and safe against what is in names."""

from __future__ import annotations

import dataclasses
import html.parser
import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_examples import plan, schedule

from convoy.ir.plan import Plan
from convoy.placement.explanation import Fusion, Otherwise
from convoy.report import graph_view, timeline
from convoy.report.charts import time_ticks
from convoy.report.html import Report, render
from convoy.report.operations import MOST_RIVALS, operations, plan_explanation
from convoy.report.units import size

VOID = {"meta", "link", "input", "br", "line", "rect", "path", "i"}


class Tags(html.parser.HTMLParser):
    """Checks that tags are closed in order, and collects them."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def parsed(page: str) -> Tags:
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    return tags


def report(**changes: object) -> Report:
    return dataclasses.replace(Report("net", plan(), schedule()), **changes)  # type: ignore[arg-type]


def test_page_has_a_row_for_each_stream_and_a_bar_for_each_op() -> None:
    tags = parsed(render(report())).seen
    rows = [a["data-stream"] for tag, a in tags if tag == "g" and "data-stream" in a]
    assert rows == ["0", "1"]
    assert sum(a.get("class") == "span" for _, a in tags) == 4
    assert sum(a.get("class") == "node" for _, a in tags) == 4
    assert sum(a.get("class") == "buffer" for _, a in tags) == 3
    assert sum(a.get("class") == "across" for _, a in tags) == 2


def test_page_with_a_measured_run_has_both_timelines() -> None:
    times = [(0.5, 1.0), (2.0, 5.0), (2.0, 3.0), (7.0, 1.0)]
    measured = timeline.observed(schedule(), times, 9.0, "by a clock", plan())
    page = render(report(measured=measured))
    found = [a["data-timeline"] for _, a in parsed(page).seen if "data-timeline" in a]
    assert found == ["predicted", "measured"]
    assert "by a clock" in page
    assert "Not run on a GPU" not in page and "Not run on a GPU" in render(report())


def test_page_fetches_nothing() -> None:
    page = render(report())
    for tag, attributes in parsed(page).seen:
        for name in ("src", "href", "action"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:")), (tag, value)
    assert not re.search(r"@import|url\((?!data:)|fetch\(|XMLHttpRequest", page)


def test_names_are_text_and_never_markup() -> None:
    page = render(report(name='</title><script>alert("x")</script>', native=("a <b> & c",)))
    assert "<script>alert" not in page and "<script>stem" not in page
    assert "a &lt;b&gt; &amp; c" in page


def test_page_of_a_plan_without_figures_says_so() -> None:
    from convoy.ir.measurement import Measurement

    def bare(choice):  # type: ignore[no-untyped-def]
        chosen = dataclasses.replace(choice.chosen, measurement=Measurement())
        return dataclasses.replace(choice, chosen=chosen, runner_up=None, best_by_backend=(chosen,))

    known = plan()
    unknown = dataclasses.replace(known, choices=tuple(map(bare, known.choices)), source="none")
    page = render(Report("net", unknown))
    parsed(page)
    assert "no time to draw" in page and "own order decided" in page


def test_page_of_an_empty_plan_is_a_page() -> None:
    empty = Plan("graph", plan().device, (), "none")
    parsed(render(Report("nothing offloaded", empty)))


def test_operations_say_what_lost_and_what_would_change() -> None:
    first, second = operations(plan_explanation(plan()))
    assert (first.why.winner.backend, first.why.winner.kernel) == ("cudnn", "eng5_k2=1")
    assert first.rivals[0].margin == pytest.approx(1.25) and not first.rivals[0].tie
    assert first.why.elsewhere == (("sync", "cutlass:sm90_conv_64x64x64"),)
    assert second.why.declines[0].remedy == "Use cutlass."
    page = render(report())
    assert "hopper declined:" in page and "1.25x" in page and "Use cutlass." in page
    assert "under sync: <code>cutlass:sm90_conv_64x64x64</code>" in page


def test_other_objectives_are_summed_up() -> None:
    assert plan_explanation(plan()).otherwise == (
        Otherwise("stream", 0, 9.0, 9.0),
        Otherwise("sync", 1, 17.0, 20.0),
    )
    assert "17.6%" in render(report())


def test_many_rivals_are_cut_and_each_backend_keeps_its_best() -> None:
    why = operations(plan_explanation(plan()))[0].why
    (rival,) = why.losers
    near = [dataclasses.replace(rival, kernel=f"k{i}", margin=1.0 + i / 10) for i in range(20)]
    last = dataclasses.replace(rival, backend="mine", kernel="slow", margin=9.0)
    many = dataclasses.replace(why, losers=(*near, last))
    explanation = dataclasses.replace(plan_explanation(plan()), ops=(many,))
    (item,) = operations(explanation)
    assert [o.kernel for o in item.rivals] == [f"k{i}" for i in range(MOST_RIVALS)] + ["slow"]
    assert (item.hidden, item.worst) == (10, pytest.approx(2.9))
    page = render(report(explanation=explanation))
    assert "and 10 more, up to 2.90x" in page and "slow" in page


def test_fusions_and_failures_are_named() -> None:
    why = dataclasses.replace(
        operations(plan_explanation(plan()))[0].why,
        fusions=(
            Fusion("bias_relu", "cutlass:long", 6.5, 0.0),
            Fusion("", "cudnn:bare", 3.0, 2.25),
        ),
        failed=tuple((f"cutlass:bad{i}", "wrong result") for i in range(5)),
    )
    page = render(report(explanation=dataclasses.replace(plan_explanation(plan()), ops=(why,))))
    assert "Fusing bias_relu instead: 6.50 us" in page and "about 2.25 us left to TVM" in page
    assert "cutlass:bad0 failed:" in page and "and 2 more that failed" in page


@st.composite
def graphs(draw: st.DrawFn) -> list[list[int]]:
    size = draw(st.integers(1, 40))
    return [
        sorted(draw(st.sets(st.integers(0, i - 1), max_size=3))) if i else [] for i in range(size)
    ]


@given(graphs())
@settings(max_examples=60)
def test_graph_is_placed_without_overlap_and_downwards(depends: list[list[int]]) -> None:
    placed = graph_view.place(depends)
    for i, inputs in enumerate(depends):
        assert all(placed.y[j] < placed.y[i] for j in inputs)
    for row in set(placed.y):
        along = sorted(placed.x[i] for i in range(len(depends)) if placed.y[i] == row)
        assert all(b - a >= 1 - 1e-6 for a, b in itertools.pairwise(along))
    assert {(j, i) for j, i, _ in placed.edges} == {
        (j, i) for i, inputs in enumerate(depends) for j in inputs
    }
    assert all(0 <= x <= placed.width for x in placed.x)


def test_node_without_inputs_stands_above_its_reader() -> None:
    chain = [[], [0], [1], [], [2, 3], []]
    assert graph_view.layers(chain) == [0, 1, 2, 2, 3, 0]


def test_axes_are_round() -> None:
    assert [tick.label for tick in time_ticks(26000)][:3] == ["0 ms", "5 ms", "10 ms"]
    assert [tick.label for tick in time_ticks(124.2)][:3] == ["0 us", "20 us", "40 us"]
    assert time_ticks(124.2)[1].at == pytest.approx(16.103, abs=1e-3)
    assert [size(n) for n in (512, 2048, 40 << 20)] == ["512 B", "2.0 KiB", "40.0 MiB"]
