"""Modules as artefacts: what is saved is what is loaded, and damage is noticed."""

from __future__ import annotations

import json

import pytest
import tvm_ffi
from hypothesis import given
from hypothesis import strategies as st
from support import cudnn_entry, kernel_entry, small

from convoy import errors
from convoy.runtime import create_module
from convoy.runtime.library import function


def load(data: bytes):
    return tvm_ffi.get_global_func("ffi.Module.load_from_bytes.convoy")(data)


def sample() -> bytes:
    entries = [
        cudnn_entry(small(), 62, "a", plan_json="x" * 100),
        kernel_entry(small(), {"k1": b""}, "b"),
    ]
    module = create_module(entries, {"k1": bytes(range(256)) * 5}, "about this module")
    return bytes(function("module.save")(module))


def test_round_trip_without_cuda() -> None:
    data = sample()
    module = load(data)
    assert module.kind == "convoy"
    assert list(module["convoy_symbols"]()) == ["a", "b"]
    assert module["convoy_meta"]() == "about this module"
    spec = json.loads(module["convoy_spec"]())
    assert spec["device"]["arch"] == 90
    assert spec["functions"][0]["plan_json"] == "x" * 100
    assert module.implements_function("a") and not module.implements_function("c")
    assert bytes(function("module.save")(module)) == data


DATA = None


def data() -> bytes:
    global DATA
    DATA = DATA or sample()
    return DATA


@given(st.data())
def test_truncation_is_noticed(draw: st.DataObject) -> None:
    whole = data()
    with pytest.raises(errors.CorruptArtefact, match="Export the module again"):
        load(whole[: draw.draw(st.integers(0, len(whole) - 1))])


@given(st.data())
def test_changed_bytes_are_noticed(draw: st.DataObject) -> None:
    changed = bytearray(data())
    position = draw.draw(st.integers(0, len(changed) - 1))
    changed[position] ^= draw.draw(st.integers(1, 255))
    with pytest.raises((errors.CorruptArtefact, errors.LibraryVersionMismatch)):
        load(bytes(changed))


def test_appended_bytes_are_noticed() -> None:
    with pytest.raises(errors.CorruptArtefact):
        load(data() + b"more")


def test_newer_format_says_so() -> None:
    newer = bytearray(data())
    newer[8] = 9
    with pytest.raises(errors.LibraryVersionMismatch, match=r"format 9.*newer tvm-convoy"):
        load(bytes(newer))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"backend": "rocm"}, errors.InvalidOption, "the runtime has"),
        ({"symbol": ""}, errors.InvalidOption, "without a symbol"),
        ({"engine": "first"}, errors.InvalidOption, '"engine"'),
        ({"engine": None}, errors.InvalidOption, '"engine" is missing'),
        ({"knobs": [[1]]}, errors.InvalidOption, r"expected \[type, value\]"),
    ],
)
def test_bad_entries(change: dict, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        create_module([{**cudnn_entry(small(), 1), **change}], {})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 0}, "n = 0"),
        ({"op": "pool"}, "op 'pool'; expected one of fprop"),
        ({"r": 99}, "filter no larger"),
        ({"groups": 3}, "groups"),
        ({"dtype": "int8"}, "dtype 'int8'"),
        ({"padding": [1, 1]}, "padding has 2 numbers; expected 4"),
    ],
)
def test_bad_workloads(change: dict, message: str) -> None:
    entry = cudnn_entry(small(), 1)
    entry["workload"] = {**entry["workload"], **change}
    with pytest.raises(errors.InvalidWorkload, match=message):
        create_module([entry], {})


def test_two_functions_of_one_name() -> None:
    with pytest.raises(errors.InvalidOption, match="two functions"):
        create_module([cudnn_entry(small(), 1), cudnn_entry(small(), 2)], {})


def test_functions_for_two_architectures() -> None:
    with pytest.raises(errors.InvalidOption, match=r"\[80, 90\]"):
        create_module([cudnn_entry(small(), 1, "a", arch=80), cudnn_entry(small(), 1, "b")], {})


def test_cudnn_in_host_memory() -> None:
    with pytest.raises(errors.InvalidOption, match="host memory"):
        create_module([cudnn_entry(small(), 1, arch=0)], {})
