"""Attention through the runtime: a library on host memory, views, and what cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from support import Fakes, blobs_of, compile_fake, kernel_entry, saved_and_loaded, small

from convoy import errors
from convoy.ir.workload import Workload
from convoy.measure import reference
from convoy.runtime import create_module

from ..attention import cases


@pytest.fixture(scope="module")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return blobs_of(compile_fake(Path(tmp_path_factory.mktemp("attention")), "fake_attention.cc"))


def run(workload: Workload, blobs: dict[str, bytes], saved: bool = False) -> None:
    module = create_module([kernel_entry(workload, blobs, arch=0)], blobs)
    module = saved_and_loaded(module) if saved else module
    values = cases.operands(workload, np.random.default_rng(0), hidden=0.3)
    arrays = [values[name].astype(np.float32) for name, *_ in workload.operand_shapes()[:-1]]
    out = np.full(workload.operand_shapes()[-1][1], np.nan, np.float32)
    module["f"](*(tvm_ffi.from_dlpack(array) for array in (*arrays, out)))
    (wanted,) = reference.full(workload, values)
    np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "fields",
    [
        {"layout": "packed"},
        {"layout": "bshd", "keys": 9, "value_dim": 5, "outer": 2, "batches": 3},
        {"bias": (1, 2, 1, 17), "batches": 2, "scale": 0.5},
        {"bias": (1, 1, 2, 1), "causal": True, "zeros": True},
        {"bias": (1, 1, 1, 17), "keys": 2, "zeros": True},
    ],
    ids=["packed", "sizes", "bias", "causal", "rows without a key"],
)
def test_computes_what_the_workload_says(fields: Any, blobs: dict[str, bytes]) -> None:
    workload = cases.workload(**fields, dtype="float32")
    run(workload, blobs)
    run(workload, blobs, saved=True)


def test_libraries_of_another_kind(fakes: Fakes, blobs: dict[str, bytes]) -> None:
    workload = cases.workload(dtype="float32")
    with pytest.raises(errors.CorruptArtefact, match="does not compute attention"):
        run(workload, fakes.blobs)
    module = create_module([kernel_entry(small(), blobs, arch=0)], blobs)
    arrays = [np.zeros(shape, np.float32) for _, shape, _ in small().operand_shapes()]
    with pytest.raises(errors.CorruptArtefact, match="for another kind of problem"):
        module["f"](*map(tvm_ffi.from_dlpack, arrays))
    with pytest.raises(errors.CorruptArtefact, match="heads of 13"):
        run(cases.workload(dim=13, dtype="float32"), blobs)


@pytest.mark.parametrize(
    "path, value",
    [
        (("q", "offset"), 1),
        (("k", "strides"), [0, 0, 0, 1 << 40]),
        (("v", "strides"), [0, -1, 0, 0]),
        (("o", "shape"), [3]),
        (("o", "shape"), [0, 4]),
        (("q", "shape"), [1 << 40, 1 << 40]),
        (("outer",), 7),
        (("outer",), 0),
    ],
)
def test_views_that_leave_their_tensors(path: Any, value: Any, blobs: dict[str, bytes]) -> None:
    """The runtime does not trust the file: nothing is read or written outside of a tensor."""
    entry = json.loads(json.dumps(kernel_entry(cases.workload(dtype="float32"), blobs, arch=0)))
    fields = entry["workload"]["attention"]
    for name in path[:-1]:
        fields = fields[name]
    fields[path[-1]] = value
    with pytest.raises(errors.InvalidWorkload):
        create_module([entry], blobs)
