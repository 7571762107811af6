"""The record store: round trips, lookup, damage, and many writers at once."""

from __future__ import annotations

import dataclasses
import errno
import gzip
import json
import multiprocessing
import os
import subprocess
import sys
import textwrap
import threading
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy.errors import CacheUnwritable, CorruptRecords, InvalidOption
from convoy.ir.activation import ACTIVATIONS
from convoy.ir.candidate import Candidate
from convoy.ir.epilogue import Epilogue
from convoy.ir.measurement import Measurement
from convoy.ir.workload import Workload
from convoy.records import record_file
from convoy.records.environment import Environment
from convoy.records.lines import Parser
from convoy.records.record import Record, header_line
from convoy.records.store import RecordStore, RecordsWarning

sizes = st.integers(1, 2048)
times = st.none() | st.floats(0.01, 1e6, allow_nan=False)
names = st.text(max_size=20)
workloads = st.builds(
    Workload,
    op=st.sampled_from(["fprop", "dgrad", "wgrad"]),
    n=sizes,
    h=st.integers(7, 300),
    w=st.integers(7, 300),
    c=sizes,
    k=sizes,
    r=st.integers(1, 7),
    s=st.integers(1, 7),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=st.tuples(*[st.integers(0, 3)] * 4),
    dtype=st.sampled_from(["float16", "bfloat16", "float32"]),
    epilogue=st.builds(Epilogue, st.booleans(), st.booleans(), st.sampled_from(ACTIVATIONS)),
)
candidates = st.builds(
    Candidate, names, names, names, sizes, sizes, st.booleans(), st.lists(names).map(tuple)
)
measurements = st.builds(Measurement, times, times, enqueue_us=times, failure=names)
environments = st.builds(Environment, names, st.integers(0, 200), names, names, names)
records = st.builds(Record, workloads, candidates, measurements, environments)


@given(records)
def test_a_record_survives_its_line(record: Record) -> None:
    line = record.to_line()
    assert line.count("\n") == 1
    parser = Parser()
    assert parser.parse(header_line(record.environment)) is None
    assert parser.parse(line) == record


@given(st.lists(records, max_size=8), st.integers(0, 2000))
def test_cutting_a_file_anywhere_loses_only_what_was_cut(some: list[Record], cut: int) -> None:
    lines = [header_line(r.environment) + r.to_line() for r in some]
    whole = "".join(lines).encode()
    cut = min(cut, len(whole))
    complete = whole[:cut].decode(errors="ignore").count('"time"')
    with _temporary_file(whole[:cut]) as path:
        contents = record_file.read(path)
        assert contents.records == some[: len(contents.records)]
        assert len(contents.records) in (complete, complete - 1)
        assert len(contents.skipped) <= 1
        if some:  # and the next append starts on a line of its own
            record_file.Appender(path).append([some[-1]])
            assert record_file.read(path).records == [*contents.records, some[-1]]


@given(st.lists(records, max_size=8), st.integers(0, 2000))
def test_a_store_holds_what_the_file_does(some: list[Record], cut: int) -> None:
    """Though it reads a workload's lines when it is asked for them."""
    whole = "".join(header_line(r.environment) + r.to_line() for r in some).encode()
    with _temporary_file(whole[:cut]) as path, warnings.catch_warnings():
        warnings.simplefilter("ignore", RecordsWarning)
        contents, store = record_file.read(path), RecordStore(path)
        latest = {record.key: record for record in sorted(contents.records, key=lambda r: r.time)}
        for workload in {record.workload for record in contents.records}:
            own = {k: r for k, r in latest.items() if r.workload == workload}
            assert {record.key: record for record in store.of(workload)} == own
        assert {record.key: record for record in store} == latest
        assert store.skipped == contents.skipped


