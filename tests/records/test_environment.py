"""Which environments count as the same."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy.errors import InvalidOption
from convoy.ir.device import Device
from convoy.measure import gpu as gpus
from convoy.records import environment as env
from convoy.records.environment import Environment

names = st.text(alphabet="ab.1", max_size=4)
environments = st.builds(Environment, *[names, st.integers(0, 3), *[names] * 9])


@given(environments)
def test_json_round_trip_keeps_the_id(environment: Environment) -> None:
    again = Environment.from_json(environment.to_json())
    assert again == environment
    assert again.id == environment.id


@given(environments, environments)
def test_strict_match_implies_loose_and_is_symmetric(one: Environment, other: Environment) -> None:
    for mode in env.MATCHES:
        assert one.matches(other, mode) == other.matches(one, mode)
    if one.matches(other, "strict"):
        assert one.matches(other, "loose")


@pytest.mark.parametrize(
    ("field", "value", "strict", "loose"),
    [
        ("driver", "590.10", False, True),
        ("cuda", "13.1", False, True),
        ("cudnn", "9.20.0", False, True),
        ("cudnn", "10.0.0", False, False),
        ("cublas", "13.2.0", False, False),
        ("cutlass", "3.9.0", False, False),
        ("kernels", "def", False, False),
        ("gpu", "NVIDIA H100", False, False),
        ("sm_count", 60, False, False),
        ("convoy", "9.9.9", True, True),
        ("host", "another", True, True),
        ("boot", "a0b1c2d3", True, True),
        ("driver", "", True, True),
    ],
)
def test_matching(h200: Environment, field: str, value: object, strict: bool, loose: bool) -> None:
    other = dataclasses.replace(h200, **{field: value})
    assert h200.matches(other, "strict") is strict
    assert h200.matches(other, "loose") is loose


def test_without_a_gpu_name_nothing_matches() -> None:
    assert not Environment().matches(Environment(), "loose")


def test_unknown_mode_is_refused(h200: Environment) -> None:
    with pytest.raises(InvalidOption, match="strict, loose"):
        h200.matches(h200, "fuzzy")  # type: ignore[arg-type]


def test_narrowed_outlives_a_change_of_kernel_sources(h200: Environment) -> None:
    changed = dataclasses.replace(h200, kernels="other")
    assert changed.matches(h200.narrowed(["cudnn"]), "strict")
    assert not changed.matches(h200.narrowed(["cutlass", "kernels"]), "strict")
    with pytest.raises(InvalidOption, match="nccl"):
        h200.narrowed(["nccl"])


def test_a_device_that_is_not_present_takes_any_record_of_its_kind(h200: Environment) -> None:
    assert env.for_device(Device()).matches(h200, "strict")
    assert not env.for_device(Device(name="NVIDIA H100")).matches(h200, "loose")


def test_current_reads_gpu_and_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Device("NVIDIA H200", 90, 132, 232448, 10**7, 10**11)
    monkeypatch.setattr(gpus, "find_gpus", lambda: ([gpu], ""))
    monkeypatch.setattr(gpus, "driver_version", lambda: "580.1")
    env.current.cache_clear()
    try:
        found = env.current()
        assert (found.gpu, found.sm_count, found.driver) == ("NVIDIA H200", 132, "580.1")
        assert found.cutlass == "4.2.0"
        assert found.kernels == env.kernel_hashes()
        assert env.current(1).gpu == ""
    finally:
        env.current.cache_clear()


def test_a_record_depends_on_its_own_kernel_source_alone(h200: Environment) -> None:
    here = dataclasses.replace(h200, kernels="cutlass/a.cuh=1 cutlass/b.cuh=2")
    of_a = here.narrowed(["kernels"], "cutlass/a.cuh")
    assert of_a.kernels == "cutlass/a.cuh=1"
    b_changed = dataclasses.replace(here, kernels="cutlass/a.cuh=1 cutlass/b.cuh=3")
    a_changed = dataclasses.replace(here, kernels="cutlass/a.cuh=4 cutlass/b.cuh=2")
    assert b_changed.matches(of_a, "strict")
    assert not a_changed.matches(of_a, "strict") and not a_changed.matches(of_a, "loose")
    removed = dataclasses.replace(here, kernels="cutlass/b.cuh=2")
    assert removed.differences(of_a) == ["other kernel sources"]


def test_driver_version_from_the_kernel_module(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library(name: str) -> None:
        raise OSError(name)

    text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build"
    (tmp_path / "version").write_text(text)
    monkeypatch.setattr(gpus.ctypes, "CDLL", no_library)
    monkeypatch.setattr(gpus, "_KERNEL_MODULE", tmp_path / "version")
    assert gpus.driver_version() == "580.95.05"
    monkeypatch.setattr(gpus, "_KERNEL_MODULE", tmp_path / "absent")
    assert gpus.driver_version() == ""
    assert gpus.find_gpus()[0] == []
    assert "libcuda.so.1" in gpus.find_gpus()[1]
