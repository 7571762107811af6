"""Which launch of a kernel library the runtime takes, and what it tells it."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import tvm_ffi
from support import Fakes, compile_fake, host_arrays, kernel_entry, small

from convoy.runtime import create_module


@pytest.fixture(scope="module")
def programmatic(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("programmatic")
    content = compile_fake(folder, "fake_kernel.cc", "", "-DPROGRAMMATIC").read_bytes()
    return {hashlib.sha256(content).hexdigest(): content}


def first_output(blobs: dict[str, bytes], **options: bool) -> float:
    """The first output of a kernel that multiplies by zeros."""
    workload = small()
    module = create_module([kernel_entry(workload, blobs, arch=0, **options)], blobs)
    arrays = [np.zeros_like(array) for array in host_arrays(workload)]
    module["f"](*[tvm_ffi.from_dlpack(array) for array in arrays])
    assert not np.any(arrays[-1].reshape(-1)[1:])
    return float(arrays[-1].reshape(-1)[0])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 1),
        ({"constant_weights": True}, 2),
        ({"constant_weights": False}, 1),
        ({"programmatic": False, "constant_weights": True}, 0),
    ],
)
def test_entry_decides_how_it_is_launched(programmatic, options, expected) -> None:
    assert first_output(programmatic, **options) == expected


def test_other_libraries_are_launched_as_ever(fakes: Fakes) -> None:
    assert first_output(fakes.blobs, constant_weights=True) == 0
