"""The TVM backend: one candidate for what the graph can express, a reasoned decline otherwise."""

from __future__ import annotations

import pytest

from convoy.backends.tvm import TvmBackend
from convoy.ir.candidate import Candidate, Decline
from convoy.ir.device import Device
from convoy.ir.workload import Workload


def conv(op="fprop", groups=1, **changed):
    return Workload(op, 1, 8, 8, 16, 16, 3, 3, padding=(1, 1, 1, 1), groups=groups, **changed)


@pytest.mark.parametrize("groups", [1, 4, 16])
def test_proposes_one_candidate_with_nothing_to_build(groups):
    backend, device = TvmBackend(), Device()
    (candidate,) = backend.propose(conv(groups=groups), device)
    assert isinstance(candidate, Candidate) and candidate.key == "tvm:native"
    binary = backend.build(conv(groups=groups), candidate, device)
    assert (binary.entry, binary.blobs) == ({}, {})


@pytest.mark.parametrize("op", ["dgrad", "wgrad"])
def test_takes_gradients(op):
    (candidate,) = TvmBackend().propose(conv(op), Device())
    assert candidate.notes == ("no tensor cores",)


def test_takes_integers():
    workload = conv(groups=4, dtype="int8", out_dtype="int32", acc_dtype="int32")
    (candidate,) = TvmBackend().propose(workload, Device())
    assert candidate.key == "tvm:native"


def test_declines_narrow_accumulation():
    declined = TvmBackend().propose(conv(acc_dtype="float16"), Device())
    assert isinstance(declined, Decline) and "float16" in declined.reason
