"""The boundary to files: types, ranges, sizes and depth."""

import tracemalloc
from pathlib import Path

import pytest

from convoy.errors import CorruptArtefact, InvalidOption, InvalidWorkload
from convoy.ir import fields
from convoy.ir.candidate import Candidate
from convoy.ir.measurement import Measurement
from convoy.ir.plan import Plan
from convoy.ir.schedule import Schedule
from convoy.ir.workload import Workload

SIZES = {"op": "fprop", "n": 1, "h": 8, "w": 8, "c": 8, "k": 8, "r": 1, "s": 1}


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("n", True, "workload: n True; expected an integer from 1"),
        ("n", 10**30, "an integer from 1"),
        ("n", 0, "an integer from 1"),
        ("op", ["fprop"], "op"),
        ("stride", [1, 1, 1], "2 entries"),
        ("stride", [1.5, 1], r"stride\[0\] 1.5"),
        ("padding", 3, "a list"),
        ("epilogue", {"residual": 10**9}, "epilogue: residual 1000000000; expected true or false"),
        ("epilogue", {"activation": "clip", "clip_min": float("nan")}, "clip_min nan"),
        ("epilogue", [1], "a JSON object"),
        ("sizes", 1, "unknown field 'sizes'"),
    ],
)
def test_a_workload_of_other_types(field, value, words):
    with pytest.raises(InvalidWorkload, match=words):
        Workload.from_json({**SIZES, field: value})


def test_a_workload_without_a_size():
    with pytest.raises(InvalidWorkload, match="without 'k'"):
        Workload.from_json({name: value for name, value in SIZES.items() if name != "k"})


@pytest.mark.parametrize("value", ["x", [1], -5, float("nan"), float("inf"), 1e308, True, 10**30])
def test_times_that_are_none(value):
    with pytest.raises(InvalidOption, match="measurement: kernel_us"):
        Measurement.from_json({"kernel_us": value})


@pytest.mark.parametrize("config", ["x", "[]", "[" * 100_000, '{"a":' * 100, "1" * 5000])
def test_a_config_that_is_no_object(config):
    with pytest.raises(InvalidOption, match="config"):
        Candidate("cudnn", "k", config).options()


@pytest.mark.parametrize("loads", [Plan.loads, Schedule.loads])
@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 100_000, '{"format": ' + "1" * 5000])
def test_deep_json_and_long_numbers(loads, text):
    with pytest.raises(CorruptArtefact):
        loads(text)


def test_depth_is_counted_as_a_parser_does():
    deepest = "[" * fields.MOST_DEPTH + "]" * fields.MOST_DEPTH
    assert fields.parse_json(deepest, "text", InvalidOption)
    wide = "[" + "[]," * 1000 + "[]]"
    assert len(fields.parse_json(wide, "text", InvalidOption)) == 1001
    with pytest.raises(InvalidOption, match="nested too deep"):
        fields.parse_json(f"[[{deepest}]]", "text", InvalidOption)


def test_a_file_that_is_too_large(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert fields.read_bytes(path, 5) == b"12345"
    with pytest.raises(OSError, match="more than 4 bytes"):
        fields.read_bytes(path, 4)


def test_a_file_takes_the_memory_of_its_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    content = bytes(range(256)) * 10_000
    path.write_bytes(content)
    tracemalloc.start()
    try:
        assert fields.read_bytes(path, 1 << 30) == content
        assert tracemalloc.get_traced_memory()[1] < 4 * len(content)
    finally:
        tracemalloc.stop()
    assert fields.read_bytes(path, len(content)) == content
    with pytest.raises(OSError, match=f"more than {len(content) - 1} bytes"):
        fields.read_bytes(path, len(content) - 1)
