"""Every kind of file that is read: a good example, and what reading a mutated one must do.

A reader returns normally or raises an error of convoy.errors; what it takes it can write and read
again. Anything else is a failure, as are crashes.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from convoy.backends.kernels.cache import KernelCache
from convoy.backends.kernels.cutlass.config import KernelConfig
from convoy.backends.kernels.sm90.kernels import kernel_from_json
from convoy.cost.features import candidate_features, kind
from convoy.errors import ConvoyError, CorruptRecords, InvalidOption
from convoy.frontend import model_file
from convoy.ir import workload_list
from convoy.ir.artifact import Meta, TensorInfo
from convoy.ir.candidate import Candidate, make_config
from convoy.ir.device import Device
from convoy.ir.epilogue import Epilogue
from convoy.ir.fields import parse_json
from convoy.ir.measurement import Measurement
from convoy.ir.offer import Offer
from convoy.ir.plan import Choice, Plan
from convoy.ir.schedule import Schedule, Trial
from convoy.ir.schedule_parts import Buffer, Event, MemoryPlan, Op
from convoy.ir.workload import Workload
from convoy.records import record_file
from convoy.records.environment import Environment
from convoy.records.record import Record
from convoy.runtime.library import function
from convoy.tune.journal import Journal

from .mutation import mutated_bytes, mutated_text

WORKLOAD = Workload(
    "fprop", 8, 28, 28, 64, 64, 3, 3, padding=(1, 1, 1, 1), epilogue=Epilogue(True, True, "relu")
)
TILE = (128, 128, 64)
CUTLASS = KernelConfig("sm90_conv", TILE, cluster=(2, 1), schedule="pingpong").to_json()
SM90 = {"family": "stem_wgrad", "channels": 4, "filter_h": 7, "filter_w": 7, "stride_w": 2}
CANDIDATES = (
    Candidate("cudnn", "eng1", make_config(engine=1, knobs=[[2, 1]], version=91900)),
    Candidate("cutlass", "k", make_config(kernel=CUTLASS, swizzle=1, split_k=2), 100, 1),
    Candidate("hopper", "k", make_config(kernel=SM90, swizzle=0), notes=("tensor_core",)),
)
MEASURED = Measurement(5.0, 0.1, 6.0, 2.0, 0.1, 9.0, 0.2, 20, 1e-3)
OFFERS = tuple(Offer(candidate, MEASURED) for candidate in CANDIDATES)
PLAN = Plan("graph", Device(), (Choice("lv1", WORKLOAD, OFFERS[0], OFFERS[1], OFFERS, (), 3),))
SCHEDULE = Schedule(
    (Op("a", "f", "offloaded", 5.0), Op("b", "g", "native", 1.0, stream=1, depends=(0,))),
    (Event(-1, 1), Event(0, 1)),
    MemoryPlan((Buffer("a", 0, 64, (0,), (1,)),), 64, 64, 64),
    trial=Trial(2.0, 1.0),
)
_INFO = TensorInfo("x", (1, 3), "float32")
META = Meta((_INFO,), (_INFO,), "cuda", "float16", PLAN.to_json(), {"tvm": "0.27"})
SPEC = {"format": 1, "device": {"arch": 0}, "functions": [], "meta": "m"}
GPU = Environment("NVIDIA H200", 132)


def _json(loads: Callable[[str], Any], dumps: Callable[[Any], str], value: Any) -> Callable:
    """A reader of JSON text; ``value`` is a good example."""
    good = json.loads(dumps(value))

    def check(rng: random.Random, folder: Path) -> None:
        text = mutated_text(good, rng).decode("utf-8", "replace")
        read = loads(text)
        assert loads(dumps(read)) == read

    return check


def _kernel(from_json: Callable[[Any], Any], good: dict[str, Any]) -> Callable:
    def check(rng: random.Random, folder: Path) -> None:
        kernel = from_json(parse_json(mutated_text(good, rng), "kernel", InvalidOption))
        assert from_json(kernel.to_json()) == kernel
        source = kernel.source
        assert source.isascii() and "#include <x>" not in source

    return check


def records(rng: random.Random, folder: Path) -> None:
    """All good lines are kept, and what is kept can be used."""
    path = folder / "r.jsonl"
    path.unlink(missing_ok=True)
    record_file.Appender(path).append([Record(WORKLOAD, c, MEASURED, GPU) for c in CANDIDATES])
    header, *lines = path.read_bytes().splitlines()
    bad = mutated_text(json.loads(rng.choice([header, *lines])), rng).replace(b"\n", b" ")
    path.write_bytes(b"\n".join([header, bad, *lines, b""]))
    found = record_file.read(path).records
    assert len(found) >= len(lines), f"a good line is lost beside {bad[:200]!r}"
    for record in found:
        assert record.key and record.to_line() and hash(record)
        assert record.workload.flops > 0 and len(record.workload.operand_shapes()) < 10
        features = candidate_features(record.workload, record.candidate, Device())
        assert all(type(value) in (int, float) for value in features.values())
        hash(kind(record.candidate))


def gzip_records(rng: random.Random, folder: Path) -> None:
    path = folder / "r.jsonl.gz"
    record_file.replace(path, [Record(WORKLOAD, CANDIDATES[0], MEASURED, GPU)])
    path.write_bytes(mutated_bytes(path.read_bytes(), rng))
    record_file.read(path)


def kernel_cache(rng: random.Random, folder: Path) -> None:
    cache = KernelCache(folder / "kernels")
    cache.put("key", b"library", {"name": "k"})
    entry = cache.folder / "key.json"
    entry.write_bytes(mutated_text(json.loads(entry.read_text()), rng))
    found = cache.get("key")
    assert found is None or found.library == b"library"


def journal(rng: random.Random, folder: Path) -> None:
    run = Journal(folder / "records.jsonl", ["run"])
    run.begin([WORKLOAD])
    run.end({WORKLOAD.key: 3})
    run.begin([])
    for path in (run.path, run.ended):
        path.write_bytes(mutated_text(json.loads(path.read_text()), rng))
    assert all(isinstance(key, str) for key in run.begin([WORKLOAD], {WORKLOAD.key: 3}))
    run.end({WORKLOAD.key: 4})


def workloads(rng: random.Random, folder: Path) -> None:
    path = folder / "w.jsonl"
    path.write_bytes(mutated_text(WORKLOAD.to_json(), rng))
    for workload in workload_list.read(path):
        assert Workload.from_json(json.loads(json.dumps(workload.to_json()))) == workload


def npz(rng: random.Random, folder: Path) -> None:
    file = io.BytesIO()
    save = rng.choice((np.savez, np.savez_compressed))
    save(file, a=np.ones((3, 4), "float32"), b=np.arange(7))
    path = folder / "a.npz"
    path.write_bytes(mutated_bytes(file.getvalue(), rng))
    model_file.load_arrays(path)


def module_spec(rng: random.Random, folder: Path) -> None:
    text = mutated_text(SPEC, rng).decode("utf-8", "replace")
    with contextlib.suppress(RuntimeError, ValueError, TypeError):  # of the runtime library
        function("module.create")(text, {})


INPUTS: dict[str, Callable[[random.Random, Path], None]] = {
    "plan": _json(Plan.loads, Plan.dumps, PLAN),
    "schedule": _json(Schedule.loads, Schedule.dumps, SCHEDULE),
    "meta": _json(Meta.loads, Meta.dumps, META),
    "cutlass": _kernel(KernelConfig.from_json, CUTLASS),
    "sm90": _kernel(kernel_from_json, SM90),
    "records": records,
    "gzip_records": gzip_records,
    "kernel_cache": kernel_cache,
    "journal": journal,
    "workloads": workloads,
    "npz": npz,
    "module_spec": module_spec,
}


def attempt(kind: str, seed: str) -> str:
    """Read one mutated input. Return what went wrong, "" if nothing did."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        try:
            INPUTS[kind](random.Random(f"{kind} {seed}"), Path(folder))
        except ConvoyError as err:
            if kind == "records" and not isinstance(err, CorruptRecords):
                return f"{type(err).__name__}: {err}"
        except Exception as err:
            return f"{type(err).__name__}: {err}"
    return ""
