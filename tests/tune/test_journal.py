"""The journal keeps the state in which a run began, and nothing else, when it is killed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.tune import fakes

from convoy.errors import CacheUnwritable
from convoy.tune.journal import MOST_RUNS, Journal

ONE, TWO = fakes.workload(1), fakes.workload(2)


def test_a_run_that_was_cut_short_goes_on_with_what_it_knew(tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    assert Journal(records, ["run"]).begin([ONE]) == {ONE.key}
    again = Journal(records, ["run"])
    assert again.begin([ONE, TWO]) == {ONE.key}  # TWO is the run's own doing
    again.end()
    assert not again.path.exists()
    assert Journal(records, ["run"]).begin([ONE, TWO]) == {ONE.key, TWO.key}


def test_another_run_begins_anew(tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    Journal(records, ["run", 16]).begin([ONE])
    assert Journal(records, ["run", 32]).begin([TWO]) == {TWO.key}


def test_what_an_ended_run_left_as_it_is_stays_so(tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    run = Journal(records, ["run"])
    assert run.begin([], {ONE.key: 0, TWO.key: 0}) == set()
    run.end({ONE.key: 5, TWO.key: 16})
    other = Journal(records, ["another run"])
    assert other.begin([], {ONE.key: 5}) == set()
    other.end({ONE.key: 9})
    # Records of TWO were taken away since.
    assert Journal(records, ["run"]).begin([], {ONE.key: 5, TWO.key: 15}) == {ONE.key}


def test_a_run_whose_time_was_up_has_not_ended(tmp_path: Path) -> None:
    run = Journal(tmp_path / "records.jsonl", ["run"])
    run.begin([])
    run.end()
    assert not run.ended.exists()
    assert run.begin([], {ONE.key: 5}) == set()


def test_only_so_many_runs_are_remembered(tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    for i in range(MOST_RUNS + 1):
        Journal(records, i).end({ONE.key: 1})
    assert Journal(records, 0).begin([], {ONE.key: 1}) == set()
    Journal(records, 0).end()
    assert Journal(records, 1).begin([], {ONE.key: 1}) == {ONE.key}


@pytest.mark.parametrize("content", ["", "{", "[]", '{"fingerprint": 1}'])
def test_a_damaged_journal_counts_as_none(tmp_path: Path, content: str) -> None:
    journal = Journal(tmp_path / "records.jsonl", ["run"])
    journal.path.write_text(content)
    journal.ended.write_text(content)
    assert journal.begin([ONE], {ONE.key: 3, TWO.key: 3}) == {ONE.key}


def test_nowhere_to_write(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CacheUnwritable):
        Journal(tmp_path / "file" / "records.jsonl", ["run"]).begin([])


@pytest.mark.parametrize("value", [1, "x", None, [1], [[1]], {"k": "x"}, {"k": [1]}, [None, {}]])
def test_a_journal_of_other_types_is_none(tmp_path: Path, value: object) -> None:
    records = tmp_path / "records.jsonl"
    run = Journal(records, ["run"])
    run.begin([ONE])
    content = json.loads(run.path.read_text())
    for damaged in ({**content, "complete": value}, value):
        run.path.write_text(json.dumps(damaged))
        assert run.begin([TWO]) == {TWO.key}
    run.end({ONE.key: 1})
    (fingerprint,) = json.loads(run.ended.read_text())
    for damaged in ({fingerprint: value}, value):
        run.ended.write_text(json.dumps(damaged))
        assert run.begin([], {ONE.key: 1}) == set()
        run.path.unlink()
    run.end({ONE.key: 1})


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 100_000, '{"a":' + "1" * 5000 + "}"])
def test_a_journal_nested_too_deep_is_none(tmp_path: Path, text: str) -> None:
    run = Journal(tmp_path / "records.jsonl", ["run"])
    run.path.write_text(text)
    run.ended.write_text(text)
    assert run.begin([ONE]) == {ONE.key}


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    run = Journal(tmp_path / "records.jsonl", ["run"])
    for path in (run.path, run.ended):
        path.with_name(f"{path.name}.{os.getpid()}").symlink_to(victim)
        path.symlink_to(victim)
    run.begin([])
    run.end({"k": 1})
    assert victim.read_text() == "precious"
