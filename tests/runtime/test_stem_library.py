"""Stems through the runtime: a library on host memory, and what cannot be."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from support import Fakes, blobs_of, compile_fake, kernel_entry, saved_and_loaded, small

from convoy import errors
from convoy.ir.epilogue import Epilogue
from convoy.ir.stem import Stem
from convoy.ir.workload import Workload
from convoy.measure import reference
from convoy.runtime import create_module

STEM = Workload(
    "stem", 2, 9, 8, 4, 6, 3, 2, (2, 1), (1, 0, 1, 1), (1, 2), dtype="float32",
    out_dtype="float32", epilogue=Epilogue(bias=True), stem=Stem(3),
)  # fmt: skip


def changed(**fields: Any) -> Workload:
    return dataclasses.replace(STEM, stem=dataclasses.replace(STEM.stem, **fields))


@pytest.fixture(scope="module")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return blobs_of(compile_fake(Path(tmp_path_factory.mktemp("stem")), "fake_stem.cc"))


def run(workload: Workload, blobs: dict[str, bytes], saved: bool = False) -> None:
    module = create_module([kernel_entry(workload, blobs, arch=0)], blobs)
    module = saved_and_loaded(module) if saved else module
    rng = np.random.default_rng(0)
    *shapes, (_, out_shape, _) = workload.operand_shapes()
    values = {name: rng.uniform(-1, 1, shape).astype(np.float32) for name, shape, _ in shapes}
    out = np.full(out_shape, np.nan, np.float32)
    module["f"](*(tvm_ffi.from_dlpack(array) for array in (*values.values(), out)))
    (wanted,) = reference.full(workload, values)
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "workload",
    [
        STEM,
        dataclasses.replace(STEM, epilogue=Epilogue()),
        changed(channels=1, channels_last=True),
        changed(window=(3, 2), stride=(2, 1), padding=(1, 0, 1, 1)),
        changed(channels=4, channels_last=True, window=(2, 2), stride=(2, 2)),
    ],
    ids=lambda w: w.key,
)
def test_computes_what_the_workload_says(workload: Workload, blobs: dict[str, bytes]) -> None:
    run(workload, blobs)
    run(workload, blobs, saved=True)


def test_libraries_of_another_kind(fakes: Fakes, blobs: dict[str, bytes]) -> None:
    with pytest.raises(errors.CorruptArtefact, match="reads no images"):
        run(STEM, fakes.blobs)
    module = create_module([kernel_entry(small(), blobs, arch=0)], blobs)
    arrays = [np.zeros(shape, np.float32) for _, shape, _ in small().operand_shapes()]
    with pytest.raises(errors.CorruptArtefact, match="for another kind of problem"):
        module["f"](*map(tvm_ffi.from_dlpack, arrays))
    with pytest.raises(errors.CorruptArtefact, match="13 output channels"):
        run(dataclasses.replace(STEM, k=13), blobs)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("channels", 5),
        ("channels", 0),
        ("dtype", "int8"),
        ("window", [0, 3]),
        ("window", [200, 1]),
        ("stride", [0, 1]),
        ("padding", [-1, 0, 0, 0]),
        ("channels_last", None),
    ],
)
def test_a_wrong_stem_is_rejected(field: str, value: Any, blobs: dict[str, bytes]) -> None:
    entry = kernel_entry(changed(window=(2, 2)), blobs, arch=0)
    entry["workload"]["stem"][field] = value
    with pytest.raises(errors.ConvoyError):
        create_module([entry], blobs)["f"]


@pytest.mark.parametrize(
    "fields", [{"stem": None}, {"groups": 2}, {"epilogue": Epilogue(residual=True)}], ids=str
)
def test_a_convolution_that_is_no_stem_is_rejected(fields: Any, blobs: dict[str, bytes]) -> None:
    entry = kernel_entry(STEM, blobs, arch=0)
    convolution = dataclasses.replace(STEM, op="fprop", **{"stem": None, **fields})
    entry["workload"] = {**entry["workload"], **convolution.to_json(), "op": "stem"}
    if "stem" in fields:
        del entry["workload"]["stem"]
    with pytest.raises(errors.ConvoyError):
        create_module([entry], blobs)["f"]
