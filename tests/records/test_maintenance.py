"""Merge, prune and export of record files."""

from __future__ import annotations

import csv
import dataclasses
import io
from pathlib import Path

import pytest

from convoy.errors import CacheUnwritable, InvalidOption
from convoy.records import maintenance, record_file
from convoy.records.environment import Environment
from convoy.records.spreadsheet import export_csv
from convoy.records.store import RecordStore


def _write(path: Path, *records) -> Path:
    record_file.Appender(path).append(records)
    return path


def _kernels(path: Path) -> list[str]:
    return sorted(r.candidate.kernel for r in record_file.read(path).records)


def test_merge_keeps_the_latest_of_each(tmp_path: Path, make_record) -> None:
    old = make_record("eng1", 9.0, time="2026-01-01T00:00:00Z")
    a = _write(tmp_path / "a.jsonl", old, make_record("eng2"))
    b = _write(tmp_path / "b.jsonl", make_record("eng1", 1.0), make_record("eng3"))
    target = _write(tmp_path / "all.jsonl", make_record("eng4"))
    outcome = maintenance.merge([a, b], target)
    assert (outcome.kept, outcome.removed, outcome.skipped) == (4, 1, 0)
    assert _kernels(target) == ["eng1", "eng2", "eng3", "eng4"]
    times = {r.candidate.kernel: r.measurement.kernel_us for r in RecordStore(target)}
    assert times["eng1"] == 1.0
    text = target.read_bytes()
    assert maintenance.merge([tmp_path], target).removed == 4  # merging again changes nothing
    assert target.read_bytes() == text


def test_merge_of_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="does not exist"):
        maintenance.merge([tmp_path / "none.jsonl"], tmp_path / "all.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_prune(tmp_path: Path, make_record, h200: Environment) -> None:
    a100 = dataclasses.replace(h200, gpu="NVIDIA A100")
    edited = dataclasses.replace(h200, kernels="later")
    path = _write(
        tmp_path / "r.jsonl",
        make_record("twice"),
        make_record("twice"),
        make_record("failed", None, failure="illegal address"),
        make_record("other_gpu", environment=a100),
        make_record("old", time="2020-01-01T00:00:00Z"),
        make_record("edited", environment=edited),
        make_record("no_kernel", environment=edited.narrowed(["cudnn"])),
    )
    assert maintenance.prune(path).removed == 1
    assert len(_kernels(path)) == 6
    maintenance.prune(path, failures=True)
    assert "failed" not in _kernels(path)
    maintenance.prune(path, gpu="NVIDIA H200")
    assert "other_gpu" not in _kernels(path)
    maintenance.prune(path, before="2026-01-01")
    assert "old" not in _kernels(path)
    outcome = maintenance.prune(path, superseded_kernels="later")
    assert _kernels(path) == ["edited", "no_kernel"]
    assert outcome.backup is None


def test_prune_keeps_what_it_cannot_read_in_a_backup(tmp_path: Path, make_record) -> None:
    path = _write(tmp_path / "r.jsonl", make_record())
    with open(path, "a") as stream:
        stream.write("from a later version\n")
    before = path.read_bytes()
    outcome = maintenance.prune(path)
    assert outcome.skipped == 1
    assert outcome.backup is not None and outcome.backup.read_bytes() == before
    assert not record_file.read(path).skipped


def test_a_failing_rewrite_leaves_the_old_file(tmp_path: Path, make_record, monkeypatch) -> None:
    path = _write(tmp_path / "r.jsonl", make_record(), make_record())
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(record_file.os, "replace", full)
    with pytest.raises(CacheUnwritable, match="No space left"):
        maintenance.prune(path)
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.jsonl", "r.jsonl.lock"]


def test_export_csv(make_record) -> None:
    stream = io.StringIO()
    some = [make_record("eng1", 1.5), make_record("eng2", None, failure="no, it failed")]
    assert export_csv(some, stream) == 2
    rows = list(csv.DictReader(io.StringIO(stream.getvalue())))
    assert [row["kernel_us"] for row in rows] == ["1.5", ""]
    assert rows[1]["failure"] == "no, it failed"
    assert rows[0]["gpu"] == "NVIDIA H200"
    assert (rows[0]["op"], rows[0]["p"], rows[0]["padding"]) == ("fprop", "56", "1x1x1x1")
    assert rows[0]["workload"] == some[0].workload.key
