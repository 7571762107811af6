"""The scripts that make workload lists and sort records into the shipped files."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from convoy.ir import workload_list
from convoy.ir.candidate import Candidate
from convoy.ir.measurement import Measurement
from convoy.records.environment import Environment
from convoy.records.record import Record
from convoy.records.store import RecordStore

TUNING = Path(__file__).parents[2] / "tuning"


def run(script: str, *arguments: str | Path, **environment: str) -> str:
    import os

    command = [sys.executable, str(TUNING / script), *map(str, arguments)]
    variables = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, env=variables, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def make(monkeypatch: pytest.MonkeyPatch, *arguments: str | Path) -> None:
    """The script in this process, which has imported TVM."""
    monkeypatch.setattr(sys, "argv", ["make_workloads.py", *map(str, arguments)])
    runpy.run_path(str(TUNING / "make_workloads.py"), run_name="__main__")


def test_the_shipped_lists_are_what_the_script_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(monkeypatch, "squeezenet", "--batches", "1", "--out", tmp_path)
    name = "squeezenet-fprop-float16.jsonl"
    made = workload_list.read(tmp_path / name)
    assert made == [w for w in workload_list.read(TUNING / "workloads" / name) if w.n == 1]


def test_gradients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for op in ("dgrad", "wgrad"):
        make(monkeypatch, "squeezenet", "--batches", "8", "--op", op, "--out", tmp_path)
        made = workload_list.read(tmp_path / f"squeezenet-{op}-float16.jsonl")
        assert {w.op for w in made} == {op} and not any(w.epilogue.name for w in made)
        assert any(w.c == 3 for w in made) == (op == "wgrad")  # nobody wants the image's gradient


@pytest.mark.parametrize("gpu", ["NVIDIA H200", "NVIDIA B200"])
def test_records_go_to_their_network(tmp_path: Path, gpu: str) -> None:
    """Run on a copy of the folder, so that the shipped files stay as they are."""
    import shutil

    root = tmp_path / "checkout"
    shutil.copytree(TUNING / "workloads", root / "tuning" / "workloads")
    (root / "tuning" / "records").mkdir()
    listed = workload_list.read(TUNING / "workloads" / "googlenet-fprop-float16.jsonl")
    new = tmp_path / "new.jsonl"
    store = RecordStore(write_to=new)
    environment = Environment(gpu=gpu, sm_count=132)
    measured = Measurement(kernel_us=1.0, samples=1)
    own = next(w for w in listed if w.r == 5)  # no other network has any
    store.append(Record(own, Candidate("cudnn", "eng1"), measured, environment))
    script = root / "ship.py"
    source = (TUNING / "ship_records.py").read_text()
    moved = f'paths.records_dir = lambda: Path("{root}/tuning/records")\n'
    script.write_text(source.replace("NETWORKS = (", moved + "\nNETWORKS = (", 1))
    run(str(script), new, "--gpu", "NVIDIA H200")
    shipped = list((root / "tuning" / "records").glob("*"))
    if gpu == "NVIDIA H200":
        assert [path.name for path in shipped] == ["h200-googlenet-fprop-float16.jsonl.gz"]
        assert [r.workload for r in RecordStore(shipped)] == [own]
        for measured, more in ((2.0, ["--add"]), (3.0, [])):  # only the second takes its place
            later = Measurement(kernel_us=measured)
            time = f"2100-01-0{measured:.0f}T00:00:00Z"
            store.append(Record(own, Candidate("cudnn", "eng1"), later, environment, time))
            run(str(script), new, *more)
            (record,) = RecordStore(shipped)
            assert record.measurement.kernel_us == (1.0 if more else 3.0)
    else:
        assert not shipped
