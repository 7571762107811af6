"""One bad line spoils nothing: it is skipped with its reason, all others are used."""

import gzip
import json

import pytest

from convoy.errors import CorruptRecords
from convoy.records import record_file
from convoy.records.store import RecordStore

pytestmark = pytest.mark.filterwarnings("ignore:skipped")
VALUES = ["x", None, [1], {"a": 1}, float("nan"), float("inf"), -5, 1e308, 10**30, True, 0.5]
FIELDS = {
    "workload": ("op", "n", "h", "c", "k", "r", "stride", "padding", "groups", "dtype", "epilogue"),
    "candidate": ("backend", "kernel", "config", "workspace", "priority", "notes"),
    "measurement": ("kernel_us", "enqueue_us", "e2e_us", "samples", "error", "failure"),
}


@pytest.fixture
def lines(make_record, tmp_path):
    path = tmp_path / "written.jsonl"
    record_file.Appender(path).append([make_record(n=1), make_record(n=2)])
    return path.read_text().splitlines()


def _check(tmp_path, lines, altered):
    path = tmp_path / "r.jsonl"
    path.write_text("\n".join([lines[0], json.dumps(altered), lines[2]]) + "\n")
    contents = record_file.read(path)
    assert [r.workload.n for r in contents.records if r.workload.n == 2] == [2]
    assert len(contents.records) + len(contents.skipped) == 2
    for record in contents.records:
        us = record.measurement.kernel_us
        assert us is None or 0 <= us < 1e12
        assert type(us) is not bool
        hash(record)
        assert record.workload.key and record.workload.flops > 0
        list(RecordStore([path]).lookup(record.workload, record.environment))


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("part", FIELDS)
def test_values_of_other_types(tmp_path, lines, part, value):
    _check(tmp_path, lines, {**json.loads(lines[1]), part: value})
    for name in FIELDS[part]:
        altered = json.loads(lines[1])
        altered[part][name] = value
        _check(tmp_path, lines, altered)


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("name", ["v", "env", "time"])
def test_other_fields_of_a_line(tmp_path, lines, name, value):
    _check(tmp_path, lines, {**json.loads(lines[1]), name: value})


@pytest.mark.parametrize(
    "environment", [None, [], {"gpu": 1}, {"sm_count": "x"}, {"kernels": [1]}, {"sm_count": -1}]
)
def test_a_header_of_other_types(tmp_path, lines, environment):
    path = tmp_path / "r.jsonl"
    header = json.dumps({"v": 1, "id": "bad", "environment": environment})
    path.write_text("\n".join([header, *lines]) + "\n")
    contents = record_file.read(path)
    assert (len(contents.records), len(contents.skipped)) == (2, 1)
    assert "environment" in contents.skipped[0].reason


def test_a_line_beyond_the_limit_is_skipped(tmp_path, lines, monkeypatch):
    monkeypatch.setattr(record_file, "MOST_LINE_BYTES", 2000)
    path = tmp_path / "r.jsonl"
    path.write_text("\n".join([lines[0], "{" + "a" * 50_000, *lines[1:]]) + "\n")
    contents = record_file.read(path)
    assert (len(contents.records), len(contents.skipped)) == (2, 1)
    assert contents.skipped[0].line == 2


def test_a_file_that_unpacks_to_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr(record_file, "MOST_FILE_BYTES", 1 << 20)
    path = tmp_path / "r.jsonl.gz"
    path.write_bytes(gzip.compress(b"{}\n" * (1 << 20)))
    with pytest.raises(CorruptRecords, match="unpacked"):
        record_file.read(path)
