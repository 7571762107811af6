"""Tables: alignment, folding, markdown, and the choice between terminal and pipe."""

from __future__ import annotations

import io
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from convoy.placement import explain
from convoy.report import tables
from convoy.report.tables import Column


@dataclass(frozen=True)
class Part:
    us: float | None


@dataclass(frozen=True)
class Row:
    kernel: str
    part: Part = field(default_factory=lambda: Part(1.0))
    ok: bool = True


ROWS = [Row("sm90_128x128x64_fprop_relu", Part(3.14159)), Row("eng0", Part(None), ok=False)]
COLUMNS = [Column("kernel", "kernel"), Column("time", "part.us", "us", 3), Column("ok", "ok")]


def test_characters_as_wide_as_two_are_aligned() -> None:
    assert tables.plain(
        ["layer", "us"], [["卷积", 1.0], ["conv2d", 12.5]], width=0
    ).splitlines() == [
        "layer      us",
        "------  -----",
        "卷积     1.00",
        "conv2d  12.50",
    ]
    assert explain.ending("模型/卷积/conv", 9) == "…积/conv"


def test_plain_takes_attributes_and_aligns_numbers() -> None:
    assert tables.plain(COLUMNS, ROWS, width=0).splitlines() == [
        "kernel                      time [us]  ok",
        "--------------------------  ---------  ---",
        "sm90_128x128x64_fprop_relu      3.142  yes",
        "eng0                                -  no",
    ]


def test_sequences_and_functions() -> None:
    assert tables.plain(["op", "n"], [("fprop", 12), ("dgrad", 3)], width=0).splitlines() == [
        "op      n",
        "-----  --",
        "fprop  12",
        "dgrad   3",
    ]
    doubled = Column("twice", lambda row: 2 * row.part.us)
    assert tables.plain([doubled], ROWS[:1], width=0).endswith(" 6.28")


def test_folding_keeps_every_character() -> None:
    folded = tables.plain(COLUMNS, ROWS, width=30).splitlines()
    assert max(map(len, folded)) <= 30
    name = "".join(line[:15].split("  ")[0].strip() for line in folded[2:-1])
    assert name == ROWS[0].kernel


words = st.text(alphabet="abc_,: ", max_size=60)
rows_of_four = st.lists(st.tuples(words, st.floats(0, 1e6), words, st.integers(0, 9)), max_size=5)


@given(rows_of_four, st.integers(40, 120))
def test_any_table_fits_a_terminal_and_loses_nothing(rows: list[tuple], width: int) -> None:
    columns = ["first", "number", "second", "digit"]
    body = tables.plain(columns, rows, width)
    assert all(len(line) <= width for line in body.splitlines())
    flat = "".join(body.split())
    for row in rows:
        assert flat.count("a") >= (row[0] + row[2]).count("a")
        assert tables.text(row[1]) in body
    letters = sum((r[0] + r[2]).count("c") for r in rows)
    assert body.count("c") == letters + "".join(columns).count("c")


def test_a_cell_stays_on_its_line() -> None:
    body = tables.plain(["why"], [("not found:\n  libcudnn.so.9",)], width=0)
    assert body.splitlines()[2:] == ["not found: libcudnn.so.9"]


def test_empty_table_has_its_heading() -> None:
    assert tables.plain(["a", "b"], [], width=0).splitlines()[0] == "a  b"
    assert tables.markdown(["a", "b"], []).splitlines() == ["| a | b |", "| --- | --- |"]


def test_markdown_escapes_and_aligns() -> None:
    body = tables.markdown(["name", "speed"], [("a|b", "1.20x"), ("", "-")])
    assert body.splitlines() == [
        "| name | speed |",
        "| --- | ---: |",
        "| a\\|b | 1.20x |",
        "| - | - |",
    ]


def test_show_is_plain_into_a_pipe_and_literal_on_a_terminal() -> None:
    rows = [("[bold]not markup[/bold]", 1)]
    pipe = io.StringIO()
    tables.show(["text", "n"], rows, "title", Console(file=pipe, width=20))
    assert pipe.getvalue().splitlines()[0] == "title"
    assert "[bold]not markup[/bold]  1" in pipe.getvalue()
    screen = io.StringIO()
    tables.show(["text", "n"], rows, console=Console(file=screen, force_terminal=True, width=60))
    assert "[bold]not markup[/bold]" in screen.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_show_folds_to_a_width_wherever_it_prints(terminal: bool) -> None:
    file, cell = io.StringIO(), " ".join(f"word{i}" for i in range(30))
    console = Console(file=file, force_terminal=terminal, width=200, color_system=None)
    tables.show(["what", "detail"], [("kernels", cell)], console=console, width=40)
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= 40 < len(cell)
    assert all(word in " ".join(lines).split() for word in cell.split())
