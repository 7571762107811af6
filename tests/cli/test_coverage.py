"""``convoy records coverage``: gaps in records."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from convoy.cli.coverage import of_lists
from convoy.cli.main import app
from convoy.ir import workload_list
from convoy.ir.candidate import Candidate
from convoy.ir.defaults import LIBRARIES
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.measurement import Measurement
from convoy.ir.workload import Workload
from convoy.records.environment import Environment
from convoy.records.record import Record
from convoy.records.store import RecordStore

H200 = Environment(gpu=Device().name, sm_count=132)
PLAIN = Workload("fprop", 1, 28, 28, 64, 64, 3, 3, padding=(1, 1, 1, 1))
AFFINE = Workload("fprop", 1, 28, 28, 64, 64, 1, 1, epilogue=Epilogue(affine_relu=True))
LARGE = Workload("fprop", 8, 28, 28, 64, 64, 1, 1)
WORKLOADS = [PLAIN, AFFINE, LARGE]


def measured(workload: Workload, backend: str, environment=H200, failure: str = "") -> Record:
    timing = Measurement(failure=failure) if failure else Measurement(kernel_us=2.0, samples=9)
    return Record(workload, Candidate(backend, "k"), timing, environment)


def test_counts(tmp_path: Path) -> None:
    """cuDNN and hopper do not accept the second; failures and other GPUs do not count."""
    store = RecordStore(write_to=tmp_path / "r.jsonl")
    store.append(measured(PLAIN, "cudnn"))
    store.append(measured(PLAIN, "cutlass", failure="it faults"))
    store.append(measured(AFFINE, "cutlass"))
    store.append(measured(LARGE, "cudnn", Environment(gpu="NVIDIA B200", sm_count=148)))
    one, eight = of_lists({"net": WORKLOADS}, store)
    assert (one.batch, one.workloads, one.with_records, one.missing) == (1, 2, 2, ())
    others = [(name, 0, int(name == "hopper")) for name in LIBRARIES[2:]]
    assert one.backends == (("cudnn", 1, 1), ("cutlass", 1, 2), *others)
    assert (eight.batch, eight.missing) == (8, (LARGE,))
    assert "cudnn 0/1, cutlass 0/1" in eight.by_backend


def test_the_command(tmp_path: Path) -> None:
    listed, records = tmp_path / "net.jsonl", tmp_path / "r.jsonl"
    workload_list.write(listed, WORKLOADS)
    store = RecordStore(write_to=records)
    command = ["records", "coverage", str(listed), "--records", str(records)]
    for workload in WORKLOADS[:2]:
        store.append(measured(workload, "cutlass"))
    gap = CliRunner().invoke(app, command)
    assert gap.exit_code == 1
    assert f"workloads without measurements: 1\n  {LARGE.key}" in gap.stdout
    store.append(measured(LARGE, "cudnn"))
    whole = CliRunner().invoke(app, [*command, "--json"])
    assert whole.exit_code == 0
    assert [row["missing"] for row in json.loads(whole.stdout)] == [[], []]
