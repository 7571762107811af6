"""What a run knew when it began survives the run's death, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.tuning import fakes

from convoy.errors import CacheUnwritable
from convoy.tuning.journal import Journal

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


@pytest.mark.parametrize("content", ["", "{", "[]", '{"fingerprint": 1}'])
def test_a_damaged_journal_counts_as_none(tmp_path: Path, content: str) -> None:
    journal = Journal(tmp_path / "records.jsonl", ["run"])
    journal.path.write_text(content)
    assert journal.begin([ONE]) == {ONE.key}


def test_nowhere_to_write(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CacheUnwritable):
        Journal(tmp_path / "file" / "records.jsonl", ["run"]).begin([])
