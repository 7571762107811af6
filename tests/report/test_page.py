"""The page in a browser: rows are drawn, nothing overlaps, no error is on the console."""

from __future__ import annotations

import random
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report_examples import plan, schedule

from convoy.ir.schedule import Schedule
from convoy.ir.schedule_parts import Buffer, Occupancy, Op
from convoy.report import html, timeline
from convoy.streams import planner

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
WINDOWS = {"wide": (1440, 1000), "narrow": (480, 900)}

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no browser: apt-get install chromium chromium-driver"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="no selenium")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    # Containers have no user namespaces for the sandbox and little shared memory.
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture(params=WINDOWS)
def window(request: pytest.FixtureRequest, browser: Any) -> str:
    """Sets the page's own width; a window of a headless browser cannot be made as narrow."""
    width, height = WINDOWS[request.param]
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
    )
    return str(request.param)


def branching() -> Schedule:
    """Fork and join over and over, with random durations, scheduled by the simulator."""
    rng = random.Random(7)
    ops: list[Op] = []
    buffers: list[Buffer] = []

    def add(*inputs: int) -> int:
        number = len(ops)
        name = f"kernel_{number}"
        small = Occupancy(blocks=13, threads=128, waves=0.1)
        us = rng.uniform(5, 9)
        ops.append(Op(name, name, "native", us, small, depends=tuple(sorted(inputs))))
        buffers.append(Buffer(name, 0, rng.randrange(1 << 10, 1 << 16), (number,)))
        for i in inputs:
            old = buffers[i]
            buffers[i] = Buffer(old.name, 0, old.size, old.writers, (*old.readers, number))
        return number

    end = add()
    for _ in range(5):
        ends = []
        for _ in range(4):
            at = end
            for _ in range(rng.randrange(1, 4)):
                at = add(at)
            ends.append(at)
        end = add(*ends)
    return planner.multi_stream(ops, buffers)


def opened(browser: Any, folder: Path, report: html.Report) -> None:
    path = folder / "report.html"
    html.write(path, report)
    browser.get(path.as_uri())


def boxes(browser: Any, selector: str) -> list[dict[str, Any]]:
    """Place on the screen, data and colour of every element; of those with a rectangle its place,
    since what is clipped off a text counts for the place of the whole."""
    return browser.execute_script(
        """return [...document.querySelectorAll(arguments[0])].map((element) => {
             const rect = element.querySelector(":scope > rect");
             const box = (rect || element).getBoundingClientRect();
             return {x: box.x, y: box.y, width: box.width, height: box.height,
                     stream: element.dataset.stream || element.parentElement.dataset.stream,
                     fill: rect && getComputedStyle(rect).fill, tip: element.dataset.tip};
           });""",
        selector,
    )


def overlap(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether two boxes share more than an edge."""
    across = min(a["x"] + a["width"], b["x"] + b["width"]) - max(a["x"], b["x"])
    down = min(a["y"] + a["height"], b["y"] + b["height"]) - max(a["y"], b["y"])
    return bool(across > 0.6 and down > 0.6)


def check_page(browser: Any) -> None:
    """No console message, nothing fetched, nothing wider than the window."""
    assert browser.get_log("browser") == []
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    over = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert browser.execute_script(over) <= 0


def test_rows_are_drawn_to_scale(browser: Any, window: str, tmp_path: Path) -> None:
    times = [(0.5, 1.0), (2.0, 5.0), (2.0, 3.0), (7.5, 1.5)]
    measured = timeline.observed(schedule(), times, 9.0, "by a clock", plan())
    opened(browser, tmp_path, html.Report("net", plan(), schedule(), measured))
    check_page(browser)
    for title, line in (
        ("predicted", timeline.predicted(schedule(), plan())),
        ("measured", measured),
    ):
        drawn = boxes(browser, f"svg[data-timeline={title}] g.row .span")
        (whole,) = boxes(browser, f"svg[data-timeline={title}]")
        by_tip = {box["tip"]: box for box in drawn}
        assert len(by_tip) == len(line.spans) == 4
        for span in line.spans:
            (box,) = (b for tip, b in by_tip.items() if tip.startswith(f"{span.label} "))
            scale = whole["width"] / 9.0
            assert box["x"] - whole["x"] == pytest.approx(span.start_us * scale, abs=1)
            assert box["width"] == pytest.approx(span.duration_us * scale, abs=1)
            assert box["height"] >= 20 and box["stream"] == str(span.stream)


def test_streams_have_rows_and_colours_of_their_own(
    browser: Any, window: str, tmp_path: Path
) -> None:
    made = branching()
    assert made.streams > 1
    opened(browser, tmp_path, html.Report("branches", plan(), made))
    check_page(browser)
    rows = defaultdict(list)
    for box in boxes(browser, "svg.timeline g.row .span"):
        rows[box["stream"]].append(box)
    assert sorted(rows) == [str(i) for i in range(made.streams)]
    assert len({box["y"] for found in rows.values() for box in found}) == made.streams
    for found in rows.values():
        assert not any(overlap(a, b) for i, a in enumerate(found) for b in found[:i])
    nodes = boxes(browser, ".graph .node")
    assert len(nodes) == len(made.ops)
    colours = defaultdict(set)
    for node in nodes:
        colours[node["stream"]].add(node["fill"])
    assert all(len(found) == 1 for found in colours.values())
    assert len(set.union(*colours.values())) == made.streams
    assert not any(overlap(a, b) for i, a in enumerate(nodes) for b in nodes[:i])


def test_memory_is_drawn_without_two_buffers_in_one_place(
    browser: Any, window: str, tmp_path: Path
) -> None:
    made = branching()
    opened(browser, tmp_path, html.Report("branches", plan(), made))
    drawn = boxes(browser, "svg.memory .buffer")
    assert len(drawn) == len(made.memory.buffers)
    assert not any(overlap(a, b) for i, a in enumerate(drawn) for b in drawn[:i])
    check_page(browser)


def test_controls_work(browser: Any, window: str, tmp_path: Path) -> None:
    opened(browser, tmp_path, html.Report("net", plan(), schedule()))
    find = browser.find_element
    (before,) = boxes(browser, "svg.timeline")
    find("css selector", "[data-zoom=in]").click()
    (after,) = boxes(browser, "svg.timeline")
    assert after["width"] > 1.5 * before["width"]
    find("css selector", "[data-zoom=fit]").click()
    assert boxes(browser, "svg.timeline")[0]["width"] == before["width"]
    field = find("id", "filter")
    field.send_keys("3x3")
    rows = browser.find_elements("css selector", "details")
    assert [row.is_displayed() for row in rows] == [True, False]
    field.clear()
    field.send_keys(" ")
    find("css selector", "[data-open]").click()
    assert "hopper declined" in find("css selector", "[data-op='2']").text
    check_page(browser)
    browser.execute_script("document.querySelector('.span').focus()")
    assert "stream 0" in find("id", "tip").text
    check_page(browser)
