"""The shipped records: complete, and used by a placement without a GPU."""

from __future__ import annotations

import numpy as np
import pytest

import convoy
from convoy import paths, relay
from convoy.backends import registry
from convoy.backends.cudnn import cudnn_version
from convoy.cli.coverage import of_lists
from convoy.ir import workload_list
from convoy.ir.device import Device
from convoy.measure.gpu import find_gpus
from convoy.pipeline import place
from convoy.records import environment
from convoy.records.store import RecordStore

#: The first 1x1 convolution behind a residual block of ResNet-50, and the one that ends a block.
NARROW = """#[version = "0.0.5"]
def @main(%data: Tensor[(8, 256, 56, 56), float32], %w: Tensor[(64, 256, 1, 1), float32],
          %bias: Tensor[(64), float32]) {
  %0 = nn.conv2d(%data, %w, channels=64, kernel_size=[1, 1], padding=[0, 0, 0, 0]);
  %1 = nn.bias_add(%0, %bias);
  nn.relu(%1)
}
"""
RESIDUAL = """#[version = "0.0.5"]
def @main(%data: Tensor[(8, 64, 56, 56), float32], %sum: Tensor[(8, 256, 56, 56), float32],
          %w: Tensor[(256, 64, 1, 1), float32]) {
  %0 = nn.conv2d(%data, %w, channels=256, kernel_size=[1, 1], padding=[0, 0, 0, 0]);
  add(%0, %sum)
}
"""


def test_every_listed_workload_has_measurements() -> None:
    """And each convolution of a network, in whatever direction, of both libraries where they accept
    it; a training step's of cuDNN."""
    lists = {
        path.stem: workload_list.read(path)
        for path in sorted(paths.workloads_dir().glob("*.jsonl"))
    }
    assert len(lists) >= 13
    rows = of_lists(lists, RecordStore(paths.records_dir()))
    gaps = [workload.key for row in rows for workload in row.missing]
    assert not gaps, f"no measurements of {len(gaps)} workloads, the first: {gaps[:3]}"
    for row in rows:
        for name, have, accepted in row.backends:
            wanted = name == "cudnn" or (name == "cutlass" and "-training-" not in row.name)
            assert have == accepted or not wanted, (row.name, row.batch, name)


@pytest.mark.skipif(not cudnn_version(), reason="cuDNN is not installed")
@pytest.mark.skipif(bool(find_gpus()[0]), reason="with a GPU cuDNN proposes every engine")
@pytest.mark.parametrize("text", [NARROW, RESIDUAL], ids=["narrow", "residual"])
def test_recorded_engines_that_nobody_proposes_here(text: str, tmp_path) -> None:
    """Without a GPU cuDNN proposes fewer engines. Those that were recorded with one are placed
    and built all the same. One of the two is compiled at run time, which needs a driver."""
    mod = relay.to_relax(relay.parse(text), {"w": np.zeros(_shape(text), "float32")})
    options = {"backends": ["cudnn", "tvm"], "device": Device(), "measure": False}
    own = tmp_path / "none.jsonl"
    (choice,) = place(mod, records=own, **options).plan.choices
    found = RecordStore(paths.records_dir()).lookup(
        choice.workload, environment.for_device(Device())
    )
    best = min(
        (r for r in found if r.measurement.ok and r.candidate.backend == "cudnn"),
        key=lambda r: r.measurement.kernel_us or 0.0,
    )
    assert choice.chosen.candidate == best.candidate
    proposed = registry.get("cudnn").propose(choice.workload, Device())
    assert isinstance(proposed, list)
    assert best.candidate.key not in {candidate.key for candidate in proposed}
    if "runtime_compilation" not in best.candidate.notes:
        return
    built = convoy.build(mod, "cuda", records=own, backends=["cudnn", "tvm"])
    built.export_library(tmp_path / "net.so")
    (again,) = built.plan.choices
    assert again.chosen.candidate == best.candidate


def _shape(text: str) -> tuple[int, ...]:
    return (64, 256, 1, 1) if text is NARROW else (256, 64, 1, 1)