def test_only_what_is_asked_for_is_read(tmp_path: Path, make_record, monkeypatch) -> None:
    """And a line that is damaged inside is told when it is read."""
    path = tmp_path / "r.jsonl"
    some = [make_record(f"k{i}") for i in range(3)]
    workloads = [dataclasses.replace(some[0].workload, n=n) for n in (1, 2)]
    lines = [dataclasses.replace(r, workload=w).to_line() for w in workloads for r in some]
    lines[4] = lines[4].replace("kernel_us", "hours")
    path.write_text(header_line(some[0].environment) + "".join(lines))
    parsed, parse = [], Parser.parse
    monkeypatch.setattr(Parser, "parse", lambda self, x: parsed.append(x) or parse(self, x))
    store = RecordStore(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(store.of(workloads[0])) == 3
    assert len(parsed) == 4  # and the header
    with pytest.warns(RecordsWarning, match=r"skipped 1 line .*r\.jsonl:6"):
        assert len(store.of(workloads[1])) == 2
    assert len(store) == 5 and [skipped.line for skipped in store.skipped] == [6]


class _temporary_file:
    def __init__(self, content: bytes) -> None:
        self._content = content

    def __enter__(self) -> Path:
        import tempfile

        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "records.jsonl"
        path.write_bytes(self._content)
        return path

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()


def test_latest_wins(tmp_path: Path, make_record, h200: Environment) -> None:
    store = RecordStore(write_to=tmp_path / "r.jsonl")
    store.extend(
        [
            make_record(kernel_us=1.0, time="2026-01-02T00:00:00Z"),
            make_record(kernel_us=2.0, time="2026-01-01T00:00:00Z"),
            make_record("eng2", kernel_us=3.0),
        ]
    )
    for again in (store, RecordStore(tmp_path)):
        found = again.lookup(make_record().workload, h200)
        assert {(r.candidate.kernel, r.measurement.kernel_us) for r in found} == {
            ("eng1", 1.0),
            ("eng2", 3.0),
        }
        assert len(again) == 2


def test_strict_before_loose_and_a_warning(tmp_path: Path, make_record, h200: Environment) -> None:
    newer = dataclasses.replace(h200, driver="590.1")
    other = dataclasses.replace(h200, driver="600.1", cudnn="9.20.0")
    store = RecordStore(write_to=tmp_path / "r.jsonl")
    store.extend([make_record(kernel_us=1.0, environment=newer), make_record(environment=other)])
    workload = make_record().workload
    assert store.lookup(workload, h200, "strict") == []
    with pytest.warns(RecordsWarning, match=r"driver 590\.1 instead of 580\.95\.05"):
        assert [r.measurement.kernel_us for r in store.lookup(workload, h200)] == [1.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store.lookup(workload, h200)  # said once
        store.append(make_record(kernel_us=7.0))
        assert [r.measurement.kernel_us for r in store.lookup(workload, h200)] == [7.0]
        assert store.lookup(workload, dataclasses.replace(h200, gpu="NVIDIA A100")) == []
    with pytest.raises(InvalidOption, match="fuzzy"):
        store.lookup(workload, h200, "fuzzy")  # type: ignore[arg-type]


def test_each_backend_has_its_own_environment(tmp_path: Path, make_record, h200) -> None:
    cudnn, cutlass = h200.narrowed(["cudnn"]), h200.narrowed(["cutlass", "kernels"])
    store = RecordStore(write_to=tmp_path / "r.jsonl")
    store.append(make_record("eng1", backend="cudnn", environment=cudnn))
    store.append(make_record("tile", backend="cutlass", environment=cutlass))

    def kernels(here: Environment) -> set[str]:
        return {r.candidate.kernel for r in store.lookup(make_record().workload, here)}

    assert kernels(h200) == {"eng1", "tile"}
    assert kernels(dataclasses.replace(h200, kernels="edited")) == {"eng1"}
    with pytest.warns(RecordsWarning, match="cudnn 9.19.1 instead of 9.20.0"):
        assert kernels(dataclasses.replace(h200, cudnn="9.20.0")) == {"eng1", "tile"}
    assert kernels(dataclasses.replace(h200, cudnn="10.0.0")) == {"tile"}


def test_damaged_and_foreign_lines_are_skipped_and_reported(tmp_path: Path, make_record) -> None:
    path = tmp_path / "r.jsonl"
    good = make_record()
    unknown = json.dumps({**json.loads(good.to_line()), "env": "nowhere"})
    lines = [
        header_line(good.environment).rstrip(),
        "{not json",
        '{"v": 99}',
        "[1, 2]",
        unknown,
        good.to_line().replace('"fprop"', '"fold"').rstrip(),
        good.to_line().replace('"kernel_us"', '"kernel_hours"').rstrip(),
        "",
        good.to_line().rstrip(),
        good.to_line()[:-20],
    ]
    path.write_text("\n".join(lines))
    store = RecordStore(path)
    with pytest.warns(RecordsWarning, match="skipped 7 lines"):
        assert list(store) == [good]
    reasons = {skipped.line: skipped.reason for skipped in store.skipped}
    assert sorted(reasons) == [2, 3, 4, 5, 6, 7, 10]
    assert "version 99" in reasons[3]
    assert "nowhere" in reasons[5]
    assert "fold" in reasons[6]
    assert "cut short" in reasons[10]


@pytest.mark.parametrize("content", [b"PK\x03\x04 not records", b'{"a": 1}\n{"b": 2}\n', b"\xff"])
def test_a_file_of_something_else_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.jsonl"
    path.write_bytes(content)
    with pytest.raises(CorruptRecords, match=r"model\.jsonl"):
        len(RecordStore(path))


def test_empty_and_absent_files_hold_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    store = RecordStore([tmp_path / "empty.jsonl", tmp_path / "absent.jsonl"])
    assert len(store) == 0
    assert store.workloads() == []
    with pytest.raises(InvalidOption, match="write_to"):
        store.extend([])


def test_compressed_files(tmp_path: Path, make_record) -> None:
    some = [make_record(f"eng{i}") for i in range(50)]
    path = tmp_path / "shipped.jsonl.gz"
    record_file.replace(path, some)
    assert list(RecordStore(tmp_path)) == some
    before = path.read_bytes()
    record_file.replace(path, some)
    assert path.read_bytes() == before
    path.write_bytes(before[: len(before) // 2])
    contents = record_file.read(path)
    assert contents.skipped
    assert contents.records == some[: len(contents.records)]
    path.write_bytes(b"plain text")
    with pytest.raises(CorruptRecords, match="gzip"):
        record_file.read(path)
    with pytest.raises(InvalidOption, match="uncompressed"):
        RecordStore(write_to=path)
    with gzip.open(path, "wt") as stream:
        stream.write("[]\n")
    with pytest.raises(CorruptRecords):
        record_file.read(path)


def test_joined_files_are_a_file(tmp_path: Path, make_record, h200: Environment) -> None:
    other = dataclasses.replace(h200, driver="590.1")
    for name, environment in (("a", h200), ("b", other)):
        RecordStore(write_to=tmp_path / f"{name}.txt").append(make_record(environment=environment))
    joined = tmp_path / "joined.jsonl"
    joined.write_bytes((tmp_path / "a.txt").read_bytes() + (tmp_path / "b.txt").read_bytes())
    assert {r.environment for r in RecordStore(joined)} == {h200, other}


def test_a_thread_never_sees_half_of_the_files(tmp_path: Path, make_record, monkeypatch) -> None:
    for name in ("a", "b"):
        RecordStore(write_to=tmp_path / f"{name}.jsonl").append(make_record(kernel=name))
    store = RecordStore([tmp_path])
    seen: list[int] = []
    skim = record_file.skim

    def skim_and_look(path: Path):
        if path.name == "b.jsonl" and not seen:
            seen.append(-1)  # only the first time: the thread reads the files itself
            thread = threading.Thread(target=lambda: seen.append(len(store)))
            thread.start()
            thread.join()
        return skim(path)

    monkeypatch.setattr(record_file, "skim", skim_and_look)
    assert len(store) == 2
    assert seen == [-1, 2]


def test_a_compressed_file_is_unpacked_again_once_it_is_replaced(
    tmp_path: Path, make_record, monkeypatch
) -> None:
    path, unpacked = tmp_path / "shipped.jsonl.gz", []
    lines = record_file._lines
    monkeypatch.setattr(record_file, "_lines", lambda p: unpacked.append(p) or lines(p))
    for kernels in (["a"], ["a", "b"]):
        record_file.replace(path, map(make_record, kernels))
        for _ in range(2):
            assert [r.candidate.kernel for r in RecordStore(path)] == kernels
    assert unpacked == [path, path]


def test_append_states_the_environment_again_in_a_replaced_file(tmp_path: Path, make_record):
    path = tmp_path / "r.jsonl"
    store = RecordStore(write_to=path)
    store.append(make_record("eng1"))
    path.unlink()
    store.append(make_record("eng2"))
    path.write_bytes(b"")
    store.append(make_record("eng3"))
    assert [r.candidate.kernel for r in RecordStore(path)] == ["eng3"]


def _append_many(path: Path, worker: int, count: int, record: Record) -> None:
    store = RecordStore(write_to=path)
    for i in range(count):
        candidate = dataclasses.replace(record.candidate, kernel=f"worker{worker}_{i}")
        store.append(dataclasses.replace(record, candidate=candidate))


def test_eight_processes_append_at_once(tmp_path: Path, make_record) -> None:
    path, workers, each = tmp_path / "r.jsonl", 8, 1000
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=_append_many, args=(path, worker, each, make_record()))
        for worker in range(workers)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    contents = record_file.read(path)
    assert not contents.skipped
    expected = {f"worker{w}_{i}" for w in range(workers) for i in range(each)}
    assert len(contents.records) == workers * each
    assert {r.candidate.kernel for r in contents.records} == expected


def test_a_full_disk_takes_nothing_away(tmp_path: Path, make_record) -> None:
    """A file size limit in a process of its own makes the kernel cut a write short for real."""
    path = tmp_path / "r.jsonl"
    RecordStore(write_to=path).append(make_record())
    before = path.read_bytes()
    script = """
        import resource, signal, sys
        from convoy.errors import CacheUnwritable
        from convoy.records import record_file
        from pathlib import Path
        path = Path(sys.argv[1])
        records = record_file.read(path).records
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limit = path.stat().st_size + 700
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        try:
            record_file.Appender(path).append(records * 5)
        except CacheUnwritable as err:
            print(err)
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(path)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "PYTHONDONTWRITEBYTECODE": "1",  # what is written in part would be kept
        },
        capture_output=True,
        text=True,
    )
    assert "cannot be written (File too large)" in result.stdout, result.stderr
    assert path.read_bytes() == before


def test_unwritable_folder(tmp_path: Path, make_record, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CacheUnwritable, match="CONVOY_DATA_DIR"):
        RecordStore(write_to=tmp_path / "file" / "r.jsonl").append(make_record())

    def read_only(*_: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(record_file.os, "open", read_only)
    with pytest.raises(CacheUnwritable):
        RecordStore(write_to=tmp_path / "r.jsonl").append(make_record())


def test_a_lock_that_is_never_freed(tmp_path: Path, make_record, monkeypatch) -> None:
    monkeypatch.setattr(record_file, "LOCK_TIMEOUT_S", 0.05)
    path = tmp_path / "r.jsonl"
    with record_file.locked(path), pytest.raises(CacheUnwritable, match="another process"):
        RecordStore(write_to=path).append(make_record())
